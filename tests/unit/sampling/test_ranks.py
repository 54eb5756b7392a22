"""Ranks: which order, when they are refreshed, what an update between sorts does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from relive import ConfigError, InputError, Linear, RankBased, ReplayBuffer
from tests.faults.tagged import FIELDS, write
from tests.unit.unchanged import refused

INF = math.inf
ADDED = 2**62


def ranked(kernels: str, number: int, *, capacity: int = 10, **sampler: Any) -> ReplayBuffer:
    """P follows from weights: they are (n P)^-1."""
    settings = {"alpha": 1.0, "beta": 1.0, "normalize": None, "weight_clip": INF}
    return write(
        ReplayBuffer(
            capacity, FIELDS, sampler=RankBased(**settings | sampler), kernels=kernels, gamma=0.5
        ),
        range(number),
    )


def ranks(buffer: ReplayBuffer) -> list[float]:
    """1 / leaf of the rows held, in the order of their ids: their ranks at alpha = 1."""
    batch = buffer.sample(2000, train=False)
    weight = dict(zip(batch.ids.tolist(), batch.weights.tolist(), strict=True))
    relative = [weight[row_id] for row_id in buffer.live_ids().tolist()]
    return [round(weight / min(relative), 4) for weight in relative]


ORDERS = [  # errors in order of ids -> ranks
    ([0.1, 9.0, 3.0, 0.5], [4, 1, 2, 3]),
    ([0.1, 9e9, 3.0, 0.5], [4, 1, 2, 3]),
    ([-9.0, 0.0, 3.0, -0.5], [1, 4, 2, 3]),
    ([1.0, 1.0, 1.0, 1.0], [4, 3, 2, 1]),  # newer first
    ([2.0, 1.0, 2.0, 1.0], [2, 4, 1, 3]),
    ([0.0, -0.0, 0.0, 1e-45], [4, 3, 2, 1]),
    ([1e-38, 1e-39, 3e38, 1e-45], [2, 3, 1, 4]),
    ([5.0], [1]),
    ([5.0, 7.0], [2, 1]),
    ([7.0, 5.0, 6.0], [1, 3, 2]),
]


@pytest.mark.parametrize(("errors", "expected"), ORDERS)
def test_ranks_fall_with_the_error(kernels: str, errors: list[float], expected: list[int]) -> None:
    buffer = ranked(kernels, len(errors), resort_every=1)
    buffer.update_priorities(range(len(errors)), errors)
    assert ranks(buffer) == expected
    assert buffer.priorities(range(len(errors))).tolist() == pytest.approx(
        [abs(error) for error in torch.tensor(errors).tolist()]
    )
    buffer.check()


@pytest.mark.parametrize("number", [1, 2, 3, 10])
def test_rows_are_alike_before_the_first_sort(kernels: str, number: int) -> None:
    buffer = ranked(kernels, number, resort_every=1)
    assert ranks(buffer) == [1] * number
    assert buffer.priorities(buffer.live_ids()).tolist() == [INF] * number
    assert buffer.stats()["sorts"] == 0


def test_rows_never_updated_come_first_at_a_sort_the_newer_before_the_older(kernels: str) -> None:
    buffer = ranked(kernels, 5, resort_every=1)
    buffer.update_priorities([0, 3], [3e38, 1.0])
    assert ranks(buffer) == [4, 3, 2, 5, 1]


def test_a_new_row_is_drawn_as_the_first_until_the_next_sort(kernels: str) -> None:
    buffer = ranked(kernels, 3, resort_every=1)
    buffer.update_priorities([0, 1, 2], [1.0, 2.0, 3.0])
    write(buffer, [3, 4])
    assert ranks(buffer) == [3, 2, 1, 1, 1]
    buffer.update_priorities([0], [1.0])
    assert ranks(buffer) == [5, 4, 3, 2, 1]


def test_ranks_stay_until_it_is_time_to_sort(kernels: str) -> None:
    buffer = ranked(kernels, 3, resort_every=3)
    seen = []
    for errors in ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 3.0, 1.0]) * 2:
        buffer.update_priorities([0, 1, 2], errors)
        seen.append((buffer.stats()["sorts"], ranks(buffer)))
        assert buffer.priorities([0, 1, 2]).tolist() == errors
    assert seen == [
        (0, [1, 1, 1]),
        (0, [1, 1, 1]),
        (1, [2, 1, 3]),
        (1, [2, 1, 3]),
        (1, [2, 1, 3]),
        (2, [2, 1, 3]),
    ]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.7, 1.0, 2.0])
def test_a_leaf_is_its_rank_to_the_power_of_minus_alpha(kernels: str, alpha: float) -> None:
    buffer = ranked(kernels, 10, resort_every=1, alpha=alpha, stratified=False)
    buffer.update_priorities(range(10), [10.0 - t for t in range(10)])
    leaves = torch.arange(1.0, 11.0, dtype=torch.float64) ** -alpha
    batch = buffer.sample(3000)
    expected = 1 / (10 * leaves / leaves.sum())
    assert torch.allclose(batch.weights.double(), expected[batch.ids], rtol=1e-5)


def test_the_last_of_several_errors_for_a_row_decides(kernels: str) -> None:
    buffer = ranked(kernels, 3, resort_every=1)
    buffer.update_priorities([0, 1, 2, 0, 2], [9.0, 2.0, 9.0, 3.0, 1.0])
    assert buffer.priorities([0, 1, 2]).tolist() == [3, 2, 1]


def test_late_errors_are_skipped_and_counted_and_unknown_ids_refused(kernels: str) -> None:
    buffer = ranked(kernels, 13, resort_every=1)
    buffer.update_priorities([0, 2, 3], [5.0, 5.0, 5.0])
    assert buffer.stats()["stale_updates"] == 2
    assert buffer.priorities(buffer.live_ids()).tolist() == [5.0, *[INF] * 9]
    with refused(buffer, InputError, r"ids lie in \[0, 13\)"):
        buffer.update_priorities([3, 13], [1.0, 1.0])
    write(buffer, [13])  # overwrites row 3, and its error
    assert buffer.priorities([13]).tolist() == [INF]


BAD = {"keep": [2.0, 5.0, 7.0], "max": [7.0, 7.0, 7.0]}


@pytest.mark.parametrize("bad_priority", BAD)
def test_a_bad_error_keeps_the_old_one_or_takes_the_largest(
    kernels: str, bad_priority: str
) -> None:
    buffer = ranked(kernels, 3, resort_every=1, bad_priority=bad_priority)
    buffer.update_priorities([0, 1, 2], [2.0, 5.0, 7.0])
    buffer.update_priorities([0, 1], [math.nan, -INF])
    assert buffer.priorities([0, 1, 2]).tolist() == BAD[bad_priority]
    assert buffer.stats()["bad_priorities"] == 2


def test_a_bad_error_before_any_other_leaves_a_row_as_a_new_one(kernels: str) -> None:
    buffer = ranked(kernels, 3, resort_every=1, bad_priority="max")
    buffer.update_priorities([0, 1, 2], [INF, 2.0, 1.0])
    assert buffer.priorities([0, 1, 2]).tolist() == [INF, 2, 1]
    assert buffer.stats()["max_priority"] == 2
    buffer.update_priorities([0], [math.nan])
    assert buffer.priorities([0, 1, 2]).tolist() == [2, 2, 1]


def test_a_bad_error_may_be_refused(kernels: str) -> None:
    buffer = ranked(kernels, 3, resort_every=1, bad_priority="raise")
    for bad in (math.nan, INF, -INF):
        with refused(buffer, InputError, "NaN or infinite"):
            buffer.update_priorities([0, 1], [1.0, bad])
    for bad in (math.nan, -INF, -1.0):
        with refused(buffer, InputError, "NaN or infinite"):
            buffer.update_priorities([0, 1], priorities=[1.0, bad])


def test_writing_back_what_was_read_changes_no_rank(kernels: str) -> None:
    buffer = ranked(kernels, 5, resort_every=1, bad_priority="raise")
    buffer.update_priorities([0, 3, 4], [3.0, 1.0, 2.0])
    before, largest = ranks(buffer), buffer.stats()["max_priority"]
    ids = buffer.live_ids()
    buffer.update_priorities(ids, priorities=buffer.priorities(ids))  # infinity: not updated yet
    assert ranks(buffer) == before
    assert buffer.stats()["max_priority"] == largest == 3
    assert buffer.priorities(ids).tolist() == [3, INF, INF, 1, 2]


def test_nothing_is_left_of_ranks_after_a_clear(kernels: str) -> None:
    buffer = ranked(kernels, 5, resort_every=1)
    buffer.update_priorities(range(5), [1.0, 2.0, 3.0, 4.0, 5.0])
    buffer.clear()
    buffer.update_priorities([0], [1.0])  # a sort of nothing
    buffer.check()
    write(buffer, range(3))
    assert ranks(buffer) == [1, 1, 1]
    assert buffer.priorities(buffer.live_ids()).tolist() == [INF] * 3
    assert buffer.stats()["max_priority"] is None


def test_demonstrations_and_other_rows_are_ranked_together(kernels: str) -> None:
    sampler = RankBased(alpha=1.0, beta=1.0, normalize=None, resort_every=1, weight_clip=INF)
    buffer = ReplayBuffer(10, FIELDS, sampler=sampler, kernels=kernels, demo_fraction=None)
    write(buffer, range(3))
    buffer.pin_demonstrations(3, reserve=2)
    write(buffer, range(3, 6))
    buffer.update_priorities(range(6), [3.0, 1.0, 3.0, 4.0, 2.0, 3.0])
    copy = int(buffer.pin([3]))
    assert buffer.priorities([copy]).tolist() == [4]
    buffer.update_priorities([1], [1.0])
    assert ranks(buffer) == [5, 7, 4, 2, 6, 3, 1]  # the copy has the highest id, so it is newer
    buffer.check()


def test_a_full_ring_is_ranked_over_its_seam(kernels: str) -> None:
    buffer = ranked(kernels, 37, capacity=20, resort_every=1)
    buffer.update_priorities(range(17, 37), [1.0] * 20)
    assert ranks(buffer) == list(range(20, 0, -1))


REFUSED = [
    ({"alpha": -0.1}, "alpha lies in"),
    ({"alpha": 2.1}, "alpha lies in"),
    ({"alpha": True}, "alpha lies in"),
    ({"beta": 1.1}, "beta lies in"),
    ({"beta": Linear(0.5, 1.5, 10)}, "beta lies in"),
    ({"resort_every": 0}, "resort_every is a whole number >= 1"),
    ({"resort_every": 10.0}, "resort_every is a whole number >= 1"),
    ({"normalize": "max"}, "normalize is one of"),
    ({"stratified": 1}, "stratified is True or False"),
    ({"mixture_weights": None}, "mixture_weights is True or False"),
    ({"bad_priority": "skip"}, "bad_priority is one of"),
    ({"weight_clip": 0.0}, "weight_clip lies in"),
    ({"uniform_share": 1.5}, "uniform_share lies in"),
    ({"uniform_share": math.nan}, "uniform_share lies in"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_a_setting_of_ranks_that_cannot_work_is_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        RankBased(**settings)
