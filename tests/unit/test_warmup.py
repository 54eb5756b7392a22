"""Warming up."""

import time

import relive
from relive import Field, Proportional, ReplayBuffer


def test_after_warming_up_no_call_compiles():
    assert relive.warm_up() > 0
    start = time.perf_counter()
    fields = {"obs": Field((3,)), "action": Field()}
    buffer = ReplayBuffer(
        9, fields, sampler=Proportional(), n_step=3, num_envs=2, autoreset="disabled"
    )
    buffer.add(
        obs=[[0.0] * 3] * 2, action=[0.0] * 2, reward=[0.0] * 2, next_obs=[[0.0] * 3] * 2,
        terminated=[True] * 2, truncated=[False] * 2,
    )  # fmt: skip
    batch = buffer.sample(4)
    buffer.update_priorities(batch.ids, batch.reward)
    assert len(buffer.rows(buffer.live_ids())) == 2
    assert time.perf_counter() - start < 0.5  # a single kernel takes longer to compile
