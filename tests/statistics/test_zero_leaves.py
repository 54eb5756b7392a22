"""Rows of priority zero are never drawn, wherever they are; the others are, in proportion.

Frequencies are judged as in `test_frequencies`: a right sampler fails for one seed in a million.
"""

from __future__ import annotations

import numpy as np
import pytest

from relive import Proportional, ReplayBuffer
from relive.ops import words as w
from tests.equivalence import compiled
from tests.faults.tagged import FIELDS, rows
from tests.statistics.chi_square import FALSE_ALARM, draw_counts, p_value

DRAWS = 10_000_000
CAPACITY, WRITTEN = 5003, 7000  # neither nodes nor groups of nodes are full; the ring has wrapped
NODE, GROUP = 16, 128  # slots below a node of the lowest level, and of the next
TINY, HUGE = 2.0**-40, 2.0**40


def leaves_by_slot(rest: np.ndarray) -> np.ndarray:
    """Zeros at every kind of place among the leaves given."""
    leaves = rest.copy()
    leaves[0] = leaves[-1] = 0
    leaves[5 * NODE : 6 * NODE] = 0  # a node
    leaves[3 * GROUP : 4 * GROUP] = 0  # 8 nodes
    leaves[8 * GROUP : 16 * GROUP] = 0  # 64 nodes
    leaves[20 * NODE - 1 : 20 * NODE + 1] = 0  # both sides of a seam
    leaves[2100:2300:2] = 0  # every other one
    leaves[-NODE - 5 : -5] = 0  # what ends in the last, partly filled node
    return leaves


def wide() -> np.ndarray:
    """24 decades; zeros between a tiny leaf and a huge one, on both sides."""
    leaves = leaves_by_slot(2.0 ** np.random.default_rng(0).uniform(-40, 40, CAPACITY))
    for place in range(2500, 2800, 3):
        leaves[place : place + 3] = [TINY, 0, HUGE] if place % 2 else [HUGE, 0, TINY]
    return leaves


PATTERNS = {
    "within three decades": leaves_by_slot(
        10 ** np.random.default_rng(1).uniform(-1.5, 1.5, CAPACITY)
    ),
    "24 decades": wide(),
    "all but one": np.where(np.arange(CAPACITY) == 4000, TINY, 0),
}


def filled(leaves: np.ndarray, *, stratified: bool) -> ReplayBuffer:
    sampler = Proportional(alpha=1.0, eps=0.0, stratified=stratified)
    buffer = ReplayBuffer(CAPACITY, FIELDS, sampler=sampler, seed=4)
    buffer.extend(**rows(range(WRITTEN)))
    ids = buffer.live_ids().numpy()
    buffer.update_priorities(ids, priorities=np.float32(leaves[ids % CAPACITY]))
    return buffer


@pytest.mark.parametrize("stratified", [True, False], ids=["stratified", "independent"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_row_of_priority_zero_is_drawn_in_ten_million_draws(
    pattern: str, stratified: bool
) -> None:
    leaves = PATTERNS[pattern]
    counts = draw_counts(filled(leaves, stratified=stratified), DRAWS, 1000)
    assert counts.sum() == DRAWS
    by_slot = np.roll(counts, WRITTEN % CAPACITY)  # counts begin with the oldest row
    assert by_slot[leaves == 0].sum() == 0
    # The leaves that are expected 5 times or more one by one, all smaller ones together.
    often = leaves * DRAWS >= 5 * leaves.sum()
    observed, expected = by_slot[often], leaves[often]
    if len(observed) > 1:
        rare = (leaves > 0) & ~often
        if leaves[rare].sum() * DRAWS >= 5 * leaves.sum():
            observed = np.append(observed, by_slot[rare].sum())
            expected = np.append(expected, leaves[rare].sum())
        assert p_value(observed, expected) > FALSE_ALARM


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_first_and_last_unit_of_mass_of_every_row_are_its_own(
    pattern: str, ascending: bool
) -> None:
    # No number of draws would come upon the edges by chance: here all of them are asked for.
    leaves = np.float32(PATTERNS[pattern])
    state = filled(leaves, stratified=True)._state
    unit = 2.0 ** state.word(w.SCALE)
    masses = [max(int(float(leaf) * unit), int(leaf > 0)) for leaf in leaves]
    assert sum(masses) == state.word(w.TOTAL)
    alive = np.flatnonzero(leaves)
    ends = np.cumsum(np.array(masses))[alive]
    starts = ends - np.array(masses)[alive]
    for some in (slice(None, None, every) for every in (1, 3, 10, 40, 300, 1500)):
        # the fewer there are, the higher is the level along which they are found in one walk
        np.testing.assert_array_equal(
            compiled.slots(state.header, ends[some] - 1, ascending), alive[some]
        )
        np.testing.assert_array_equal(
            compiled.slots(state.header, starts[some], ascending), alive[some]
        )
