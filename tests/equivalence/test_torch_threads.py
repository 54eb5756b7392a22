"""The number of torch's threads changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from relive import Linear, Proportional, ReplayBuffer, Uniform
from relive.ops import words as w
from tests.equivalence.states import assert_same_batch, assert_same_state
from tests.properties.calls import FIELDS, steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relive import Batch
    from relive.sampling import Sampler

ROWS = 100_000  # so many that torch divides its work, and sums of floats differ with the threads
PARTS = {"cpu": (30_000, 50_000, 2), "reference": (10, 100, 1)}  # new rows, batch size, rounds
SAMPLERS = {
    "uniform": Uniform(),
    "proportional": Proportional(beta=Linear(0.4, 1.0, 3), new_priority="max_current"),
    "independent": Proportional(alpha=1.0, stratified=False, normalize="batch"),
}


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def run(sampler: Sampler, kernels: str) -> tuple[ReplayBuffer, list[Batch]]:
    """Rows, batches and priorities of all magnitudes, in sizes that torch would divide."""
    buffer = ReplayBuffer(ROWS, FIELDS, sampler=sampler, n_step=3, seed=6, kernels=kernels)
    rng = np.random.default_rng(0)
    state = buffer._state
    state.words[w.NEXT_ID] = ROWS  # as if written
    if buffer.prioritized:
        state.leaves[:ROWS] = torch.from_numpy(10 ** rng.uniform(-6, 6, ROWS))
        state.words[w.SCALE] = 20  # so that the total of these fits
        buffer._home.ops.rebuild(state)
        buffer.check()
    batches = []
    new_rows, batch_size, rounds = PARTS[kernels]
    for train in (True, False)[:rounds]:
        buffer.extend(**steps(rng, new_rows, end=0.01))
        batches += [buffer.sample(batch_size, train=train), buffer.rows(buffer.live_ids())]
        if buffer.prioritized:
            buffer.update_priorities(batches[-2].ids, 10 ** rng.uniform(-6, 6, batch_size))
    return buffer, batches


@pytest.mark.parametrize("kernels", PARTS)
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_any_number_of_torch_threads_gives_the_same_batches(
    sampler: Sampler, kernels: str, threads: None
) -> None:
    torch.set_num_threads(1)
    expected, expected_batches = run(sampler, kernels)
    for number in (2, 4):
        torch.set_num_threads(number)
        assert torch.get_num_threads() == number
        buffer, batches = run(sampler, kernels)
        for one, other in zip(expected_batches, batches, strict=True):
            assert_same_batch(one, other)
        assert_same_state(expected, buffer)
