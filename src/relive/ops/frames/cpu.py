"""Keeping frames once, in Numba: one call for all steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from relive.ops import words as w
from relive.ops.compiled import copy_bytes, helper, int64_pointer, kernel, words_at
from relive.ops.enter.cpu import fill
from relive.ops.rows.cpu import retire
from relive.ops.window.cpu import oldest_of_ring, ring_slot

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State


@intrinsic
def differ(typing_context: Any, one: Any, other: Any, count: Any) -> Any:  # noqa: ARG001
    """Not 0 where bytes at two addresses differ: C's memcmp."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        byte, size = ir.IntType(8).as_pointer(), ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [byte, byte, size])
        function = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
        one, other = (builder.inttoptr(address, byte) for address in args[:2])
        return builder.call(function, [one, other, args[2]])

    return types.int32(types.int64, types.int64, types.int64), build


@helper
def frame_words_of(words: Any) -> Any:
    """The words of the frames that never change, and those that do."""
    return carray(int64_pointer(words[w.FRAME_WORDS]), w.FIRST_MOVE)


@helper
def frame_at(words: Any, frames: Any, frame: Any) -> Any:
    """Address of a frame that is kept."""
    base, start = frames[w.FRAME_BASE], frames[w.FRAME_START]
    if frame >= base:
        slot = start + (frame - base) % (frames[w.NUM_FRAMES] - start)
    else:
        slot = frame - frames[w.DEMO_FIRST_FRAME]
    return words[w.FRAMES] + slot * frames[w.FRAME_BYTES]


@helper
def intern_stack(
    words: Any, frames: Any, stack: Any, ids: Any, expected: Any, at: Any, pitch: Any
) -> None:
    """Ids of the frames of the stack at an address; see `reference`.

    Args:
        expected: ids of the frames it may have, place by place; -1 for none.
        at: address of the first of those; from one to the next it is `pitch` bytes. 0: where they
            are kept.
    """
    nbytes = frames[w.FRAME_SIZE]
    was_new = False
    for place in range(ids.shape[0]):
        frame = stack + place * nbytes
        known = expected[place] if place < expected.shape[0] else np.int64(-1)
        if known >= 0:
            other = at + place * pitch if at != 0 else frame_at(words, frames, known)
            if differ(frame, other, nbytes) != 0:
                known = np.int64(-1)
        if known >= 0:
            ids[place] = known
            was_new = False
        elif was_new and differ(frame, frame - nbytes, nbytes) == 0:
            ids[place] = ids[place - 1]
        else:
            ids[place] = frames[w.NEXT_FRAME]
            frames[w.NEXT_FRAME] += 1
            copy_bytes(frame_at(words, frames, ids[place]), frame, nbytes)
            was_new = True


@helper
def newest_frame(words: Any, frames: Any, row_id: Any) -> Any:
    """The last frame of a row's next observation."""
    row = words[w.ROWS] + ring_slot(words, row_id) * words[w.ROW_BYTES] + frames[w.ROW_NEXT]
    return carray(int64_pointer(row), frames[w.STACK])[frames[w.STACK] - 1]


@helper
def needs(words: Any, frames: Any, row_id: Any, gone: Any) -> Any:
    """Whether a row needs a frame older than `gone`."""
    row = words[w.ROWS] + ring_slot(words, row_id) * words[w.ROW_BYTES]
    for at in (w.ROW_OBS, w.ROW_NEXT):
        ids = carray(int64_pointer(row + frames[at]), frames[w.STACK])
        for place in range(ids.shape[0]):
            if frames[w.FRAME_BASE] <= ids[place] and ids[place] < gone:
                return True
    return False


@helper
def evict_rows(words: Any) -> None:
    """Drop the rows that need frames whose slots others have taken."""
    frames = frame_words_of(words)
    room = frames[w.NUM_FRAMES] - frames[w.FRAME_START]
    gone = max(frames[w.FRAME_BASE], frames[w.NEXT_FRAME] - room)
    first = oldest_of_ring(words)
    if first == words[w.NEXT_ID]:
        return
    if newest_frame(words, frames, first) - frames[w.FRAMES_BEHIND] >= gone:
        return
    oldest = row_id = first
    while row_id < min(words[w.NEXT_ID], oldest + frames[w.ROWS_BEHIND]):
        if needs(words, frames, row_id, gone):
            oldest = row_id + 1
        row_id += 1
    if oldest == first:
        return
    slot = ring_slot(words, first)
    if words[w.TRACK_REUSE]:
        for row_id in range(first, oldest):
            retire(words, row_id + words[w.RING_CAPACITY])
    if words[w.WEIGHTING] != w.UNIFORM:
        fill(words, slot, oldest - first, np.float32(0))
    words[w.EVICTED_ROWS] += oldest - first
    words[w.OLDEST_ID] = oldest


@kernel
def _intern(
    header: Any,
    steps: Any,
    step_bytes: Any,
    rows: Any,
    count: Any,
    first_lane: Any,
    num_lanes: Any,
) -> None:
    words, _ = words_at(header)
    frames = frame_words_of(words)
    stack = frames[w.STACK]
    moves = words[w.FRAME_WORDS] + 8 * w.FIRST_MOVE
    moves = carray(int64_pointer(moves), (frames[w.NUM_MOVES], w.MOVE_WORDS))
    known = carray(int64_pointer(words[w.STACKS]), (words[w.NUM_LANES], stack))
    position = 0
    for i in range(count):
        step, row = steps + i * step_bytes, rows + i * words[w.ROW_BYTES]
        for m in range(moves.shape[0]):
            copy_bytes(row + moves[m, 1], step + moves[m, 0], moves[m, 2])
        lane = first_lane + position
        position = position + 1 if position + 1 < num_lanes else 0
        ids = carray(int64_pointer(row + frames[w.ROW_OBS]), stack)
        next_ids = carray(int64_pointer(row + frames[w.ROW_NEXT]), stack)
        obs = step + frames[w.STEP_OBS]
        intern_stack(words, frames, obs, ids, known[lane], 0, 0)
        size = frames[w.FRAME_SIZE]
        next_obs = step + frames[w.STEP_NEXT]
        intern_stack(words, frames, next_obs, next_ids, ids[1:], obs + size, size)
        known[lane] = next_ids
    evict_rows(words)


@kernel
def _evict(header: Any) -> None:
    words, _ = words_at(header)
    evict_rows(words)


def intern(state: State, steps: Tensor, rows: Tensor, lanes: range) -> None:
    """See `reference.intern`."""
    _intern(
        state.header,
        steps.data_ptr(),
        steps.shape[1],
        rows.data_ptr(),
        len(steps),
        lanes.start,
        len(lanes),
    )


def evict(state: State) -> None:
    """See `reference.evict`."""
    _evict(state.header)
