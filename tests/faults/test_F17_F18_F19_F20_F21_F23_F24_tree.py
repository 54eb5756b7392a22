"""The tree: drift, masses at the edges, capacities of any kind, resolution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relive import Proportional, RankBased, Recent, ReplayBuffer
from relive.ops import words as w
from relive.ops.draw import reference as drawing
from relive.ops.tree import reference as tree
from tests.equivalence import compiled
from tests.faults.tagged import BYTES, FIELDS, drawn, prioritized, root, rows, uniform, write
from tests.statistics.chi_square import FALSE_ALARM, draw_counts, p_value


def filled(capacity: int, count: int, kernels: str = "cpu", **sampler: object) -> ReplayBuffer:
    buffer = prioritized(capacity, kernels, **sampler)
    buffer.extend(**rows(range(count)))
    return buffer


def find(buffer: ReplayBuffer, masses: list[float], kernels: str) -> list[int]:
    """The slots where these masses lie, in units of leaves."""
    unit = 2 ** buffer._state.word(w.SCALE)
    targets = np.array([int(mass * unit) for mass in masses])
    if kernels == "reference":
        state = buffer._state
        leaf_masses = tree.masses(state.leaves, state.word(w.SCALE))
        return tree.find(leaf_masses, torch.from_numpy(targets)).tolist()
    return compiled.slots(buffer._state.header, targets).tolist()


@pytest.mark.parametrize("huge", [1e8, 1e12])
def test_F17_a_huge_priority_that_comes_and_goes_leaves_the_sum_as_it_was(
    kernels: str, huge: float
) -> None:
    buffer = filled(1024, 1024, kernels)
    buffer.update_priorities(range(1024), [0.001] * 1024)
    before = root(buffer)
    assert before == pytest.approx(1.024, rel=1e-6)
    buffer.update_priorities([0], [huge])
    assert root(buffer) == pytest.approx(huge + 1.023, rel=1e-6)
    buffer.update_priorities([0], [0.001])
    assert root(buffer) == pytest.approx(before, rel=1e-9)
    buffer.check()


def test_F17_a_sum_does_not_drift_over_300_000_updates() -> None:
    buffer = filled(4096, 4096)
    rng = np.random.default_rng(0)
    for size, calls in [(1, 1000), (1, 19_000), (100, 2800)]:
        for _ in range(calls):
            buffer.update_priorities(rng.integers(0, 4096, size), rng.uniform(0.1, 5, size))
        exact = float(buffer.priorities(buffer.live_ids()).double().sum())
        assert root(buffer) == pytest.approx(exact, rel=1e-9)
    assert buffer.stats()["priority_updates"] == 300_000


EDGES = {  # which random number, batch size: least and greatest id of 100 equal rows
    ("least", 1): (0, 0),
    ("least", 32): (0, 96),
    ("least", 256): (0, 99),
    ("greatest", 1): (99, 99),
    ("greatest", 32): (3, 99),
    ("greatest", 256): (0, 99),
}


@pytest.mark.parametrize(("which", "batch_size"), EDGES)
def test_F18_a_mass_at_the_edge_of_its_stratum_stays_on_live_rows(
    which: str, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {"least": lambda *_: 0, "greatest": lambda bound, *_: bound - 1}
    monkeypatch.setattr(drawing, "random_below", numbers[which])
    ids = filled(500, 100, "reference").sample(batch_size).ids
    assert (int(ids.min()), int(ids.max())) == EDGES[which, batch_size]


def test_F18_the_last_unit_of_mass_belongs_to_the_last_live_row(kernels: str) -> None:
    buffer = filled(500, 100, kernels)
    last = buffer._state.word(w.TOTAL) - 1
    scale = 2.0 ** -buffer._state.word(w.SCALE)
    assert find(buffer, [0, 99, last * scale], kernels) == [0, 99, 99]


def test_F18_no_draw_of_two_million_leaves_the_live_rows() -> None:
    buffer = filled(500, 100)
    assert draw_counts(buffer, 2_048_000, 1024).sum() == 2_048_000  # bincount refuses others


@pytest.mark.parametrize("bound", [1, 3, 10, 1000, 2**40, 2**62 + 1])
def test_F18_F24_the_largest_random_number_gives_the_last_of_any_bound(bound: int) -> None:
    assert compiled.largest_below(bound) == bound - 1


MASSES = {
    (1, 1, 1): {0.5: 0, 1.5: 1, 2.5: 2},
    (1, 2, 3, 4, 5): {0.5: 0, 1.5: 1, 3.5: 2, 7: 3, 12: 4},
}


@pytest.mark.parametrize("leaves", MASSES)
def test_F19_masses_map_to_their_rows_in_order(kernels: str, leaves: tuple[int, ...]) -> None:
    buffer = filled(len(leaves), len(leaves), kernels)
    buffer.update_priorities(range(len(leaves)), leaves)
    assert find(buffer, list(MASSES[leaves]), kernels) == list(MASSES[leaves].values())


CAPACITIES = [1, 2, 3, 5, 6, 7, 9, 15, 16, 17, 127, 128, 129, 1000, 1023, 1025]


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_F19_any_capacity_draws_in_proportion(capacity: int, stratified: bool) -> None:
    buffer = filled(capacity, capacity, stratified=stratified)
    leaves = np.arange(capacity) + 1.0
    buffer.update_priorities(range(capacity), leaves)
    counts = draw_counts(buffer, 100_000, 1000)
    assert counts.sum() == 100_000
    groups = np.array_split(np.arange(capacity), min(capacity, 50))
    observed, expected = ([values[group].sum() for group in groups] for values in (counts, leaves))
    assert capacity == 1 or p_value(np.array(observed), np.array(expected)) > FALSE_ALARM


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 6, 7, 9, 17, 130])
def test_F19_any_range_of_any_capacity_draws_exactly_in_proportion(
    kernels: str, capacity: int
) -> None:
    buffer = filled(capacity, capacity + capacity // 3, kernels)
    ids = buffer.live_ids()
    leaves = torch.arange(capacity) % 5 + 1
    buffer.update_priorities(ids, leaves)
    for start in range(0, capacity, 1 + capacity // 4):
        for stop in range(start + 1, capacity + 1, 1 + capacity // 4):
            total = int(leaves[start:stop].sum())  # each stratum is one unit of a leaf
            drawn_ids = buffer.sample_range(total, int(ids[start]), int(ids[stop - 1]) + 1).ids
            counts = (drawn_ids - ids[0]).bincount(minlength=capacity)
            assert counts[start:stop].tolist() == leaves[start:stop].tolist()


@pytest.mark.parametrize("capacity", [1, 2, 4096, 65_536])
def test_F20_a_buffer_that_is_exactly_full(capacity: int) -> None:
    buffer = filled(capacity, capacity, alpha=0.4)
    buffer.update_priorities(range(capacity), [0.5] * capacity)
    assert root(buffer) == pytest.approx(capacity * 0.5**0.4, rel=1e-6)
    assert 0 <= int(buffer.sample(1).ids) < capacity
    last = np.array([buffer._state.word(w.TOTAL) - 1])
    assert compiled.slots(buffer._state.header, last).tolist() == [capacity - 1]
    buffer.check()


def by_rank(capacity: int, kernels: str) -> ReplayBuffer:
    return ReplayBuffer(capacity, FIELDS, sampler=RankBased(), kernels=kernels)


def recent(capacity: int, kernels: str) -> ReplayBuffer:
    return uniform(capacity, kernels, window=Recent(eta=0.996, c_min=10, updates=1000))


@pytest.mark.parametrize("make", [uniform, prioritized, by_rank, recent])
def test_F21_the_newest_row_is_drawn_as_often_as_the_others(kernels: str, make: object) -> None:
    buffer = make(10, kernels)
    write(buffer, [0])
    batch = buffer.sample(4)
    assert (batch.ids.tolist(), batch.weights.tolist()) == ([0] * 4, [1] * 4)
    write(buffer, [1])
    assert drawn(buffer, 10_000) == pytest.approx({0: 5000, 1: 5000}, abs=200)
    write(buffer, range(2, 10))
    assert drawn(buffer, 10_000) == pytest.approx(dict.fromkeys(range(10), 1000), abs=120)


def test_F23_more_rows_than_float32_can_count_are_all_drawn() -> None:
    capacity = 16_777_232
    sampler = Proportional(alpha=1.0, eps=0.0)
    buffer = ReplayBuffer(capacity, BYTES, sampler=sampler)
    state = buffer._state
    state.words[w.NEXT_ID] = capacity  # as if written
    state.words[w.SCALE] = 30
    state.leaves[: capacity // 2] = 2
    state.leaves[capacity // 2 : capacity] = 1
    buffer._home.ops.rebuild(state)
    assert state.word(w.TOTAL) == capacity * 3 // 2 * 2**30
    ids = torch.cat([buffer.sample(1000).ids for _ in range(100)])
    assert float((ids >= capacity // 2).float().mean()) == pytest.approx(1 / 3, abs=0.006)
    independent = torch.cat([buffer.sample(1).ids for _ in range(10_000)])
    assert float((independent >= capacity // 2).float().mean()) == pytest.approx(1 / 3, abs=0.019)


def test_F23_a_million_equal_leaves_have_the_right_sum() -> None:
    count = 2**20
    buffer = filled(count, count)
    buffer.update_priorities(np.arange(count), np.full(count, 0.001))
    assert root(buffer) == pytest.approx(1048.576, rel=1e-7)


def test_F24_every_slot_of_a_large_ring_can_be_drawn() -> None:
    capacity = 2**25
    buffer = uniform(capacity, fields=BYTES)
    buffer._state.words[w.NEXT_ID] = capacity  # as if written
    ids = torch.cat([buffer.sample(1000).ids for _ in range(100)])
    assert float((ids % 2).float().mean()) == pytest.approx(0.5, abs=0.007)
    assert 0 <= int(ids.min()) <= int(ids.max()) < capacity
    counts = np.bincount(ids.numpy() >> 20, minlength=32)
    assert p_value(counts, np.ones(32)) > FALSE_ALARM
