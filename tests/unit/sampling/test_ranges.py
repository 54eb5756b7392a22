"""Draws from a range of ids, every row at once, and rows held out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from relive import (
    InputError,
    NotReadyError,
    Proportional,
    RankBased,
    Recent,
    ReliveError,
    ReplayBuffer,
    Uniform,
)
from tests.faults.tagged import FIELDS, rows, write
from tests.unit.unchanged import refused

ADDED = 2**62
END = 2**63 - 1
SAMPLERS = [Uniform(), Proportional(alpha=1.0, eps=0.0), RankBased(resort_every=1)]


def filled(kernels: str, number: int = 23, pinned: int = 0, **settings: Any) -> ReplayBuffer:
    """Capacity 10; with demonstrations also one copy, of row 1."""
    settings = {"capacity": 10, "sampler": SAMPLERS[0], **settings}
    buffer = ReplayBuffer(fields=FIELDS, kernels=kernels, gamma=0.5, **settings)
    write(buffer, range(pinned))
    if pinned:
        buffer.pin_demonstrations(pinned, reserve=2)
        buffer.pin([1])
    return write(buffer, range(pinned, number))


# sample_range


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("window", [None, Recent(2), Recent(eta=0.5, c_min=1)])
@pytest.mark.parametrize(
    ("start", "stop", "expected", "gone"),
    [
        (13, 23, range(13, 23), 0),
        (15, 18, range(15, 18), 0),
        (18, 22, range(18, 22), 0),  # over the end of the ring
        (22, 23, [22], 0),
        (20, 21, [20], 0),
        (22, 99, [22], 0),
        (0, END, range(13, 23), 13),
        (5, 15, [13, 14], 8),
    ],
)
def test_a_range_has_the_rows_with_these_ids_whatever_the_window(
    kernels: str,
    sampler: Any,
    window: Any,
    start: int,
    stop: int,
    expected: Any,
    gone: int,
) -> None:
    buffer = filled(kernels, sampler=sampler, window=window)
    for calls in (1, 2):
        batch = buffer.sample_range(300, start, stop)
        assert sorted(set(batch.ids.tolist())) == list(expected)
        assert torch.equal(batch.obs, batch.ids.float())
        assert buffer.stats()["range_rows_gone"] == calls * gone
    buffer.check()


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(
    ("start", "stop", "expected", "gone"),
    [
        (0, 3, [0, 1, 2], 0),
        (1, 2, [1], 0),
        (0, END, [0, 1, 2, 18, 19, 20, 21, 22, ADDED], 15),
        (2, 20, [2, 18, 19], 15),
        (20, ADDED + 1, [20, 21, 22, ADDED], 0),
        (ADDED, ADDED + 1, [ADDED], 0),
        (ADDED, END, [ADDED], 0),
        (23, END, [ADDED], 0),
    ],
)
def test_a_range_may_have_demonstrations_copies_and_others(
    kernels: str, sampler: Any, start: int, stop: int, expected: list[int], gone: int
) -> None:
    buffer = filled(kernels, pinned=3, sampler=sampler)
    ids = buffer.sample_range(400, start, stop).ids
    assert sorted(set(ids.tolist())) == expected
    assert buffer.stats()["range_rows_gone"] == gone


def test_rows_that_were_cleared_are_gone_too(kernels: str) -> None:
    buffer = filled(kernels)
    buffer.clear()
    write(buffer, [23])
    assert buffer.sample_range(3, 20, 30).ids.tolist() == [23, 23, 23]
    assert buffer.stats()["range_rows_gone"] == 3


def test_a_range_is_weighted_by_its_own_rows(kernels: str) -> None:
    sampler = Proportional(alpha=1.0, eps=0.0, beta=1.0, normalize=None)
    buffer = filled(kernels, 10, sampler=sampler)
    buffer.update_priorities(range(10), [1e6, *[1.0, 2.0, 5.0], 0.0, *[1e6] * 5])
    batch = buffer.sample_range(80, 1, 5)
    assert batch.ids.bincount(minlength=5).tolist() == [0, 10, 20, 50, 0]
    expected = {1: 8 / 4, 2: 8 / 8, 3: 8 / 20}  # (n P)^-1 with n = 4 and P = leaf / 8
    for row_id, weight in zip(batch.ids.tolist(), batch.weights.tolist(), strict=True):
        assert weight == pytest.approx(expected[row_id], rel=1e-6)


def test_a_range_is_no_training_sample(kernels: str) -> None:
    settings = {"sampler": SAMPLERS[1], "window": Recent(eta=0.999, c_min=1, updates=4)}
    plain, mixed = (filled(kernels, track_reuse=True, **settings) for _ in range(2))
    for _ in range(3):
        mixed.sample_range(7, 14, 20)
        assert torch.equal(plain.sample(16).ids, mixed.sample(16).ids)
    names = ("progress", "age_counts", "reuse_counts", "beta")
    a, b = plain.stats(), mixed.stats()
    assert {name: a[name] for name in names} == {name: b[name] for name in names}
    assert (a["samples"], b["samples"], b["draws"]) == (3, 6, 69)


def test_a_range_shares_its_random_stream_with_other_draws_that_do_not_train(kernels: str) -> None:
    a, b = filled(kernels), filled(kernels)
    first = a.sample(8, train=False).ids
    assert torch.equal(b.sample_range(8, 0, END).ids, first)
    assert torch.equal(b.sample(8, train=False).ids, a.sample_range(8, 13, 23).ids)
    b.reseed(0)
    assert torch.equal(b.sample_range(8, 0, END).ids, first)


def test_a_range_of_rows_written_in_several_lanes(kernels: str) -> None:
    buffer = ReplayBuffer(
        20, FIELDS, kernels=kernels, num_envs=2, n_step=3, gamma=0.5, autoreset="disabled"
    )
    for t in range(9):
        buffer.add(
            obs=[t, 100 + t],
            action=[0, 1],
            reward=[2.0**t, 0.0],
            next_obs=[t, t],
            terminated=[False, False],
            truncated=[False, False],
        )
    batch = buffer.sample_range(200, 4, 7)  # rows of a time come together: env 0, then env 1
    assert sorted(set(batch.obs.tolist())) == [2, 3, 102]
    expected = {2: 12, 3: 24, 102: 0}
    assert [expected[obs] for obs in batch.obs.tolist()] == batch.reward.tolist()


def test_a_range_can_be_drawn_into_a_batch(kernels: str) -> None:
    buffer = filled(kernels)
    out = buffer.empty_batch(4)
    assert buffer.sample_range(4, 15, 16, out=out) is out
    assert out.ids.tolist() == [15] * 4
    with refused(buffer, InputError, r"this buffer's empty_batch\(5\)"):
        buffer.sample_range(5, 15, 16, out=out)


NO_ID = [-1, 1.0, True, None, "3", 2**63, 10**30, float("nan")]
REFUSED = [
    *[((2, start, 20), "start is an id, a whole number >= 0") for start in NO_ID],
    *[((2, 15, stop), "stop is an id, a whole number >= 0") for stop in NO_ID],
    *[((size, 15, 20), "batch_size is a whole number >= 1") for size in (0, -1, 2.0, True, None)],
    ((2, 0, 0), r"no row has an id in \[0, 0\); the ring holds \[13, 23\)"),
    ((2, 15, 15), r"no row has an id in \[15, 15\); the ring holds \[13, 23\)"),
    ((2, 20, 15), r"no row has an id in \[20, 15\)"),
    ((2, 0, 13), r"no row has an id in \[0, 13\)"),
    ((2, 23, 99), r"no row has an id in \[23, 99\)"),
    ((2, ADDED, END), "no row has an id in"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_a_range_of_nothing_is_refused_and_counted_nowhere(
    kernels: str, arguments: Any, message: str
) -> None:
    buffer = filled(kernels, sampler=SAMPLERS[1])
    with refused(buffer, InputError, message):
        buffer.sample_range(*arguments)


def test_a_range_without_priority_is_refused_and_counted_nowhere(kernels: str) -> None:
    buffer = filled(kernels, sampler=SAMPLERS[1])
    buffer.update_priorities([13, 14], [0.0, 0.0])
    with refused(buffer, NotReadyError, "all priorities are 0"):
        buffer.sample_range(4, 0, 15)
    assert set(buffer.sample_range(4, 0, 16).ids.tolist()) == {15}


def test_a_range_of_an_empty_buffer_is_refused(kernels: str) -> None:
    buffer = filled(kernels, 0)
    with refused(buffer, InputError, r"no row has an id in \[0, 5\)"):
        buffer.sample_range(4, 0, 5)


# all, live_ids


def test_all_rows_come_in_the_order_of_their_ids(kernels: str) -> None:
    buffer = filled(kernels, pinned=3)
    batch = buffer.all()
    assert batch.ids.tolist() == [0, 1, 2, *range(18, 23), ADDED]
    assert torch.equal(batch.ids, buffer.live_ids())
    assert batch.obs.tolist() == [0, 1, 2, *range(18, 23), 1]
    assert batch.weights.tolist() == [1] * 9
    assert len(batch) == len(buffer)


def test_an_empty_buffer_has_no_rows_to_read(kernels: str) -> None:
    buffer = filled(kernels, 0)
    assert buffer.live_ids().tolist() == []
    with refused(buffer, NotReadyError, "no rows are held"):
        buffer.all()


# split


def test_the_side_of_a_row_follows_from_its_id_and_the_seed_alone(kernels: str) -> None:
    large = ReplayBuffer(4000, FIELDS, kernels=kernels)
    large.extend(**rows(range(2000)))
    train, holdout = large.split(0.3, seed=7)
    assert torch.equal(torch.cat([train, holdout]).sort().values, large.live_ids())
    assert torch.equal(train, train.sort().values)
    assert torch.equal(holdout, holdout.sort().values)
    assert len(holdout) == pytest.approx(600, abs=82)  # 4 standard deviations
    large.extend(**rows(range(1500)))
    assert torch.equal(large.split(0.3, seed=7)[1][: len(holdout)], holdout)
    small = filled(kernels, pinned=3)
    small_holdout = small.split(0.3, seed=7)[1].tolist()
    assert [i for i in small_holdout if i < ADDED] == [
        i for i in holdout.tolist() if i in small.live_ids().tolist()
    ]
    assert not torch.equal(large.split(0.3, seed=8)[1][: len(holdout)], holdout)


def test_a_larger_share_holds_out_the_same_rows_and_more(kernels: str) -> None:
    buffer = filled(kernels)
    sides = [set(buffer.split(share)[1].tolist()) for share in (0.0, 0.2, 0.5, 0.9, 1.0)]
    assert sides[0] == set()
    assert sides[-1] == set(range(13, 23))
    assert all(a <= b for a, b in itertools.pairwise(sides))


def test_nothing_is_split_into_nothing(kernels: str) -> None:
    assert [ids.tolist() for ids in filled(kernels, 0).split(0.5)] == [[], []]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-0.1,), "holdout lies in"),
        ((1.1,), "holdout lies in"),
        ((True,), "holdout lies in"),
        ((float("nan"),), "holdout lies in"),
        ((None,), "holdout lies in"),
        ((0.5, 1.5), "seed is a signed 64-bit integer"),
        ((0.5, True), "seed is a signed 64-bit integer"),
        ((0.5, 2**63), "seed is a signed 64-bit integer"),
    ],
)
def test_a_split_that_cannot_be_meant_is_refused(
    kernels: str, arguments: Any, message: str
) -> None:
    buffer = filled(kernels)
    with refused(buffer, ReliveError, message):
        buffer.split(*arguments)
