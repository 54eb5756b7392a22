"""Rows are drawn as often as they should be.

The inverse of the distribution is tested exactly first, then the frequencies of seeded draws. A
right sampler would fail a frequency test for one seed in a million (`FALSE_ALARM`).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relive import Proportional, ReplayBuffer, Uniform
from relive.ops import words as w
from relive.ops.tree import reference as tree
from tests.equivalence import compiled
from tests.properties.calls import FIELDS, steps
from tests.statistics.chi_square import FALSE_ALARM, draw_counts, p_value


def filled(capacity: int, rows: int, sampler: Uniform | Proportional, seed: int) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, FIELDS, sampler=sampler, seed=seed)
    buffer.extend(**steps(np.random.default_rng(0), rows))
    return buffer


def with_leaves(leaves: np.ndarray, seed: int = 0, **settings: object) -> ReplayBuffer:
    """A full ring that has gone round, whose rows have these leaves, oldest first."""
    sampler = Proportional(alpha=1.0, eps=0.0, **settings)
    buffer = filled(len(leaves), len(leaves) * 3 // 2, sampler, seed)
    buffer.update_priorities(buffer.live_ids(), np.float32(leaves))
    return buffer


@pytest.mark.parametrize(("capacity", "rows"), [(7, 5), (100, 250), (1000, 1000), (1, 3)])
def test_uniform_draws_are_uniform(capacity: int, rows: int) -> None:
    counts = draw_counts(filled(capacity, rows, Uniform(), seed=1), 200_000, 1000)
    assert counts.sum() == 200_000
    assert len(counts) == min(rows, capacity)
    assert len(counts) == 1 or p_value(counts, np.ones(len(counts))) > FALSE_ALARM


LEAVES = {
    "equal": np.ones(300),
    "1 ... 300": np.arange(1.0, 301),
    "three decades": 10 ** np.random.default_rng(7).uniform(-1.5, 1.5, 300),
    "a third of them 0": np.arange(1.0, 301) * (np.arange(300) % 3 > 0),
    "far away from 1": 1e-9 * np.arange(1.0, 301),
}


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("leaves", LEAVES.values(), ids=LEAVES.keys())
def test_proportional_draws_are_proportional(leaves: np.ndarray, stratified: bool) -> None:
    buffer = with_leaves(leaves, seed=2, stratified=stratified)
    counts = draw_counts(buffer, 300_000, 1000)
    assert counts[leaves == 0].sum() == 0
    alive = leaves > 0
    p = p_value(counts[alive], leaves[alive])
    assert p > FALSE_ALARM
    if not stratified:
        assert p < 1 - FALSE_ALARM  # nor too good to be independent


def test_draws_that_do_not_train_are_proportional_and_leave_training_draws_alone() -> None:
    leaves = np.arange(1.0, 101)
    one, other = (with_leaves(leaves, seed=3, stratified=False) for _ in range(2))
    counts = np.zeros(100, np.int64)
    for _ in range(100):
        ids = one.sample(1000, train=False).ids.numpy()
        counts += np.bincount(ids - int(one.live_ids()[0]), minlength=100)
    assert p_value(counts, leaves) > FALSE_ALARM
    assert one.sample(64).ids.tolist() == other.sample(64).ids.tolist()
    assert one.sample(64).ids.tolist() != one.sample(64, train=False).ids.tolist()


@pytest.mark.parametrize("batch_size", [1, 7, 32, 256, 1000])
def test_every_stratified_draw_lies_in_its_own_part_of_the_mass(batch_size: int) -> None:
    buffer = with_leaves(LEAVES["a third of them 0"])
    state = buffer._state
    ends = tree.masses(state.leaves, state.word(w.SCALE)).cumsum(0).tolist()
    total = state.word(w.TOTAL)
    for _ in range(5):
        slots = ((buffer.sample(batch_size).ids - state.words[w.BASE_ID]) % 300).tolist()
        for j, slot in enumerate(sorted(slots)):
            low, high = j * total // batch_size, (j + 1) * total // batch_size
            start = ends[slot - 1] if slot else 0
            assert start < high
            assert ends[slot] > low


@pytest.mark.parametrize("batch_size", [*range(1, 33), 48, 64, 96, 100, 250, 256, 1000, 1024])
def test_each_slice_of_a_stratified_batch_holds_one_draw_of_every_run_of_strata(
    batch_size: int,
) -> None:
    buffer = ReplayBuffer(batch_size, FIELDS, sampler=Proportional())
    buffer.extend(**steps(np.random.default_rng(0), batch_size))  # as many equal rows as strata
    strata = buffer.sample(batch_size).ids.numpy()
    assert sorted(strata) == list(range(batch_size))
    m = 1
    while batch_size % m == 0:
        for part in strata.reshape(m, batch_size // m):
            assert sorted(part // m) == list(range(batch_size // m))
        m *= 2


@pytest.mark.parametrize("find", ["reference", "compiled"])
@pytest.mark.parametrize("capacity", [1, 2, 15, 16, 17, 129, 1025])
def test_the_inverse_of_the_distribution_is_exact_at_every_boundary(
    capacity: int, find: str
) -> None:
    leaves = np.random.default_rng(capacity).integers(0, 4, capacity) + (np.arange(capacity) == 0)
    buffer = filled(capacity, capacity, Proportional(alpha=1.0, eps=0.0), seed=0)
    buffer.update_priorities(buffer.live_ids(), leaves)
    state = buffer._state
    unit = 2 ** state.word(w.SCALE)
    assert state.word(w.TOTAL) == unit * leaves.sum()
    starts = np.cumsum(leaves) - leaves
    alive = np.flatnonzero(leaves)
    first, last = starts[alive] * unit, (starts + leaves)[alive] * unit - 1
    for targets in (first, last):
        if find == "reference":
            leaf_masses = tree.masses(state.leaves, state.word(w.SCALE))
            found = tree.find(leaf_masses, torch.from_numpy(targets)).numpy()
        else:
            found = compiled.slots(state.header, targets)
        np.testing.assert_array_equal(found, alive)
