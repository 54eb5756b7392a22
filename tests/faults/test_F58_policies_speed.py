"""A batch takes about as long with a hundred times as many rows, whatever it is drawn from."""

from __future__ import annotations

import pytest
import torch

from relive import Proportional, RankBased, Recent, ReplayBuffer, Uniform
from relive.ops import words as w
from tests.faults.tagged import BYTES
from tests.faults.test_F58_F59_speed import medians, sampling

SAMPLERS = {"uniform": Uniform(), "proportional": Proportional(), "rank": RankBased()}
POLICIES = {  # a window, and whether a tenth of the rows are demonstrations
    "recent": (Recent(), False),
    "demonstrations": (None, True),
    "both": (Recent(), True),
}
# A pass over the rows would take 100 times as long; what is allowed is for reads that miss the
# caches, three levels more of the tree among them.
MOST = 5


def filled(capacity: int, sampler: str, policy: str) -> ReplayBuffer:
    """A ring that has gone round, so that its newest rows lie on both sides of the seam."""
    window, pins = POLICIES[policy]
    buffer = ReplayBuffer(capacity, BYTES, sampler=SAMPLERS[sampler], window=window)
    state = buffer._state
    if pins:
        state.words[w.NEXT_ID] = capacity // 10  # as if written
        buffer.pin_demonstrations(capacity // 10)
    state.words[w.NEXT_ID] = capacity + 1000
    if buffer.prioritized:
        generator = torch.Generator().manual_seed(0)
        state.leaves[:capacity] = torch.rand(capacity, generator=generator) + 0.01
        state.words[w.SCALE] = 30
        buffer._home.ops.rebuild(state)
    return buffer


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_F58_the_time_of_a_batch_from_a_part_of_the_rows_does_not_follow_the_capacity(
    policy: str, sampler: str
) -> None:
    calls = [sampling(filled(size, sampler, policy)) for size in (100_000, 10_000_000)]
    small, large = medians(calls)
    assert large <= MOST * small, (small, large)
