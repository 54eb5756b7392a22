"""Keeping frames once: packed steps become rows that have ids of frames in place of stacks.

A frame of an observation is the one of the same place in the lane's last next observation, if it
has the same bytes; a frame of a next observation is the one behind its place in the observation.
All others are new, but that those of one stack with the same bytes, side by side, are one: the
padding in front of an episode's first. So a frame moves one place towards the front of the stacks
in each step, and no stack holds it after k steps.

New frames take the slots of the oldest. What needs these is gone then: the oldest rows, up to the
last that has one. Rows are written in nearly the order of their frames. With n + k + 2 times that a
row and its frames may be apart, E lanes, at most n rows and 2 k frames of each at a time,

    rows_behind    (n + k + 2) n E     rows before one that needs a frame, one needs an older frame
    frames_behind  (n + k + 2) 2 k E   frames before the newest of a row, no later row needs any

so where none of the `rows_behind` oldest rows needs a frame that is gone, none does; and that need
not be looked at while the newest frame of the oldest row is `frames_behind` newer than those.

k  frames of a stack    n  steps folded into one row    E  lanes (environments)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.ops import words as w
from relive.ops.tree import reference as tree
from relive.ops.window.reference import ring_range, slots_of

if TYPE_CHECKING:
    from relive.ops.state import State


def intern(state: State, steps: Tensor, rows: Tensor, lanes: range) -> None:
    """Make rows of packed steps: their frames are kept, and the rows have the ids.

    Args:
        steps: uint8 [S, bytes], those of all `lanes` at one time before those of the next.
        rows: uint8 [S, row_bytes], written.
    """
    for i, (step, row) in enumerate(zip(steps, rows, strict=True)):
        for source, target, nbytes in _moves(state):
            row[target : target + nbytes] = step[source : source + nbytes]
        _intern_one(state, step, row, lanes[i % len(lanes)])
    evict(state)


def forget(state: State, lanes: range) -> None:
    """What these lanes are given next goes on from nothing."""
    state.stacks[lanes.start : lanes.stop] = -1


def _intern_one(state: State, step: Tensor, row: Tensor, lane: int) -> None:
    obs, next_obs = (_frames(state, step, state.frame_word(at)) for at in (w.STEP_OBS, w.STEP_NEXT))
    known = [(int(i), state.frames[_slot(state, int(i))]) for i in state.stacks[lane] if i >= 0]
    ids = _intern_stack(state, obs, known)
    behind = list(zip(ids[1:], obs[1:], strict=True))
    next_ids = _intern_stack(state, next_obs, behind)
    for at, found in ((w.ROW_OBS, ids), (w.ROW_NEXT, next_ids)):
        begin = state.frame_word(at)
        row[begin : begin + 8 * len(found)] = torch.tensor(found).view(torch.uint8)
    state.stacks[lane] = torch.tensor(next_ids)


def _intern_stack(state: State, stack: Tensor, expected: list[tuple[int, Tensor]]) -> list[int]:
    """Ids of the frames of a stack, which may be the expected ones, place by place."""
    ids: list[int] = []
    was_new = False
    for place, frame in enumerate(stack):
        if place < len(expected) and torch.equal(frame, expected[place][1][: len(frame)]):
            ids.append(expected[place][0])
            was_new = False
        elif was_new and torch.equal(frame, stack[place - 1]):
            ids.append(ids[-1])
        else:
            ids.append(_keep(state, frame))
            was_new = True
    return ids


def _keep(state: State, frame: Tensor) -> int:
    new = state.frame_word(w.NEXT_FRAME)
    state.frame_words[w.NEXT_FRAME] += 1
    state.frames[_slot(state, new), : len(frame)] = frame
    return new


def evict(state: State) -> None:
    """Drop the rows that need frames whose slots others have taken."""
    gone = oldest_frame(state)
    oldest, stop = first, _ = ring_range(state)
    while True:
        ids = torch.arange(oldest, min(stop, oldest + state.frame_word(w.ROWS_BEHIND)))
        lost = ids[_oldest_of_rows(state, ids) < gone]
        if not len(lost):
            break
        oldest = int(lost[-1]) + 1
    if oldest > first:
        _drop(state, torch.arange(first, oldest))


def _drop(state: State, ids: Tensor) -> None:
    slots = slots_of(state, ids)
    if len(state.uses):
        for slot in slots.tolist():
            state.reuse_counts[int(state.uses[slot]).bit_length()] += 1
        state.uses[slots] = 0
    if len(state.leaves):
        tree.set_leaves(state, slots, torch.zeros(len(slots)))
    state.words[w.EVICTED_ROWS] += len(ids)
    state.words[w.OLDEST_ID] = ids[-1] + 1


def oldest_frame(state: State) -> int:
    """Id of the oldest frame in the ring of frames, or of the next one."""
    base, start, room, newest = (
        state.frame_word(word) for word in (w.FRAME_BASE, w.FRAME_START, w.NUM_FRAMES, w.NEXT_FRAME)
    )
    return max(base, newest - (room - start))


def _oldest_of_rows(state: State, ids: Tensor) -> Tensor:
    """The oldest frame of each row, those of demonstrations aside: int64 [R] -> int64 [R]."""
    frames = torch.cat([frames_of_rows(state, slots_of(state, ids), at) for at in FRAMES_OF_ROW], 1)
    pinned = frames < state.frame_word(w.FRAME_BASE)
    return torch.where(pinned, state.frame_word(w.NEXT_FRAME), frames).amin(1)


FRAMES_OF_ROW = (w.ROW_OBS, w.ROW_NEXT)


def frames_of_rows(state: State, slots: Tensor, at: int) -> Tensor:
    """Ids of the frames of rows in some slots, int64 [R, k].

    Args:
        at: word that says where they are in a row.
    """
    begin, stack = state.frame_word(at), state.frame_word(w.STACK)
    rows = state.rows[slots.to(state.rows.device), begin : begin + 8 * stack]
    return rows.contiguous().view(torch.int64)


def slots_of_frames(state: State, ids: Tensor) -> Tensor:
    """Slots of frames that are kept: int64 [*] -> int64 [*]."""
    words = state.frame_words
    ring = words[w.FRAME_START] + (ids - words[w.FRAME_BASE]) % (
        words[w.NUM_FRAMES] - words[w.FRAME_START]
    )
    return torch.where(ids >= words[w.FRAME_BASE], ring, ids - words[w.DEMO_FIRST_FRAME])


def _slot(state: State, frame: int) -> int:
    return int(slots_of_frames(state, torch.tensor(frame)))


def _frames(state: State, step: Tensor, begin: int) -> Tensor:
    """The frames of a stack, uint8 [k, bytes]."""
    stack, nbytes = state.frame_word(w.STACK), state.frame_word(w.FRAME_SIZE)
    return step[begin : begin + stack * nbytes].view(stack, nbytes)


def _moves(state: State) -> list[list[int]]:
    return state.frame_words[w.FIRST_MOVE :].view(-1, w.MOVE_WORDS).tolist()
