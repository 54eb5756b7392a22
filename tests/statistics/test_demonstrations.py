"""Demonstrations: never overwritten, and drawn as often as they should be.

Shares are exact, so they are counted. Frequencies inside the two parts are judged by Pearson's
test, which a right sampler fails for one seed in a million (`FALSE_ALARM`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from relive import Proportional, RankBased, Recent, ReplayBuffer, Uniform
from tests.faults.tagged import FIELDS, rows
from tests.statistics.chi_square import FALSE_ALARM, p_value

if TYPE_CHECKING:
    from relive.sampling import Sampler

PINNED, RING = 20, 40
SAMPLERS = {
    "uniform": Uniform(),
    "proportional": Proportional(alpha=0.7, eps=0.0),
    "rank": RankBased(alpha=0.7, resort_every=1),
}


@pytest.fixture(params=SAMPLERS.values(), ids=SAMPLERS.keys())
def sampler(request: pytest.FixtureRequest) -> Sampler:
    return request.param


def pinned(sampler: Sampler, online: int, **settings: object) -> ReplayBuffer:
    """Rows 0 ... PINNED - 1 are demonstrations; so many follow into a ring of RING rows."""
    buffer = ReplayBuffer(PINNED + RING, FIELDS, sampler=sampler, **settings)
    buffer.extend(**rows(range(PINNED)))
    buffer.pin_demonstrations(PINNED)
    buffer.extend(**rows(range(PINNED, PINNED + online)))
    return buffer


def is_demonstration(buffer: ReplayBuffer, batch_size: int) -> np.ndarray:
    """Of each row of the next batch."""
    return buffer.sample(batch_size).ids.numpy() < PINNED


def test_demonstrations_survive_three_turns_of_the_ring(sampler: Sampler) -> None:
    buffer = pinned(sampler, 3 * RING + 7)
    ids = [*range(PINNED), *range(PINNED + 2 * RING + 7, PINNED + 3 * RING + 7)]
    assert buffer.live_ids().tolist() == ids
    held, written = buffer.rows(range(PINNED)), rows(range(PINNED))
    for name in ("obs", "action", "reward", "next_obs", "terminated"):
        np.testing.assert_array_equal(getattr(held, name).numpy(), written[name])
    batch = buffer.sample(1000)
    assert set(batch.ids.tolist()) <= set(ids)
    np.testing.assert_array_equal(batch.obs.numpy(), batch.ids.numpy())
    buffer.check()


@pytest.mark.parametrize(("name", "new"), [("proportional", 2.0**0.7), ("rank", np.inf)])
def test_priorities_of_demonstrations_survive_too_and_new_rows_have_none_of_them(
    name: str, new: float
) -> None:
    buffer = pinned(SAMPLERS[name], 0)
    buffer.update_priorities(range(PINNED), np.linspace(1, 2, PINNED))
    before = buffer.priorities(range(PINNED)).tolist()
    for first in range(PINNED, PINNED + 3 * RING + 7, 7):  # 7 rows a call, some across the seam
        buffer.extend(**rows(range(first, first + 7)))
    assert buffer.priorities(range(PINNED)).tolist() == before
    online = buffer.priorities(buffer.live_ids()[PINNED:]).tolist()
    assert online == pytest.approx([new] * RING)


def test_until_another_row_is_there_all_are_demonstrations(sampler: Sampler) -> None:
    buffer = pinned(sampler, 0)
    assert is_demonstration(buffer, 64).tolist() == [True] * 64
    buffer.extend(**rows([PINNED]))
    assert is_demonstration(buffer, 64).sum() == 32


@pytest.mark.parametrize("batch_size", [2, 6, 64, 256, 1000])
def test_half_of_every_batch_is_half_of_it(batch_size: int, sampler: Sampler) -> None:
    buffer = pinned(sampler, 3 * RING + 7)
    assert {int(is_demonstration(buffer, batch_size).sum()) for _ in range(50)} == {batch_size // 2}


@pytest.mark.parametrize(
    ("batch_size", "fraction"),
    [(7, 0.5), (255, 0.5), (1, 0.3), (10, 0.3), (32, 0.3), (64, 1 / 3), (5, 0.99), (16, 0.01)],
)
def test_a_share_that_is_no_whole_number_is_carried_over(
    batch_size: int, fraction: float, sampler: Sampler
) -> None:
    buffer = pinned(sampler, RING, demo_fraction=fraction)
    drawn = 0
    for number in range(1, 1001):
        drawn += int(is_demonstration(buffer, batch_size).sum())
        assert -1e-9 < number * batch_size * fraction - drawn < 1 + 1e-9
    assert abs(drawn - 1000 * batch_size * fraction) <= 1


@pytest.mark.parametrize(("fraction", "share"), [(0.0, 0), (1.0, 48)])
def test_a_batch_may_be_all_of_one_kind(fraction: float, share: int, sampler: Sampler) -> None:
    buffer = pinned(sampler, RING, demo_fraction=fraction)
    assert {int(is_demonstration(buffer, 48).sum()) for _ in range(20)} == {share}


def test_draws_that_do_not_train_have_the_share_too_and_leave_the_carry_alone() -> None:
    one, other = (pinned(Uniform(), RING, demo_fraction=0.3) for _ in range(2))
    for _ in range(20):
        assert (one.sample(10, train=False).ids < PINNED).sum() == 3
        one.sample(7, train=False)
        assert is_demonstration(one, 7).tolist() == is_demonstration(other, 7).tolist()


# What each of m slices of a batch holds; where the share of a batch is no multiple of m, slices
# differ by one.
@pytest.mark.parametrize(
    ("batch_size", "fraction", "slices"),
    [(64, 0.5, 2), (64, 0.5, 4), (64, 0.5, 32), (64, 0.25, 16), (256, 0.75, 64), (60, 0.3, 6)],
)
def test_equal_slices_of_a_batch_hold_equal_shares(
    batch_size: int, fraction: float, slices: int, sampler: Sampler
) -> None:
    buffer = pinned(sampler, RING, demo_fraction=fraction)
    for _ in range(20):
        shares = is_demonstration(buffer, batch_size).reshape(slices, -1).sum(1)
        assert shares.tolist() == [round(batch_size * fraction / slices)] * slices


@pytest.mark.parametrize("slices", [2, 4, 8, 16])
def test_slices_differ_by_one_where_the_share_cannot_be_divided(
    slices: int, sampler: Sampler
) -> None:
    buffer = pinned(sampler, RING, demo_fraction=0.3)
    for _ in range(20):
        shares = is_demonstration(buffer, 48).reshape(slices, -1).sum(1)
        assert shares.max() - shares.min() <= 1


# Frequencies inside each part. Errors of the demonstrations are a hundred times as large, which
# does not matter: a part knows nothing of the other. Ranks do go over all rows.
ERRORS = 10 ** np.random.default_rng(6).uniform(-1, 1, PINNED + RING)
ERRORS[:PINNED] *= 100
RANKS = (-ERRORS).argsort().argsort() + 1.0
LEAVES = {"uniform": ERRORS**0, "proportional": ERRORS**0.7, "rank": RANKS**-0.7}


def counts_by_row(name: str, batches: int, online: int, **settings: object) -> np.ndarray:
    """Draws in batches of 1000: of the demonstrations, then of the ring, oldest first."""
    buffer = pinned(SAMPLERS[name], online, **settings)
    if buffer.prioritized:
        buffer.update_priorities(buffer.live_ids(), ERRORS)
    ids = np.concatenate([buffer.sample(1000).ids.numpy() for _ in range(batches)])
    places = np.searchsorted(buffer.live_ids().numpy(), ids)
    return np.bincount(places, minlength=PINNED + RING)


@pytest.mark.parametrize("window", [None, Recent(15)], ids=["all", "the newest 15"])
@pytest.mark.parametrize("online", [RING, 2 * RING + 7], ids=["full", "with a seam"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_each_part_is_drawn_by_its_own_leaves(
    name: str, online: int, window: Recent | None
) -> None:
    counts = counts_by_row(name, 200, online, demo_fraction=0.3, window=window, seed=3)
    size = RING if window is None else 15
    assert counts[:PINNED].sum() == 60_000
    assert counts[PINNED:-size].sum() == 0
    assert p_value(counts[:PINNED], LEAVES[name][:PINNED]) > FALSE_ALARM
    assert p_value(counts[-size:], LEAVES[name][-size:]) > FALSE_ALARM


@pytest.mark.parametrize("name", SAMPLERS)
def test_in_one_pool_a_demonstration_is_a_row_like_any_other(name: str) -> None:
    counts = counts_by_row(name, 400, 2 * RING + 7, demo_fraction=None, seed=4)
    assert p_value(counts, LEAVES[name]) > FALSE_ALARM
