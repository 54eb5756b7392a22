"""Rows that are pinned in front of the ring, never overwritten.

slots   0 ... n - 1         n rows pinned at once, the first of the buffer
        n ... n + k - 1     k rows copied there later
        ... P - 1           room for more (`reserve`); P = n + reserve
        P ... N - 1         the ring

Where frames are kept once, those of the n rows are pinned in front of the ring of frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.declared import is_whole, plain
from relive.errors import InputError, shown
from relive.frames import room_of_rows
from relive.ops import words as w
from relive.ops.window.reference import num_demonstrations, ring_range, slots_of

if TYPE_CHECKING:
    from relive.ops.dispatch import Operations
    from relive.ops.state import State


def pin_first(state: State, count: int, reserve: int, online: int) -> None:
    """Pin the `count` rows there are, and keep room for `reserve` more.

    Args:
        online: rows that must fit beside them.

    Raises:
        InputError: why this cannot be; nothing has changed then.
    """
    oldest, stop = ring_range(state)
    capacity = state.word(w.CAPACITY)
    count, reserve = plain(count), plain(reserve)
    for name, number in (("count", count), ("reserve", reserve)):
        if not is_whole(number, 0):
            raise InputError(f"{name} is a whole number >= 0; given {shown(number)}")
    if count + reserve == 0:
        raise InputError("nothing to pin: count and reserve are both 0")
    if state.word(w.RING_START):
        raise InputError(
            f"{num_demonstrations(state)} demonstrations are pinned already; "
            "pin(ids) adds to them while there is room in reserve, clear() drops all"
        )
    waiting = int(state.lanes[:, w.LANE_COUNT].sum())
    if waiting:
        raise InputError(
            f"{waiting} steps still wait for their n-step windows; call end_episode() first"
        )
    if oldest != state.word(w.BASE_ID) or stop - oldest != count:
        gone = oldest - state.word(w.BASE_ID)
        raise InputError(
            f"only all rows so far can be pinned: there are {stop - oldest}"
            + (f" (and {gone} are gone)" if gone else "")
            + f", given count={shown(count)}; pin right after the demonstrations are written"
        )
    if capacity - count - reserve < online:
        raise InputError(
            f"{count} demonstrations and reserve={shown(reserve)} leave "
            f"{max(0, capacity - count - reserve)} of {capacity} rows for others, fewer than "
            f"{online}; make the buffer larger"
        )
    if state.keeps_frames:
        _pin_frames(state, reserve, online)
    state.words[w.DEMO_FIRST_ID] = oldest
    state.words[w.DEMO_COUNT] = count
    state.words[w.RING_START] = count + reserve
    state.words[w.RING_CAPACITY] = capacity - count - reserve
    state.words[w.BASE_ID] = stop
    state.lanes[:, w.LANE_LAST] = -1  # what comes next follows none of them


def _pin_frames(state: State, reserve: int, online: int) -> None:
    """Pin all frames so far, as `pin_first` pins rows.

    Raises:
        InputError: rows could be copied later, whose frames would be lost; or too little room.
    """
    if reserve:
        raise InputError(
            f"reserve={reserve} is room for copies of rows, which would need frames of their own; "
            "leave it out, or make the buffer without stack= in its fields"
        )
    first, stop = state.frame_word(w.FRAME_BASE), state.frame_word(w.NEXT_FRAME)
    room = room_of_rows(state.word(w.CAPACITY)) - (stop - first)
    if room < online:
        raise InputError(
            f"{stop - first} frames of demonstrations leave room for {max(0, room)} others, fewer "
            f"than {online}; make the buffer larger"
        )
    state.frame_words[w.DEMO_FIRST_FRAME] = first
    state.frame_words[w.FRAME_START] = stop - first
    state.frame_words[w.FRAME_BASE] = stop


def pin_copies(state: State, operations: Operations, ids: Tensor) -> Tensor:
    """Copy rows into the room kept in reserve, each with its priority; returns their new ids.

    Raises:
        InputError: more rows than there is room for; nothing has changed then.
    """
    first = num_demonstrations(state)
    room = state.word(w.RING_START) - first
    if len(ids) > room:
        remedy = "say pin_demonstrations(count, reserve=...)"
        if state.keeps_frames:  # where reserve= is refused
            remedy = "copies need frames of their own; make the buffer without stack= for that"
        raise InputError(f"{len(ids)} rows to pin, room for {room}: {remedy}")
    source = slots_of(state, ids)
    slots = torch.arange(first, first + len(ids), device=ids.device)
    there = slots.to(state.rows.device)
    state.rows[there] = state.rows[source.to(state.rows.device)]
    state.rows[there, 4:12] = 0  # links: nothing comes before or after a copy
    if len(state.errors):
        state.errors[slots] = state.errors[source]
    newest = state.word(w.ADDED_FIRST_ID) + state.word(w.DEMO_ADDED)
    new_ids = newest + torch.arange(len(ids), device=ids.device)
    state.words[w.DEMO_ADDED] += len(ids)
    if len(state.leaves):
        operations.set_leaves(state, slots, state.leaves[source])
    return new_ids
