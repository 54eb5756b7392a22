"""What does not matter: in how many pieces a stream is written, whether a batch is a new one."""

from __future__ import annotations

import numpy as np
import pytest

from relive import Proportional
from relive.storage import memory
from tests.equivalence.states import assert_same_batch, assert_same_state
from tests.properties.calls import Calls, Spec, steps

SPECS = {
    "one step": Spec(sampler=Proportional()),
    "three steps": Spec(n_step=3, sampler=Proportional(new_priority="max_current")),
    "four steps of three environments": Spec(
        capacity=50, n_step=4, num_envs=3, autoreset="next_step", track_reuse=True
    ),
}


@pytest.mark.parametrize("staging_bytes", [1, 1000])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_stream_may_be_written_in_pieces_of_any_size(
    spec: Spec, staging_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = spec.buffer()
    monkeypatch.setattr(memory, "STAGING_BYTES", staging_bytes)
    pieces = spec.buffer()
    for number in range(6):
        given = steps(np.random.default_rng(number), 37, spec.num_envs, end=0.05)
        env = None
        if number % 2:
            given, env = (
                {name: value[:, 0] for name, value in given.items()},
                number % spec.num_envs,
            )
        whole.extend(**given, env=env)
        pieces.extend(**given, env=env)
        assert_same_state(whole, pieces)
        pieces.check()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_batch_may_be_filled_again_and_again(spec: Spec) -> None:
    fresh, reused = spec.buffer(), spec.buffer()
    calls = list(Calls(spec, fresh, seed=0).take(40))
    for buffer in (fresh, reused):
        for name, arguments in calls:
            if name == "add":
                buffer.add(**arguments)
    out = reused.empty_batch(8)
    for _ in range(5):
        assert reused.sample(8, out=out) is out
        assert_same_batch(fresh.sample(8), out)
    assert_same_state(fresh, reused)
