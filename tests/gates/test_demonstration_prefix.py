"""Demonstrations stay in front of the ring, and have the share of each batch that was asked for.

n rows pinned at once have ids 0 ... n - 1, their slots too; the k-th pinned later, from k = 0, has
id 2^62 + k and slot n + k. The ring begins at P, behind the room that was kept: a row with id
i >= n lies in slot P + (i - n) mod (N - P).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import Field, InputError, Proportional, ReplayBuffer, Uniform

if TYPE_CHECKING:
    from pathlib import Path

N, PINNED, RESERVE = 12, 4, 2
P = PINNED + RESERVE
LATER = 2**62
FIELDS = {"obs": Field(), "action": Field((), torch.int64)}
PRIORITIZED = Proportional(alpha=1.0, eps=0.0)


def rows(first: int, count: int) -> dict[str, Any]:
    """Row t has obs t."""
    t = np.arange(first, first + count)
    return {
        "obs": np.float32(t),
        "action": t,
        "reward": np.float32(t),
        "next_obs": np.float32(t + 1),
        "terminated": t % 3 == 2,
    }


def pinned(place: dict[str, Any], online: int = 0, **settings: Any) -> ReplayBuffer:
    settings = {"sampler": PRIORITIZED, **settings, **place}
    buffer = ReplayBuffer(N, FIELDS, **settings)
    buffer.extend(**rows(0, PINNED))
    buffer.pin_demonstrations(PINNED, reserve=RESERVE)
    if online:
        buffer.extend(**rows(PINNED, online))
    return buffer


def by_slot(buffer: ReplayBuffer, slots: list[int]) -> list[float]:
    """The obs in these slots."""
    offset = buffer._home.layout.columns["obs"].offset
    found = buffer._state.rows.cpu()[slots, offset : offset + 4].contiguous()
    return found.view(torch.float32).view(-1).tolist()


def is_demonstration(ids: torch.Tensor) -> list[bool]:
    return [row < PINNED or row >= LATER for row in ids.tolist()]


def test_ids_and_slots_are_those_of_the_design(place: dict[str, Any]) -> None:
    buffer = pinned(place, online=9)  # three more than the ring holds
    assert buffer.pin([7, 12]).tolist() == [LATER, LATER + 1]
    online = range(7, 13)
    assert buffer.live_ids().tolist() == [0, 1, 2, 3, *online, LATER, LATER + 1]
    assert by_slot(buffer, [0, 1, 2, 3, 4, 5]) == [0, 1, 2, 3, 7, 12]
    assert by_slot(buffer, [P + (i - PINNED) % (N - P) for i in online]) == list(online)
    assert buffer.all().obs.tolist() == [0, 1, 2, 3, *online, 7, 12]
    buffer.check()


def test_nothing_overwrites_a_demonstration(place: dict[str, Any]) -> None:
    buffer = pinned(place, online=3)
    buffer.update_priorities([0, 1, 5], [0.5, 0.25, 4.0])
    kept = [0, 1, 2, 3, *buffer.pin([5]).tolist()]
    before, leaves = buffer.rows(kept), buffer.priorities(kept).tolist()
    assert leaves == [0.5, 0.25, 1.0, 1.0, 4.0]
    for first, count in ((7, 1), (8, 2 * N + 1), (33, N)):
        buffer.extend(**rows(first, count))
    after = buffer.rows(kept)
    for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated", "discount"):
        assert torch.equal(after[name].cpu(), before[name].cpu()), name
    assert buffer.priorities(kept).tolist() == leaves
    assert buffer.live_ids().tolist() == [0, 1, 2, 3, *range(39, 45), LATER]
    buffer.update_priorities([0, 5], [2.0, 2.0])  # the original of the copy is gone
    assert buffer.priorities(kept).tolist() == [2.0, *leaves[1:]]
    assert buffer.stats(wait=True)["stale_updates"] == 1


@pytest.mark.parametrize("sampler", [Uniform(), PRIORITIZED], ids=["uniform", "prioritized"])
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_the_share_of_each_batch_is_exact_over_time(
    share: float, sampler: Any, place: dict[str, Any]
) -> None:
    buffer = pinned(place, online=8, sampler=sampler, demo_fraction=share)
    drawn = 0
    for number in range(1, 6):
        drawn += sum(is_demonstration(buffer.sample(7).ids))
        assert drawn == math.floor(number * 7 * share)


def test_rows_pinned_later_are_drawn_with_the_share_of_demonstrations(
    place: dict[str, Any],
) -> None:
    buffer = pinned(place, online=3, demo_fraction=0.75)
    buffer.pin([4, 6])
    buffer.extend(**rows(7, 6))
    ids = buffer.sample(8).ids  # of six demonstrations alike each is drawn once
    assert sorted(ids[torch.tensor(is_demonstration(ids))].tolist()) == [
        *range(PINNED),
        LATER,
        LATER + 1,
    ]


def test_more_cannot_be_pinned_than_there_is_room_for(place: dict[str, Any]) -> None:
    buffer = pinned(place, online=4)
    buffer.pin([4])
    before = buffer.live_ids().tolist()
    for ids in ([5, 6], [99], []):
        with pytest.raises(InputError):
            buffer.pin(ids)
    with pytest.raises(InputError, match="pinned already"):
        buffer.pin_demonstrations(len(buffer))
    assert buffer.live_ids().tolist() == before
    buffer.check()


def test_clear_drops_them_and_gives_their_room_and_no_id_again(place: dict[str, Any]) -> None:
    buffer = pinned(place, online=4)
    buffer.pin([5])
    buffer.clear()
    assert len(buffer) == 0
    buffer.extend(**rows(8, N))
    assert buffer.live_ids().tolist() == list(range(8, 8 + N))  # the whole capacity
    buffer.clear()
    buffer.extend(**rows(20, 2))
    buffer.pin_demonstrations(2, reserve=1)
    assert buffer.pin([21]).tolist() == [LATER + 1]
    assert buffer.live_ids().tolist() == [20, 21, LATER + 1]
    assert by_slot(buffer, [0, 1, 2]) == [20, 21, 21]
    buffer.check()


def test_a_saved_buffer_goes_on_as_if_nothing_had_been(
    place: dict[str, Any], tmp_path: Path
) -> None:
    buffer = pinned(place, online=8, demo_fraction=0.3)
    buffer.pin([8])
    buffer.sample(7)  # 2.1 demonstrations: a tenth is carried over
    buffer.save(tmp_path / "saved")
    loaded = ReplayBuffer.load(tmp_path / "saved", kernels=place.get("kernels", "auto"))
    assert loaded.device == buffer.device
    for _ in range(2):
        for one in (buffer, loaded):
            one.extend(**rows(12, 5))
        assert loaded.live_ids().tolist() == buffer.live_ids().tolist()
        ours, theirs = loaded.sample(7), buffer.sample(7)
        assert ours.ids.tolist() == theirs.ids.tolist()
        assert torch.equal(ours.weights.cpu(), theirs.weights.cpu())
    assert loaded.pin([17]).tolist() == buffer.pin([17]).tolist() == [LATER + 1]
    smaller = ReplayBuffer.load(tmp_path / "saved", capacity=P + 2)
    assert smaller.live_ids().tolist() == [0, 1, 2, 3, 10, 11, LATER]
