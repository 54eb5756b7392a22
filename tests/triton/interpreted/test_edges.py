"""What only a buffer on a GPU meets.

Batches of nothing in a mixture, the state of a buffer on the CPU, and final observations that it
cannot look at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relive import Field, InputError, Mixture, Proportional, ReplayBuffer, UnsupportedError
from tests.triton.pretended import pretended

FIELDS = {"obs": Field(), "action": Field((), torch.int64)}
SAMPLER = Proportional(alpha=1.0, eps=0.0)


@pytest.fixture(autouse=True)
def device() -> Any:
    with pretended() as there:
        yield there


def filled(**settings: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(6, FIELDS, sampler=SAMPLER, **settings)
    t = np.arange(8)
    numbers = np.float32(t)
    buffer.extend(
        obs=numbers, action=t, reward=numbers, next_obs=numbers + 1, terminated=t % 3 == 2
    )
    return buffer


def test_a_buffer_of_a_mixture_with_all_priorities_0_gives_ids_of_no_row() -> None:
    full, empty = filled(device="cuda"), filled(device="cuda")
    empty.update_priorities(empty.live_ids(), np.zeros(6, np.float32))
    mixture = Mixture([full, empty], [1, 1])
    batch = mixture.sample(4)
    assert batch.ids.tolist()[2:] == [-1, -1]
    assert batch.weights.tolist()[2:] == [0.0, 0.0]
    source, ids = mixture.where(batch.ids)
    assert (source.tolist(), ids.tolist()[2:]) == ([0, 0, -1, -1], [-1, -1])
    mixture.update_priorities(batch.ids, np.full(4, 0.5, np.float32))
    assert full.priorities(ids[:2]).tolist() == [0.5, 0.5]
    for buffer in mixture.buffers:
        assert buffer.stats(wait=True)["stale_updates"] == 0
    with pytest.raises(InputError, match="ids are those"):
        mixture.update_priorities([-2], [1.0])


def test_a_mixture_is_not_captured_since_the_host_divides_its_batches(device: Any) -> None:
    mixture = Mixture([filled(device="cuda"), filled(device="cuda")], [1, 3])
    batch = mixture.sample(2)
    errors = torch.ones(2, device="cuda")
    for call in (
        lambda: mixture.sample(2),
        lambda: mixture.sample(2, out=batch),
        lambda: next(mixture.batches(2)),
        lambda: mixture.update_priorities(batch.ids, errors),
    ):
        with device.capture() as graph, pytest.raises(UnsupportedError, match="be captured"):
            call()
        assert not graph.works


@pytest.mark.parametrize("way", [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_state_goes_from_one_device_to_the_other(way: tuple[str, str]) -> None:
    first, second = (filled(device=name, n_step=2) for name in way)
    assert first._home.layout.row_bytes != second._home.layout.row_bytes
    step = {"obs": 1.0, "action": 2, "reward": 3.0, "next_obs": 4.0}
    first.add(**step, terminated=False, truncated=False)  # waits for its window
    first.update_priorities([3, 4], [0.25, 2.0])
    second.clear()
    second.load_state_dict(first.state_dict())
    second.check()
    for buffer in (first, second):
        buffer.end_episode()
    for ours, theirs in (
        (second.all(), first.all()),
        (second.sample(5), first.sample(5)),
    ):
        for name in theirs.keys():  # noqa: SIM118 - a batch is no dict
            assert torch.equal(ours[name].cpu(), theirs[name].cpu()), name
    held = first.live_ids().tolist()
    assert second.priorities(held).tolist() == first.priorities(held).tolist()


def test_final_observations_that_it_cannot_look_at_are_refused_by_their_name() -> None:
    buffer = ReplayBuffer(6, FIELDS, num_envs=2, autoreset="same_step", device="cuda")
    zeros = torch.zeros(2, device="cuda")
    step = {
        "obs": zeros,
        "action": zeros.long(),
        "reward": zeros,
        "next_obs": zeros,
        "terminated": zeros > 0,
        "truncated": zeros > 0,
    }
    objects = np.array([None, np.float32(3)], object)
    for final_obs in (objects, zeros[:1], [zeros[0], None]):
        with pytest.raises(InputError, match="final_obs"):
            buffer.add(**step, final_obs=final_obs)
    assert len(buffer) == 0
    buffer.add(**step, final_obs=zeros)
    assert len(buffer) == 2
