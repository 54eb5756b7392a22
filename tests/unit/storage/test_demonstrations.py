"""Rows in front of the ring: what is pinned, what is refused, ids, links, shares of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from relive import (
    ConfigError,
    InputError,
    Linear,
    Proportional,
    RankBased,
    Recent,
    ReplayBuffer,
    Uniform,
)
from relive.storage import ring
from tests.faults.tagged import FIELDS, by_slot, leaves, rows, write
from tests.unit.unchanged import refused

if TYPE_CHECKING:
    from pathlib import Path

ADDED = 2**62  # id of the first row that `pin` copies
SAMPLERS = [Uniform(), Proportional(alpha=1.0, eps=0.0), RankBased(resort_every=1)]


def buffer_of(
    kernels: str, demonstrations: int, online: int, *, capacity: int = 10, **settings: Any
) -> ReplayBuffer:
    """Rows 0, 1, ... of which the first are pinned."""
    reserve = settings.pop("reserve", 0)
    buffer = ReplayBuffer(capacity, FIELDS, kernels=kernels, gamma=0.5, **settings)
    write(buffer, range(demonstrations))
    buffer.pin_demonstrations(demonstrations, reserve=reserve)
    return write(buffer, range(demonstrations, demonstrations + online))


def links(buffer: ReplayBuffer, ids: Any) -> list[list[int]]:
    """Lane, distance to the row before and to the row after."""
    slots = ring.slots_of(buffer._state, torch.as_tensor(ids))
    return buffer._state.rows[slots, :12].contiguous().view(torch.int32).tolist()


# What is pinned


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_pinned_rows_keep_slot_id_and_value_whatever_is_written(kernels: str, sampler: Any) -> None:
    buffer = buffer_of(kernels, 3, 20, sampler=sampler)
    assert len(buffer) == 10
    assert by_slot(buffer) == [0, 1, 2, 17, 18, 19, 20, 21, 22, 16]
    assert buffer.live_ids().tolist() == [0, 1, 2, *range(16, 23)]
    assert buffer.rows([2, 0, 16]).obs.tolist() == [2, 0, 16]
    assert buffer.all().obs.tolist() == [0, 1, 2, *range(16, 23)]
    buffer.check()


def test_pinned_rows_keep_their_priorities(kernels: str) -> None:
    buffer = ReplayBuffer(10, FIELDS, kernels=kernels, sampler=SAMPLERS[1])
    write(buffer, range(3))
    buffer.update_priorities([0, 1, 2], [5.0, 6.0, 7.0])
    buffer.pin_demonstrations(3)
    write(buffer, range(3, 20))
    assert leaves(buffer) == [5, 6, 7] + [7] * 7


def test_rows_written_after_a_clear_can_be_pinned(kernels: str) -> None:
    buffer = buffer_of(kernels, 3, 4)
    buffer.clear()
    write(buffer, [7, 8])
    buffer.pin_demonstrations(2)
    write(buffer, range(9, 20))
    assert buffer.live_ids().tolist() == [7, 8, *range(12, 20)]
    assert by_slot(buffer)[:2] == [7, 8]
    buffer.check()


def test_rows_of_several_environments_and_steps_are_pinned(kernels: str) -> None:
    buffer = ReplayBuffer(
        20, FIELDS, kernels=kernels, gamma=0.5, num_envs=2, n_step=3, autoreset="disabled"
    )
    for env in (0, 1):
        buffer.extend(**rows(range(4 * env, 4 * env + 4)), env=env)
    buffer.pin_demonstrations(8)
    for env in (0, 1):
        buffer.extend(**rows(range(10 + 9 * env, 19 + 9 * env)), env=env)
    assert len(buffer) == 20
    assert buffer.rows(range(8)).reward.tolist() == [3, 6, 8, 8, 48, 96, 128, 128]
    assert buffer.rows([17, 18, 25]).reward.tolist() == [3 * 2.0**19, 3 * 2.0**20, 2.0**27]
    buffer.check()


def test_no_link_joins_a_demonstration_and_what_comes_later(kernels: str) -> None:
    buffer = buffer_of(kernels, 3, 3, reserve=2)
    assert links(buffer, range(6)) == [
        [0, 0, 1],
        [0, 1, 1],
        [0, 1, 0],
        [0, 0, 1],
        [0, 1, 1],
        [0, 1, 0],
    ]
    assert links(buffer, buffer.pin([1, 4])) == [[0, 0, 0], [0, 0, 0]]
    buffer.check()


def test_a_fake_step_that_is_due_when_rows_are_pinned_is_dropped(kernels: str) -> None:
    buffer = ReplayBuffer(10, FIELDS, kernels=kernels, autoreset="next_step")
    write(buffer, range(3), terminated={2})
    buffer.pin_demonstrations(3)
    write(buffer, [50, 3])
    assert buffer.all().obs.tolist() == [0, 1, 2, 3]
    assert buffer.stats()["dropped_reset_rows"] == 1


def test_a_clear_drops_demonstrations_and_gives_the_ring_every_slot(kernels: str) -> None:
    buffer = buffer_of(kernels, 3, 4, reserve=2, sampler=SAMPLERS[1])
    buffer.pin([4])
    buffer.clear()
    assert len(buffer) == buffer.stats()["demonstrations"] == 0
    assert not buffer.ready()
    with refused(buffer, InputError, "1 rows to pin, room for 0|no rows are held"):
        buffer.pin([4])
    write(buffer, range(7, 20))
    assert by_slot(buffer) == [17, 18, 19, 10, 11, 12, 13, 14, 15, 16]
    assert set(buffer.sample(200).obs.tolist()) == set(range(10, 20))
    buffer.check()


# What is refused, before anything has changed

REFUSED = [
    ({"count": 3}, "only all rows so far can be pinned: there are 4, given count=3; pin right"),
    ({"count": 5}, "there are 4, given count=5"),
    ({"count": 0, "reserve": 2}, "there are 4, given count=0"),
    ({"count": 0}, "nothing to pin: count and reserve are both 0"),
    ({"count": -1}, "count is a whole number >= 0; given -1"),
    ({"count": True}, "count is a whole number >= 0; given True"),
    ({"count": 4.0}, "count is a whole number >= 0; given 4.0"),
    ({"count": None}, "count is a whole number >= 0; given None"),
    ({"count": 4, "reserve": -1}, "reserve is a whole number >= 0; given -1"),
    ({"count": 4, "reserve": "2"}, "reserve is a whole number >= 0; given '2'"),
    ({"count": 4, "reserve": 6}, "4 demonstrations and reserve=6 leave 0 of 10 rows for others"),
    ({"count": 4, "reserve": 2**70}, "leave 0 of 10 rows"),
    ({"count": 4, "batch_size": 7}, "leave 6 of 10 rows for others, fewer than 7; make the buffer"),
    ({"count": 4, "reserve": 3, "batch_size": 4}, "leave 3 of 10 rows for others, fewer than 4"),
    ({"count": 4, "batch_size": 0}, "batch_size is a whole number >= 1"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_a_pin_that_cannot_be_meant_is_refused(
    kernels: str, arguments: dict[str, Any], message: str
) -> None:
    buffer = write(ReplayBuffer(10, FIELDS, kernels=kernels, sampler=SAMPLERS[1]), range(4))
    with refused(buffer, InputError, message):
        buffer.pin_demonstrations(**arguments)
    buffer.pin_demonstrations(4, reserve=3, batch_size=3)


def test_rows_cannot_be_pinned_after_some_were_overwritten(kernels: str) -> None:
    buffer = write(ReplayBuffer(10, FIELDS, kernels=kernels), range(13))
    with refused(buffer, InputError, r"there are 10 \(and 3 are gone\)"):
        buffer.pin_demonstrations(10)


@pytest.mark.parametrize("how", ["grown", "saved"])
def test_rows_that_another_capacity_kept_are_all_there_are(
    kernels: str, how: str, tmp_path: Path
) -> None:
    buffer = write(ReplayBuffer(10, FIELDS, kernels=kernels), range(13))
    if how == "grown":
        buffer = buffer.grown(20)
    else:
        buffer.save(tmp_path / "saved")
        buffer = ReplayBuffer.load(tmp_path / "saved", capacity=20)
    with refused(buffer, InputError, "there are 10, given count=9"):
        buffer.pin_demonstrations(9)
    buffer.pin_demonstrations(10)
    write(buffer, range(13, 25))  # the last ten of them stay
    buffer.check()
    ids = [*range(3, 13), *range(15, 25)]
    assert buffer.live_ids().tolist() == ids
    assert buffer.rows(ids).obs.tolist() == ids


def test_rows_cannot_be_pinned_twice(kernels: str) -> None:
    buffer = buffer_of(kernels, 3, 2)
    with refused(buffer, InputError, "3 demonstrations are pinned already; pin"):
        buffer.pin_demonstrations(5)


def test_rows_cannot_be_pinned_while_steps_wait_for_their_windows(kernels: str) -> None:
    buffer = write(ReplayBuffer(10, FIELDS, kernels=kernels, n_step=3), range(4))
    with refused(buffer, InputError, r"2 steps still wait .* call end_episode\(\) first"):
        buffer.pin_demonstrations(2)
    buffer.end_episode()
    buffer.pin_demonstrations(4)


@pytest.mark.parametrize("capacity", [1, 3])
def test_demonstrations_cannot_take_the_whole_buffer(kernels: str, capacity: int) -> None:
    buffer = write(ReplayBuffer(capacity, FIELDS, kernels=kernels), range(capacity))
    with refused(buffer, InputError, f"leave 0 of {capacity} rows for others, fewer than 1"):
        buffer.pin_demonstrations(capacity)


COPIES_REFUSED = [
    ([0, 1, 2], "3 rows to pin, room for 2: say pin_demonstrations"),
    ([99], r"the ids held are 3\.\.\.6 and those of 3 demonstrations; given \[99\]"),
    ([-1], "the ids held are"),
    ([ADDED], "the ids held are"),
    ([0, 99], r"given \[99\]"),
    ([], "expected integers of shape"),
    ([[0]], "expected integers of shape"),
    ([0.0], "given torch.float32 of shape|given torch.float64 of shape"),
    ([True], "given torch.bool"),
    ([1j], "given complex"),
    ("0", "not an array of integers"),
    (None, "not an array of integers"),
    ([2**64], "not an array of integers"),
]


@pytest.mark.parametrize(("ids", "message"), COPIES_REFUSED)
def test_rows_that_cannot_be_copied_are_refused(kernels: str, ids: Any, message: str) -> None:
    buffer = buffer_of(kernels, 3, 4, reserve=2, sampler=SAMPLERS[1])
    with refused(buffer, InputError, message):
        buffer.pin(ids)


def test_there_is_no_room_for_copies_unless_it_was_reserved(kernels: str) -> None:
    buffer = write(ReplayBuffer(10, FIELDS, kernels=kernels), range(3))
    with refused(buffer, InputError, "1 rows to pin, room for 0"):
        buffer.pin([0])
    buffer.pin_demonstrations(3)
    with refused(buffer, InputError, "1 rows to pin, room for 0"):
        buffer.pin([0])


# Copies


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_copy_stays_when_its_row_is_overwritten(kernels: str, sampler: Any) -> None:
    buffer = buffer_of(kernels, 2, 3, reserve=3, sampler=sampler)
    assert buffer.pin([3]).tolist() == [ADDED]
    write(buffer, range(5, 30))
    assert buffer.live_ids().tolist() == [0, 1, *range(25, 30), ADDED]
    assert by_slot(buffer) == [0, 1, 3, 27, 28, 29, 25, 26]
    copy = buffer.rows([ADDED])
    assert (float(copy.obs), float(copy.reward), float(copy.next_obs)) == (3, 8, 3.5)
    assert buffer.stats()["demonstrations"] == 3
    assert len(buffer) == 8
    buffer.check()


def test_copies_of_demonstrations_of_copies_and_of_one_row_twice_are_rows_like_others(
    kernels: str,
) -> None:
    buffer = buffer_of(kernels, 2, 1, reserve=5, demo_fraction=None)
    assert buffer.pin([1, 2, 2]).tolist() == [ADDED, ADDED + 1, ADDED + 2]
    assert buffer.pin([ADDED + 1]).tolist() == [ADDED + 3]
    assert buffer.all().obs.tolist() == [0, 1, 2, 1, 2, 2, 2]
    counts = torch.bincount(buffer.sample(7000).obs.to(torch.int64))
    assert counts.tolist() == pytest.approx([1000, 2000, 4000], abs=200)  # 5 standard deviations


def test_a_copy_has_the_priority_of_its_row_and_then_one_of_its_own(kernels: str) -> None:
    buffer = buffer_of(kernels, 2, 2, reserve=3, sampler=SAMPLERS[1])
    buffer.update_priorities([0, 1, 2, 3], [4.0, 0.0, 6.0, 2.0])
    copies = buffer.pin([2, 1])
    assert buffer.priorities(copies).tolist() == [6, 0]
    buffer.update_priorities(copies, [1.0, 3.0])
    assert leaves(buffer) == [4, 0, 6, 2, 1, 3]
    buffer.check()


def test_a_buffer_may_have_copies_only(kernels: str) -> None:
    buffer = ReplayBuffer(3, FIELDS, kernels=kernels)
    buffer.pin_demonstrations(0, reserve=2)
    assert not buffer.ready()
    write(buffer, range(5))
    assert len(buffer) == 1  # the rest is kept for copies
    buffer.pin([4])
    write(buffer, [5])
    buffer.pin([5])
    assert by_slot(buffer) == [4, 5, 5]
    with refused(buffer, InputError, "room for 0"):
        buffer.pin([5])
    assert buffer.sample(4).obs.tolist().count(5.0) >= 2


def test_ages_count_rows_of_the_ring_and_reuse_counts_all(kernels: str) -> None:
    buffer = buffer_of(kernels, 2, 2, reserve=1, track_reuse=True)
    buffer.sample(8)
    copy = buffer.pin([0])
    stats = buffer.stats()
    assert sum(stats["age_counts"]) == 4
    assert sum(stats["reuse_counts"]) == 5
    assert int(buffer._state.uses[ring.slots_of(buffer._state, copy)]) == 0


# Ids of copies are never given out twice


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_ids_of_copies_go_on_after_a_clear(kernels: str, sampler: Any) -> None:
    buffer = buffer_of(kernels, 2, 2, reserve=2, sampler=sampler)
    assert buffer.pin([0, 2]).tolist() == [ADDED, ADDED + 1]
    buffer.clear()
    write(buffer, [7, 8])
    buffer.pin_demonstrations(2, reserve=2)
    assert buffer.pin([4]).tolist() == [ADDED + 2]
    assert buffer.live_ids().tolist() == [4, 5, ADDED + 2]
    assert buffer.rows([ADDED + 2]).obs.tolist() == [7]
    with pytest.raises(InputError, match="the ids held are"):
        buffer.rows([ADDED])
    assert set(buffer.sample(50).ids.tolist()) == {4, 5, ADDED + 2}
    assert set(buffer.sample_range(50, ADDED, 2**63 - 1).ids.tolist()) == {ADDED + 2}
    buffer.check()


@pytest.mark.parametrize("sampler", SAMPLERS[1:])
def test_a_late_priority_of_a_copy_that_was_cleared_is_skipped_and_counted(
    kernels: str, sampler: Any
) -> None:
    buffer = buffer_of(kernels, 2, 2, reserve=2, sampler=sampler)
    late = buffer.pin([0, 2])
    buffer.clear()
    buffer.update_priorities(late, [5.0, 5.0])
    assert buffer.stats()["stale_updates"] == 2
    write(buffer, [7])
    buffer.pin_demonstrations(1, reserve=2)
    new = buffer.pin([4])
    before = buffer.priorities(new)
    buffer.update_priorities(late, [5.0, 5.0])
    assert torch.equal(buffer.priorities(new), before)
    assert buffer.stats()["stale_updates"] == 4
    with pytest.raises(InputError, match="ids given out so far"):
        buffer.update_priorities([ADDED + 3], [5.0])
    buffer.check()


# Shares of a batch


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_carry_next_to_one_does_not_make_a_batch_of_more_than_itself(
    kernels: str, sampler: Any
) -> None:
    # 100 * 0.29 is 29 less 4e-15, and 1000 + (1 - 4e-15) rounds to 1001
    buffer = buffer_of(kernels, 4, 6, sampler=sampler, demo_fraction=Linear(0.29, 1.0, 1))
    assert (buffer.sample(100).ids < 4).sum() == 28
    assert (buffer.sample(1000).ids < 4).all()
    assert (buffer.sample(8).ids < 4).all()
    buffer.check()


SPREAD = {  # share, batch size: positions of demonstrations in the first batch
    (0.5, 8): [1, 3, 5, 7],
    (0.25, 8): [3, 7],
    (0.375, 8): [2, 5, 7],
    (1.0, 3): [0, 1, 2],
    (0.0, 3): [],
    (0.5, 1): [],
}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("share", "batch_size"), SPREAD)
def test_demonstrations_are_spread_over_a_batch(
    kernels: str, sampler: Any, share: float, batch_size: int
) -> None:
    buffer = buffer_of(kernels, 3, 5, sampler=sampler, demo_fraction=share)
    is_demonstration = buffer.sample(batch_size).ids < 3
    assert is_demonstration.nonzero().view(-1).tolist() == SPREAD[share, batch_size]


@pytest.mark.parametrize(
    ("share", "batch_size", "counts"),
    [
        (0.5, 1, [0, 1, 0, 1, 0, 1]),
        (0.5, 3, [1, 2, 1, 2]),
        (0.25, 6, [1, 2, 1, 2]),
        (0.75, 1, [0, 1, 1, 1, 0, 1, 1, 1]),
        (Linear(1.0, 0.0, 4), 8, [8, 6, 4, 2, 0, 0]),
        (Linear(0.0, 1.0, 4), 2, [0, 0, 1, 2, 2]),
    ],
)
def test_what_a_batch_owes_the_next_one_pays(
    kernels: str, share: Any, batch_size: int, counts: list[int]
) -> None:
    buffer = buffer_of(kernels, 3, 5, demo_fraction=share)
    found = []
    for _ in counts:
        other = buffer.sample(batch_size, train=False)  # owes nothing
        batch = buffer.sample(batch_size)
        found.append(int((batch.ids < 3).sum()))
        assert int((other.ids < 3).sum()) == found[-1]
    assert found == counts


def test_a_share_that_is_no_multiple_is_exact_in_the_long_run(kernels: str) -> None:
    buffer = buffer_of(kernels, 3, 5, demo_fraction=0.3)
    count = sum(int((buffer.sample(7).ids < 3).sum()) for _ in range(200))
    assert count in (419, 420)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, None])
def test_all_rows_come_from_demonstrations_until_there_are_others(
    kernels: str, share: float | None
) -> None:
    buffer = buffer_of(kernels, 3, 0, demo_fraction=share)
    assert buffer.ready(3)
    assert set(buffer.sample(64).ids.tolist()) == {0, 1, 2}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_part_without_priority_leaves_the_batch_to_the_other(kernels: str, share: float) -> None:
    buffer = buffer_of(kernels, 3, 3, sampler=SAMPLERS[1], demo_fraction=share)
    buffer.update_priorities(range(6), [0, 0, 0, 1, 1, 1])
    assert set(buffer.sample(64).ids.tolist()) == {3, 4, 5}
    buffer.update_priorities(range(6), [1, 1, 1, 0, 0, 0])
    assert set(buffer.sample(64).ids.tolist()) == {0, 1, 2}
    buffer.update_priorities(range(3), [0, 0, 0])
    assert not buffer.ready()


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("share", [0.5, None])
def test_a_window_is_one_on_the_other_rows(kernels: str, sampler: Any, share: float | None) -> None:
    buffer = buffer_of(
        kernels, 3, 20, sampler=sampler, demo_fraction=share, window=Recent(2), reserve=1
    )
    copy = int(buffer.pin([20]))
    assert set(buffer.sample(400).ids.tolist()) == {0, 1, 2, 21, 22, copy}


@pytest.mark.parametrize("alpha", [1.0, 2.0, 0.0])
def test_the_bonus_of_demonstrations_is_added_before_the_exponent(
    kernels: str, alpha: float
) -> None:
    sampler = Proportional(alpha=alpha, eps=0.25, demo_bonus=0.5)
    buffer = buffer_of(kernels, 2, 2, reserve=1, sampler=sampler)
    copy = int(buffer.pin([3]))
    buffer.update_priorities([0, 1, 2, 3, copy], [0.25, -0.25, 0.75, 0.25, 0.25])
    assert leaves(buffer) == [1, 1, 1, 0.5**alpha, 1]
    buffer.update_priorities([0], priorities=[3.0])  # a leaf is taken as it is
    assert buffer.priorities([0]).tolist() == [3]


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (-0.1, r"demo_fraction lies in \[0, 1\]"),
        (1.1, r"demo_fraction lies in \[0, 1\]"),
        (float("nan"), "demo_fraction lies in|finite"),
        (True, "demo_fraction is a number or a Linear"),
        ("half", "demo_fraction is a number or a Linear"),
        (Linear(0.5, 1.5, 10), r"demo_fraction lies in \[0, 1\]"),
    ],
)
def test_a_share_outside_0_and_1_is_refused(share: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReplayBuffer(10, FIELDS, demo_fraction=share)
