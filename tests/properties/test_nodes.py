"""Every node of the tree, as a whole number, after long runs of random updates.

The tree is described here again from its leaves: masses, sums and extrema in NumPy, whole numbers
as whole numbers. The leaves themselves are followed by a ledger that knows only the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from relive import Proportional, ReplayBuffer
from relive.ops import words as w
from tests.faults.tagged import FIELDS, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALLEST, LARGEST = np.float32(2.0**-40), np.float32(2.0**40)
COMPARISONS = 20  # of all nodes, in one run
BLOCK = 1000  # calls whose random numbers are drawn together
BATCHES = [0, 1, 1, 2, 3, 8, 32, 64, 256, 700]  # ids in one call
NEW_ROWS = [1, 1, 1, 2, 40, 1500]


class Ledger:
    """The leaf of every slot, from the calls alone; new rows enter at the largest that lives."""

    def __init__(self, capacity: int) -> None:
        self.leaves = np.zeros(capacity, np.float32)
        self.next_id = 0

    def extend(self, count: int) -> None:
        slots = np.arange(self.next_id, self.next_id + count) % len(self.leaves)
        self.leaves[slots] = 0
        self.leaves[slots] = self.leaves.max() or 1
        self.next_id += count

    def update(self, ids: np.ndarray, leaves: np.ndarray) -> None:
        live = ids >= self.next_id - len(self.leaves)
        for row_id, leaf in zip(ids[live].tolist(), leaves[live], strict=True):
            self.leaves[row_id % len(self.leaves)] = leaf  # of one id the last decides


def masses(leaves: np.ndarray, scale: int) -> np.ndarray:
    """Whole numbers: leaf 2^scale without its fraction, but at least 1 if the leaf is positive."""
    whole = np.floor(np.ldexp(leaves.astype(np.float64), scale)).astype(np.int64)
    return np.maximum(whole, leaves > 0)


def nodes(leaves: np.ndarray, merge: Callable[..., np.ndarray], nothing: float) -> np.ndarray:
    """16 leaves make a node, then 8 nodes, until 8 are left; every level is padded to whole 8s."""
    found, level, children = [], leaves, 16
    while children == 16 or len(level) > 8:
        level = merge(padded(level, children, nothing).reshape(-1, children), axis=1)
        level, children = padded(level, 8, nothing), 8
        found.append(level)
    return np.concatenate(found)


def padded(values: np.ndarray, to: int, padding: float) -> np.ndarray:
    return np.append(values, np.full(-len(values) % to, padding, values.dtype))


def assert_tree_is_that_of(buffer: ReplayBuffer, leaves: np.ndarray) -> None:
    state = buffer._state
    np.testing.assert_array_equal(state.leaves[: len(leaves)].numpy(), leaves)
    assert not state.leaves[len(leaves) :].any()
    whole = masses(leaves, state.word(w.SCALE))
    np.testing.assert_array_equal(state.sums.numpy(), nodes(whole, np.sum, 0))
    assert state.word(w.TOTAL) == sum(whole.tolist()) < 2**62
    positive = np.where(leaves > 0, leaves, np.float32(np.inf))
    np.testing.assert_array_equal(state.mins.numpy(), nodes(positive, np.min, np.inf))
    np.testing.assert_array_equal(state.maxs.numpy(), nodes(leaves, np.max, 0))


def updates(rng: np.random.Generator, calls: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Where in the ring, as numbers in [0, 1), and which leaves: all decades there are, and 0.

    Magnitudes wander slowly through the whole range and jump now and then, so that the scale has to
    follow both ways; a third of the calls have duplicates.
    """
    done = 0
    while done < calls:
        sizes = rng.choice(BATCHES, min(BLOCK, calls - done))
        centers = 38 * np.sin((done + np.arange(len(sizes))) / 700)
        centers = np.where(rng.random(len(sizes)) < 0.03, rng.uniform(-40, 40), centers)
        total = int(sizes.sum())
        exponents = rng.normal(np.repeat(centers, sizes), rng.choice([0.5, 4.0]))
        leaves = np.exp2(np.clip(exponents, -40, 40)).astype(np.float32)
        leaves[rng.random(total) < rng.choice([0.02, 0.5])] = 0
        places = rng.random(total)
        crowd = np.repeat(rng.random(len(sizes)) < 0.3, sizes)
        places = np.where(crowd, np.floor(places * 7) / 7, places)
        ends = sizes.cumsum()
        for start, end in zip(ends - sizes, ends, strict=True):
            yield places[start:end], leaves[start:end]
        done += len(sizes)


@pytest.mark.parametrize(
    ("capacity", "calls"),
    [
        (1, 3000),
        (17, 3000),
        (130, 3000),
        (4099, 10_000),
        pytest.param(4099, 1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    ],
)
def test_every_node_is_the_sum_of_its_children_after_random_updates(
    capacity: int, calls: int
) -> None:
    sampler = Proportional(alpha=1.0, eps=0.0, new_priority="max_current")
    buffer, ledger = ReplayBuffer(capacity, FIELDS, sampler=sampler), Ledger(capacity)
    rng = np.random.default_rng(capacity)
    for number, (places, leaves) in enumerate(updates(rng, calls)):
        if number % 25 == 0:
            count = min(capacity, int(rng.choice(NEW_ROWS)))
            buffer.extend(**rows(range(count)))
            ledger.extend(count)
        held = min(ledger.next_id, capacity)
        oldest = max(0, ledger.next_id - held * 21 // 20)  # one in twenty may be overwritten
        ids = oldest + (places * (ledger.next_id - oldest)).astype(np.int64)
        if number % 500 == 499:  # all rows at once, about alike: the total collapses or soars
            ids = buffer.live_ids().numpy()
            leaves = np.float32(np.exp2(rng.uniform(-40, 39)) * rng.uniform(1, 2, len(ids)))
        buffer.update_priorities(torch.from_numpy(ids), priorities=torch.from_numpy(leaves))
        ledger.update(ids, leaves)
        if (number + 1) % (calls // COMPARISONS) == 0:
            assert_tree_is_that_of(buffer, ledger.leaves)
    buffer.check()
    stats = buffer.stats()
    assert stats["added"] > 5 * capacity  # the ring has wrapped
    assert stats["rescales"] > calls / 500
    assert stats["clamped_priorities"] == 0  # so the ledger knows every leaf
    if calls >= 10_000:
        assert stats["priority_updates"] >= 10**6
        assert stats["stale_updates"] > 1000
