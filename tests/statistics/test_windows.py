"""Which rows a window draws from, and how often each of them comes up.

Two kinds of test. A batch of a few thousand rows from a window of at most 40 misses one of them
with a probability of e^-50 or less, so there the ages drawn must be exactly 1 ... c. And Pearson's
test on frequencies, which a right sampler fails for one seed in a million (`FALSE_ALARM`). The age
of the newest row is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from relive import Field, Linear, Proportional, RankBased, Recent, ReplayBuffer, Uniform
from tests.faults.tagged import BYTES, FIELDS, rows
from tests.statistics.chi_square import FALSE_ALARM, p_value

if TYPE_CHECKING:
    from relive.sampling import Sampler

MANY = 2000  # draws that miss none of 40 rows


def ages(buffer: ReplayBuffer, batch_size: int, written: int, **options: bool) -> np.ndarray:
    """Ages of the rows of a batch; those of demonstrations are left out."""
    ids = buffer.sample(batch_size, **options).ids.numpy()
    pinned = buffer.stats()["demonstrations"]
    return written - ids[ids >= pinned]


def windows(buffer: ReplayBuffer, written: int, batches: int) -> list[int]:
    """The size of the window of each of the next batches, all of which is seen."""
    found = []
    for _ in range(batches):
        seen = np.unique(ages(buffer, MANY, written))
        assert seen.tolist() == list(range(1, len(seen) + 1))
        found.append(len(seen))
    return found


def buffer_of(written: int, capacity: int = 40, **settings: object) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, FIELDS, **settings)
    buffer.extend(**rows(range(written)))
    return buffer


def eta_of(power: float) -> float:
    """Eta^1000 is the power, from above, so that what is whole stays so when it is rounded down."""
    return power ** (1 / 1000) * (1 + 1e-12)


# max(floor(40 eta^(1000 k / K)), 5) with eta^1000 = 1/16 and K = 8, thus 40 / sqrt(2)^k: 28.3, 20,
# 14.1, 10, 7.1, 5, 3.5, 2.5
ERE = Recent(eta=eta_of(1 / 16), c_min=5, updates=8)
SWEEP = [28, 20, 14, 10, 7, 5, 5, 5]


@pytest.mark.parametrize(
    "sampler", [Uniform(), Proportional(), RankBased()], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("written", [40, 47, 79, 203], ids="{} rows written".format)
def test_the_window_shrinks_over_a_sweep_and_the_next_begins_anew(
    written: int, sampler: Sampler
) -> None:
    buffer = buffer_of(written, window=ERE, sampler=sampler)
    assert windows(buffer, written, 20) == [*SWEEP, *SWEEP, *SWEEP[:4]]


def test_a_sweep_begun_by_hand_is_as_long_as_it_is_told() -> None:
    buffer = buffer_of(40, window=ERE)
    windows(buffer, 40, 3)
    buffer.start_sweep(4)
    assert windows(buffer, 40, 6) == [20, 10, 5, 5, 20, 10]
    buffer.start_sweep(8)
    assert windows(buffer, 40, 8) == SWEEP


def test_draws_that_do_not_train_leave_the_sweep_where_it_is() -> None:
    buffer = buffer_of(40, window=ERE)
    found = []
    for size in SWEEP:
        assert ages(buffer, MANY, 40, train=False).max() == size  # the window of the next sample
        assert set(buffer.sample_range(MANY, 0, 6).ids.tolist()) == set(range(6))  # and no window
        found += windows(buffer, 40, 1)
    assert found == SWEEP


@pytest.mark.parametrize(
    ("of", "sizes"),
    [
        ("present", [7, 5, 5, 5, 5, 5, 5, 5]),  # 10 / sqrt(2)^k
        ("capacity", [10, 10, 10, 10, 7, 5, 5, 5]),  # 40 / sqrt(2)^k, of which 10 are there
    ],
)
def test_while_the_ring_fills_N_is_what_it_was_said_to_be(of: str, sizes: list[int]) -> None:
    window = Recent(eta=ERE.eta, c_min=ERE.c_min, updates=ERE.updates, of=of)
    assert windows(buffer_of(10, window=window), 10, 8) == sizes


def test_the_window_is_all_there_is_until_the_ring_holds_c_min_rows() -> None:
    assert windows(buffer_of(3, window=ERE), 3, 3) == [3, 3, 3]


def test_eta_may_rise_to_1_where_the_window_is_everything() -> None:
    # With K = 1000 the k-th window is 40 eta^k, and eta is 0 (nearly), 1/4, 1/2, 3/4, 1, 1.
    window = Recent(eta=Linear(1e-6, 1.0, 4), c_min=1, updates=1000)
    buffer = buffer_of(40, window=window)
    assert windows(buffer, 40, 6) == [1, 2, 5, 12, 40, 40]


@pytest.mark.parametrize("written", [40, 57, 175])
@pytest.mark.parametrize(("count", "size"), [(1, 1), (13, 13), (40, 40), (1000, 40)])
def test_a_fixed_window_stays(count: int, size: int, written: int) -> None:
    assert windows(buffer_of(written, window=Recent(count)), written, 3) == [size] * 3


@pytest.mark.parametrize("of", ["present", "capacity"])
def test_demonstrations_are_neither_counted_nor_aged(of: str) -> None:
    window = Recent(eta=ERE.eta, c_min=ERE.c_min, updates=ERE.updates, of=of)
    buffer = ReplayBuffer(50, FIELDS, window=window)
    buffer.extend(**rows(range(10)))
    buffer.pin_demonstrations(10)
    buffer.extend(**rows(range(10, 97)))  # 40 of them are left
    assert windows(buffer, 97, 8) == SWEEP


# The law of a sweep at full size: 1000 updates of 256 rows from 50,000, where c_min binds.

N, K, BATCH, C_MIN, ETA = 50_000, 1000, 256, 500, 0.994
C = np.maximum(np.floor(N * ETA ** (np.arange(1, K + 1) * 1000.0 / K)), C_MIN).astype(int)
PLACES = {
    "full": (0, N),
    "across the seam": (0, N * 12 // 5),
    "demonstrations": (1000, 1000 + N * 12 // 5),
}


def expected_draws(batch: int) -> np.ndarray:
    """Of the rows of age 1 ... N in a sweep: batch * sum over {k: c_k >= age} of 1 / c_k."""
    at_least = np.zeros(N + 1)
    np.add.at(at_least, C, batch / C)
    return at_least[::-1].cumsum()[::-1][1:]


def in_bins(expected: np.ndarray, least: float) -> list[int]:
    """First ages (from 0) of bins with at least so many draws each."""
    starts, draws = [0], 0.0
    for age, more in enumerate(expected.tolist()):
        if draws >= least:
            starts.append(age)
            draws = 0.0
        draws += more
    return starts if draws >= least else starts[:-1]


@pytest.fixture(scope="module", params=PLACES.values(), ids=PLACES.keys())
def sweep(request: pytest.FixtureRequest) -> list[np.ndarray]:
    """Ages drawn from the ring by each update of a sweep."""
    pinned, written = request.param
    window = Recent(eta=ETA, c_min=C_MIN, updates=K)
    buffer = ReplayBuffer(N + pinned, BYTES, window=window, demo_fraction=0.5, seed=11)
    buffer.extend(**bytes_rows(pinned))
    if pinned:
        buffer.pin_demonstrations(pinned)
    buffer.extend(**bytes_rows(written - pinned))
    batch = 2 * BATCH if pinned else BATCH  # of which half are from the ring
    found = [ages(buffer, batch, written) for _ in range(K)]
    assert {len(drawn) for drawn in found} == {BATCH}
    return found


def bytes_rows(count: int) -> dict[str, np.ndarray]:
    """So many rows, all alike."""
    zeros = np.zeros(count, np.uint8)
    names = ("obs", "action", "next_obs")
    return {**dict.fromkeys(names, zeros), "reward": zeros / 1.0, "terminated": zeros > 0}


def test_the_clamp_binds_in_the_sweep() -> None:
    assert C[:3].tolist() == [49_700, 49_401, 49_105]
    assert (C == C_MIN).sum() == 236


def test_no_batch_of_a_sweep_holds_a_row_older_than_its_window(sweep: list[np.ndarray]) -> None:
    assert all(drawn.min() >= 1 for drawn in sweep)
    assert all(drawn.max() <= c for drawn, c in zip(sweep, C, strict=True))


def test_the_draws_of_each_age_in_a_sweep_follow_the_law(sweep: list[np.ndarray]) -> None:
    expected = expected_draws(BATCH)
    assert expected.sum() == pytest.approx(K * BATCH)
    counts = np.bincount(np.concatenate(sweep) - 1, minlength=N)
    starts = in_bins(expected, 20)
    binned = np.add.reduceat(expected, starts)
    assert binned.min() >= 20
    assert len(binned) > 4000
    # Batches differ in their windows, so the counts vary a little less than Pearson's do.
    assert p_value(np.add.reduceat(counts, starts), binned) > FALSE_ALARM


def test_every_batch_of_a_sweep_is_spread_evenly_over_its_window(sweep: list[np.ndarray]) -> None:
    # The sum over a sweep hardly notices a window that is one update late: this does.
    places = np.concatenate([(drawn - 0.5) / c for drawn, c in zip(sweep, C, strict=True)])
    counts = np.histogram(places, 25, (0, 1))[0]  # 500 rows are 25 times 20
    expected = sum(np.histogram((np.arange(c) + 0.5) / c, 25, (0, 1))[0] / c for c in C)
    assert p_value(counts, expected) > FALSE_ALARM


# A weighting inside a window: leaf / sum of the leaves of the window.

ROWS, WINDOW = 300, 70
ERRORS = 10 ** np.random.default_rng(5).uniform(-1, 1, ROWS)  # oldest first
RANKS = (-ERRORS).argsort().argsort() + 1
WEIGHTINGS = {
    "proportional": (Proportional(alpha=0.7, eps=0.0), ERRORS**0.7),
    "proportional, independent": (
        Proportional(alpha=0.7, eps=0.0, stratified=False),
        ERRORS**0.7,
    ),
    "rank": (RankBased(alpha=0.7, resort_every=1), RANKS**-0.7),
    "rank, independent": (RankBased(alpha=0.7, resort_every=1, stratified=False), RANKS**-0.7),
}
SEAMS = {  # rows written: where the newest lie
    "at the end": ROWS,
    "in the middle": ROWS * 3 // 2,
    "on both sides of the seam": ROWS + 30,
}


@pytest.mark.parametrize("written", SEAMS.values(), ids=SEAMS.keys())
@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.parametrize("kind", ["fixed", "shrinking"])
def test_inside_a_window_rows_are_drawn_by_their_leaf(kind: str, name: str, written: int) -> None:
    sampler, leaves = WEIGHTINGS[name]
    shrinking = Recent(eta=eta_of(1 / 4), c_min=WINDOW, updates=4)  # 300 / sqrt(2)^k
    window, sizes = {
        "fixed": (Recent(WINDOW), [WINDOW]),
        "shrinking": (shrinking, [212, 150, 106, 75]),
    }[kind]
    buffer = buffer_of(written, ROWS, window=window, sampler=sampler, seed=12)
    buffer.update_priorities(buffer.live_ids(), ERRORS)
    counts = np.zeros((len(sizes), ROWS), int)
    for number in range(len(sizes) * 50):
        drawn = ages(buffer, 1000, written)
        counts[number % len(sizes)] += np.bincount(ROWS - drawn, minlength=ROWS)
    for found, size in zip(counts, sizes, strict=True):
        assert found[:-size].sum() == 0
        assert found.sum() == 50_000
        p = p_value(found[-size:], leaves[-size:])
        assert p > FALSE_ALARM
        if "independent" in name:
            assert p < 1 - FALSE_ALARM  # nor too good to be independent


@pytest.mark.parametrize("kernels", ["cpu", "reference"])
@pytest.mark.parametrize("eta", [1e-6, 0.001, 0.059, 0.11, 0.2])
def test_a_window_that_shrinks_to_nothing_at_once_has_its_fewest_rows(
    eta: float, kernels: Any
) -> None:
    window = Recent(eta=eta, c_min=10, updates=1)  # eta^1000 is below any float64
    fields = {"obs": Field(()), "action": Field(())}
    buffer = ReplayBuffer(1000, fields, sampler=Uniform(), window=window, kernels=kernels)
    zeros = np.zeros(1000, np.float32)
    buffer.extend(
        obs=zeros, action=zeros, reward=zeros, next_obs=zeros, terminated=np.zeros(1000, bool)
    )
    for _ in range(20):
        assert buffer.sample(20).ids.min() >= 990
