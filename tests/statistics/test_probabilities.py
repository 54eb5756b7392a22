"""The probabilities that the tree stands for, and the weights that undo them, against float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relive import Linear, Proportional, ReplayBuffer
from relive.ops import words as w
from relive.ops.tree import reference as tree
from tests.faults.tagged import BYTES
from tests.properties.calls import FIELDS, steps
from tests.statistics.test_frequencies import filled, with_leaves

LARGEST_DISTANCE = 1e-6


def distance(buffer: ReplayBuffer) -> float:
    """Total-variation distance between what is drawn and leaf / sum of leaves in float64."""
    state = buffer._state
    leaves = state.leaves.double().numpy()
    masses = tree.masses(state.leaves, state.word(w.SCALE)).double().numpy()
    return float(np.abs(masses / state.word(w.TOTAL) - leaves / leaves.sum()).sum() / 2)


def sweeps(rng: np.random.Generator, capacity: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Name, which rows, which errors: 24 decades, up and down, slowly and at once."""
    some = rng.permutation(capacity)[: capacity // 3 + 1]
    every = np.arange(capacity)
    found = []
    for center in (0, 6, -6, 11, -11, 12, -12, 3, -9, 12):
        spread = 10 ** rng.uniform(center - 0.5, center + 0.5, capacity)
        found.append((f"some rows to 1e{center}", some, spread[some]))
        found.append((f"all rows to 1e{center}", every, spread))
    found += [
        (f"all rows at once to 1e{center}", every, 10.0**center * (1 + every / 7))
        for center in (12, -12, 12, -12, 12, -6, 6, -12)
    ]
    outlier = np.full(capacity, 1e-12)
    outlier[0] = 1e12
    wide = 10 ** rng.uniform(-12, 12, capacity)
    found += [
        ("one outlier", every, outlier),
        ("the outlier gone", every[:1], np.array([1.3e-12])),
        ("24 decades side by side", every, wide),
        ("all but the smallest 0", every, np.where(wide == wide.min(), wide, 0)),
        ("one more beside it", every[-1:], np.array([wide.min() / 3])),
    ]
    return found


@pytest.mark.parametrize("capacity", [1, 4, 300, 5000])
def test_probabilities_are_right_after_any_update_over_24_decades(capacity: int) -> None:
    sampler = Proportional(alpha=1.0, eps=0.0)
    buffer = filled(capacity, capacity, sampler, seed=0)
    distances = {}
    for number, (name, rows, errors) in enumerate(sweeps(np.random.default_rng(0), capacity)):
        buffer.update_priorities(rows, errors)
        distances[f"{number}: {name}"] = distance(buffer)
    worst = max(distances, key=distances.__getitem__)
    assert distances[worst] <= LARGEST_DISTANCE, worst
    buffer.check()


# Four rows from one leaf to another, in one call; by how much they differ.
COLLAPSES = [(40, 12), (40, 0), (40, -10), (40, -21), (40, -22), (40, -23), (40, -38), (20, -38)]


@pytest.mark.parametrize(("high", "low"), COLLAPSES)
def test_a_collapse_of_the_total_is_mended_in_the_same_call(high: int, low: int) -> None:
    buffer = filled(4, 4, Proportional(alpha=1.0, eps=0.0), seed=0)
    buffer.update_priorities([0, 1, 2, 3], [2.0**high] * 4)
    buffer.update_priorities([0, 1, 2, 3], 2.0**low * np.float32([1 / 3, 1 / 7, 0.9, 1]))
    assert distance(buffer) <= LARGEST_DISTANCE
    buffer.check()


def test_a_run_of_random_updates_never_drifts() -> None:
    rng = np.random.default_rng(1)
    buffer = filled(777, 1500, Proportional(alpha=1.0, eps=0.0), seed=0)
    for step in range(500):
        ids = rng.choice(buffer.live_ids().numpy(), 64)
        buffer.update_priorities(ids, 10 ** rng.normal(12 * np.sin(step / 40), 1, 64))
        assert distance(buffer) <= LARGEST_DISTANCE
    buffer.check()
    assert buffer.stats()["rescales"] > 10


def any_update(
    rng: np.random.Generator, ids: np.ndarray, leaves: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and leaves: a few rows, one row, all rows, or all the large ones at once."""
    kind = rng.choice(["few", "one", "all", "fall", "zeros"], p=[0.6, 0.2, 0.05, 0.1, 0.05])
    center, spread = rng.uniform(-10, 10), rng.choice([0.01, 0.5, 5.0])
    if kind == "fall":  # what lies above some bound, to about the smallest there can be
        falling = leaves >= leaves.max() * 10 ** rng.uniform(-24, 0)
        low = max(2.0**-40, leaves.max() * 10 ** -rng.uniform(20, 24))
        return ids[falling], np.float32(low * rng.uniform(1, 2, falling.sum()))
    if kind == "zeros":
        some = rng.choice(ids, len(ids) // 2)
        return some, np.zeros(len(some), np.float32)
    chosen = ids if kind == "all" else rng.choice(ids, 1 if kind == "one" else 32)
    exponents = np.clip(rng.normal(center, spread, len(chosen)), -12, 12)
    return chosen, np.float32(10**exponents)


@pytest.mark.parametrize(
    ("capacity", "updates"),
    [
        (2, 500),
        (300, 2000),
        (5000, 500),
        pytest.param(300, 300_000, marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
        pytest.param(20_000, 20_000, marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    ],
)
def test_probabilities_are_right_after_every_one_of_many_updates_of_any_kind(
    capacity: int, updates: int
) -> None:
    rng = np.random.default_rng(capacity)
    buffer = filled(capacity, capacity, Proportional(alpha=1.0, eps=0.0), seed=0)
    falls, before = 0, float(capacity)
    for number in range(updates):
        ids = buffer.live_ids().numpy()
        chosen, leaves = any_update(rng, ids, buffer.priorities(ids).double().numpy())
        buffer.update_priorities(chosen, priorities=leaves)
        if number % 50 == 49:  # and new rows at the largest leaf so far
            buffer.extend(**steps(rng, int(rng.integers(1, 4))))
        if buffer._state.word(w.TOTAL):  # or nothing can be drawn
            assert distance(buffer) <= LARGEST_DISTANCE, number
        after = float(buffer._state.leaves.double().sum())
        falls, before = falls + (0 < after < before * 1e-20), after
    assert falls >= updates / 500  # by 20 decades and more
    assert buffer.stats()["rescales"] > updates / 50
    assert buffer.stats()["clamped_priorities"] == 0
    buffer.check()


def test_a_total_that_falls_slowly_comes_near_the_bound_and_not_above_it() -> None:
    # Where the distance is largest: 2^20 rows, half of them so small that their mass is rounded up
    # to 1, and a total that falls until the scale must change. Then it is nearly 2^-21.
    capacity = 2**20
    buffer = ReplayBuffer(capacity, BYTES, sampler=Proportional(alpha=1.0, eps=0.0))
    buffer._state.words[w.NEXT_ID] = capacity  # as if written
    ids = torch.arange(capacity)
    large = 1 + torch.rand(capacity, generator=torch.Generator().manual_seed(0))
    distances = []
    for halvings in range(14):
        leaves = torch.where(ids % 2 > 0, large * 2.0 ** (20 - halvings), 2.0**-40)
        buffer.update_priorities(ids, priorities=leaves)
        distances.append(distance(buffer))
    assert max(distances) <= LARGEST_DISTANCE
    assert max(distances) > 1e-7
    assert buffer.stats()["rescales"] >= 2  # the second because of the bound


@pytest.mark.parametrize("beta", [0.0, 0.4, 0.7, 1.0])
@pytest.mark.parametrize("normalize", [None, "batch", "buffer"])
def test_weights_follow_the_formula(normalize: str | None, beta: float) -> None:
    leaves = np.float32(10 ** np.random.default_rng(4).uniform(-3, 3, 500)).astype(float)
    settings = {"normalize": normalize, "beta": beta, "weight_clip": float("inf")}
    buffer = with_leaves(leaves, **settings)
    batch = buffer.sample(4096)
    drawn = leaves[batch.ids.numpy() - int(buffer.live_ids()[0])]
    probabilities = drawn / leaves.sum()
    weights = (500 * probabilities) ** -beta
    if normalize == "batch":
        weights /= weights.max()
    elif normalize == "buffer":
        weights /= (500 * leaves.min() / leaves.sum()) ** -beta
    np.testing.assert_allclose(batch.weights.numpy(), weights, rtol=1e-6)


def test_rows_that_cannot_be_drawn_count_as_rows_but_not_for_the_normaliser() -> None:
    leaves = np.array([0.0, 1.0, 3.0, 0.0])
    plain = with_leaves(leaves, beta=1.0, normalize=None).sample(64)
    small, large = np.float32([4 * 1 / 4, 4 * 3 / 4])
    assert set(plain.weights.tolist()) == {1 / small, np.float32(1 / large)}
    scaled = with_leaves(leaves, beta=1.0, normalize="buffer").sample(64)
    assert set(scaled.weights.tolist()) == {1.0, float(np.float32(1 / 3))}


def test_weights_above_the_clip_are_clipped_and_counted() -> None:
    buffer = with_leaves(np.array([1.0, 99.0]), beta=1.0, normalize=None, weight_clip=10.0)
    batch = buffer.sample(1000)  # 10 strata of the first row, of raw weight 50
    assert sorted(set(batch.weights.tolist())) == [pytest.approx(50 / 99), 10.0]
    assert (batch.weights == 10).sum() == buffer.stats()["clipped_weights"] == 10


BETAS = [0.40, 0.46, 0.52, 0.58, 0.64, 0.70, 0.76, 0.82, 0.88, 0.94, 1.00, 1.00, 1.00]


@pytest.mark.parametrize(("number", "beta"), list(enumerate(BETAS)))
def test_beta_rises_from_04_to_1_in_500_000_samples(number: int, beta: float) -> None:
    buffer = ReplayBuffer(4, FIELDS, sampler=Proportional())
    buffer.set_progress(50_000 * number)
    assert buffer.stats()["beta"] == pytest.approx(beta, abs=1e-12)


@pytest.mark.parametrize("kernels", ["reference", "cpu"])
def test_the_kth_training_sample_uses_the_beta_of_k_minus_1(kernels: str) -> None:
    sampler = Proportional(alpha=1.0, eps=0.0, normalize=None, beta=Linear(0.0, 1.0, 4))
    buffer = ReplayBuffer(2, FIELDS, sampler=sampler, kernels=kernels)
    buffer.extend(**steps(np.random.default_rng(0), 2))
    buffer.update_priorities([0, 1], [1.0, 3.0])
    seen = []
    for _ in range(6):
        buffer.sample(4, train=False)  # leaves progress alone
        seen.append(float(buffer.sample(4).weights.max()))  # of the row with P = 1/4: 2^beta
    assert np.log2(seen) == pytest.approx([0, 0.25, 0.5, 0.75, 1, 1], abs=1e-6)
    assert buffer.stats()["progress"] == 6
    buffer.set_progress(2)
    assert float(buffer.sample(4).weights.max()) == pytest.approx(2**0.5)


# Where the mean of 900 rewards of 0 and 100 of 10 settles when rows are drawn by their error.
BIASES = [(0.6, 0.0, 2.021), (0.6, 0.4, 1.658), (1.0, 0.0, 2.5), (0.6, 1.0, 1.0)]


@pytest.mark.parametrize(("alpha", "beta", "fixed_point"), BIASES)
def test_the_bias_of_prioritized_draws_and_its_correction_are_as_computed(
    alpha: float, beta: float, fixed_point: float
) -> None:
    exact = 10 / (1 + 9 ** (1 / (1 + alpha * (1 - beta))))
    assert exact == pytest.approx(fixed_point, abs=5e-4)
    rewards = np.repeat([0.0, 10.0], [900, 100])
    settings = {"alpha": alpha, "beta": beta, "eps": 0.0, "normalize": None, "stratified": False}
    buffer = filled(1000, 1000, Proportional(weight_clip=float("inf"), **settings), seed=0)
    buffer.update_priorities(buffer.live_ids(), rewards - exact)
    batch = buffer.sample(100_000)
    gradients = batch.weights.numpy() * (rewards[batch.ids.numpy()] - exact)
    error = gradients.std() / np.sqrt(len(gradients))
    assert abs(gradients.mean()) < 5 * error  # 5 standard deviations: one seed in 1.7 million


def test_ages_and_uses_are_counted_in_bins_of_powers_of_two() -> None:
    buffer = ReplayBuffer(8, FIELDS, track_reuse=True, seed=3)
    rng = np.random.default_rng(0)
    uses: dict[int, int] = {}
    ages, reuses = np.zeros(64, int), np.zeros(64, int)
    for row_id in range(60):
        buffer.add(**steps(rng))
        uses[row_id] = 0
        if row_id >= 8:
            reuses[uses.pop(row_id - 8).bit_length()] += 1
        buffer.sample(16, train=False)  # does not count
        for drawn in buffer.sample(4).ids.tolist():
            uses[drawn] += 1
            ages[(row_id - drawn).bit_length()] += 1
    stats = buffer.stats()
    assert stats["age_counts"] == ages.tolist()
    for drawn in uses.values():  # rows still held
        reuses[drawn.bit_length()] += 1
    assert stats["reuse_counts"] == reuses.tolist()
    assert (sum(stats["age_counts"]), sum(stats["reuse_counts"])) == (240, 60)
    assert (stats["draws"], stats["samples"]) == (60 * 20, 120)
