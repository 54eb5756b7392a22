"""Many draws at once, from trees of several levels, are those of the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relive import Proportional, Recent, ReplayBuffer
from tests.equivalence.states import assert_same_batch, assert_same_state
from tests.faults.tagged import FIELDS, rows

CAPACITY, WRITTEN = 3000, 4100  # the ring has wrapped: 188 lowest nodes, and 24 and 8 above them
BATCH_SIZES = (1, 7, 8, 9, 24, 25, 100, 192, 200, 1000)
BUFFERS: dict[str, dict[str, Any]] = {
    "all rows": {},
    "a window on both sides of the seam": {"window": Recent(2000)},
    "a window that is one run": {"window": Recent(700)},
    "not stratified": {"sampler": Proportional(stratified=False), "window": Recent(2000)},
    "normalized by the batch": {"sampler": Proportional(normalize="batch"), "window": Recent(2000)},
}


@pytest.mark.parametrize("pins", [False, True], ids=["", "with demonstrations"])
@pytest.mark.parametrize("kind", BUFFERS)
def test_many_draws_at_once_are_those_of_the_definition(kind: str, pins: bool) -> None:
    settings = {"sampler": Proportional(), **BUFFERS[kind]}
    rng = np.random.default_rng(0)
    errors = rng.gamma(0.5, size=WRITTEN) * (rng.random(WRITTEN) < 0.9)
    buffers = []
    for kernels in ("cpu", "reference"):
        buffer = ReplayBuffer(CAPACITY, FIELDS, kernels=kernels, seed=3, **settings)
        if pins:
            buffer.extend(**rows(range(100)))
            buffer.pin_demonstrations(100)
        buffer.extend(**rows(range(len(buffer), WRITTEN)))
        ids = buffer.live_ids()
        buffer.update_priorities(ids, errors[: len(ids)])
        buffers.append(buffer)
    for batch_size in BATCH_SIZES:
        assert_same_batch(*(buffer.sample(batch_size) for buffer in buffers))
        start, stop = WRITTEN - 2500, WRITTEN - 300
        assert_same_batch(*(buffer.sample_range(batch_size, start, stop) for buffer in buffers))
    assert_same_state(*buffers)
