"""Wide bounds on time: of the shortest of many runs, in time of this thread."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from relive import Proportional, ReplayBuffer, Uniform
from relive.ops import words as w
from tests.faults.tagged import BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.sampling import Sampler


def filled(capacity: int, rows: int, sampler: Sampler, n_step: int = 1) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, BYTES, sampler=sampler, n_step=n_step)
    state = buffer._state
    state.words[w.NEXT_ID] = rows  # as if written
    if buffer.prioritized:
        generator = torch.Generator().manual_seed(0)
        state.leaves[:rows] = torch.rand(rows, generator=generator) + 0.01
        state.words[w.SCALE] = 30
        buffer._ops.rebuild(state)
    return buffer


def shortest(action: Callable[[], object], runs: int = 400) -> float:
    """Seconds."""
    times = []
    for _ in range(runs):
        start = time.thread_time()
        action()
        times.append(time.thread_time() - start)
    return min(times)


@pytest.mark.parametrize(
    ("sampler", "n_step"), [(Uniform(), 1), (Uniform(), 3), (Proportional(), 1)], ids=str
)
def test_F58_the_time_of_a_batch_does_not_follow_the_capacity(
    sampler: Sampler, n_step: int
) -> None:
    # The entry allows a factor of 3 from 10^4 to 10^7. Caches alone may cost more than that where a
    # batch takes 7 us, so here it is 3 for each power of ten; a scan would take 10.
    times = {}
    for part in (100, 1):
        for capacity in (10_000, 100_000, 1_000_000, 10_000_000):
            buffer = filled(capacity, capacity // part, sampler, n_step)
            out = buffer.empty_batch(256)
            times[part, capacity] = shortest(lambda b=buffer, o=out: b.sample(256, out=o))
            smaller = times.get((part, capacity // 10), math.inf)
            assert times[part, capacity] <= 3 * smaller, times


def test_F59_a_prioritized_step_takes_no_longer_than_the_network() -> None:
    buffer = filled(1_000_000, 1_000_000, Proportional())
    times = {}
    for batch_size in (32, 256):
        errors = torch.from_numpy(np.random.default_rng(0).normal(size=batch_size)).float()

        def step(batch_size: int = batch_size, errors: torch.Tensor = errors) -> None:
            batch = buffer.sample(batch_size)
            buffer.update_priorities(batch.ids, errors)

        times[batch_size] = shortest(step)
    assert times[256] <= 300e-6
    assert times[32] <= times[256]
