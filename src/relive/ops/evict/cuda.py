"""Dropping the rows that need frames whose slots others have taken, for Triton: by one program.

See `frames.reference`. The oldest rows are looked at, some at a time, and on behind each that has
lost a frame. Most often one look at the oldest row says that all are whole.
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.enter.cuda import fill, slots_from
from relive.ops.rows.cuda import count_reuse
from relive.ops.window.cuda import oldest_of_ring, ring_slot

TOGETHER = tl.constexpr(256)  # rows that are looked at
LONGS = tl.constexpr(tl.pointer_type(tl.int64))


@triton.jit
def frames_of_row(rows, slot, offset, ROW_BYTES: tl.constexpr):
    """Where the ids of the frames of rows in some slots are, by their first bytes in a row."""
    return (rows + slot * ROW_BYTES + offset).to(LONGS)


@triton.jit
def have_lost(words, frame_words, rows, row_id, mask, gone, ROW_BYTES: tl.constexpr, STACK):
    """Which rows need a frame older than `gone`, bool [B].

    Args:
        row_id: int64 [B].
    """
    slot = ring_slot(words, row_id)
    base = tl.load(frame_words + w.FRAME_BASE)
    lost = row_id < 0
    for part in tl.static_range(2):
        offset = tl.load(frame_words + (w.ROW_NEXT if part else w.ROW_OBS))
        ids = frames_of_row(rows, slot, offset, ROW_BYTES)
        for place in range(STACK):
            frame = tl.load(ids + place, mask=mask, other=-1)
            lost = lost | (mask & (frame >= base) & (frame < gone))
    return lost


@triton.jit
def oldest_whole(words, frame_words, rows, first, gone, ROW_BYTES: tl.constexpr, STACK):
    """The id behind the last row from `first` on that has lost a frame, or `first`; int64 []."""
    stop = tl.load(words + w.NEXT_ID)
    behind = tl.load(frame_words + w.ROWS_BEHIND)
    oldest, row_id = first, first
    limit = tl.minimum(stop, oldest + behind)
    while row_id < limit:
        some = row_id + tl.arange(0, TOGETHER)
        lost = have_lost(words, frame_words, rows, some, some < limit, gone, ROW_BYTES, STACK)
        oldest = tl.maximum(oldest, tl.max(tl.where(lost, some + 1, 0), 0))
        row_id = tl.minimum(row_id + TOGETHER, limit)
        limit = tl.minimum(stop, oldest + behind)
    return oldest


@triton.jit
def drop_rows(
    words,
    leaves,
    sums,
    mins,
    maxs,
    uses,
    reuse_counts,
    first,
    oldest,
    TRACKS: tl.constexpr,
    PRIORITIZED: tl.constexpr,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
):
    """The rows first...oldest - 1, the oldest of the ring, are held no more."""
    slot, count = ring_slot(words, first), oldest - first
    if TRACKS:
        capacity = tl.load(words + w.RING_CAPACITY)
        for start in range(0, count, TOGETHER):
            k = start + tl.arange(0, TOGETHER)
            # as if those came that take their slots
            new_id, new_first = first + capacity + k, first + capacity
            slots = slots_from(words, slot, k)
            count_reuse(words, uses, reuse_counts, new_id, new_first, slots, k < count)
    if PRIORITIZED:
        zero = tl.full((), 0.0, tl.float32)
        fill(words, leaves, sums, mins, maxs, slot, count, zero, LEVELS, MINS, MAXS)
    tl.debug_barrier()
    tl.atomic_add(words + w.EVICTED_ROWS, count, sem="relaxed")
    tl.store(words + w.OLDEST_ID, oldest)


@triton.jit
def evict_rows(
    words,
    frame_words,
    rows,
    leaves,
    sums,
    mins,
    maxs,
    uses,
    reuse_counts,
    next_frame,
    STACK,
    ROW_BYTES: tl.constexpr,
    TRACKS: tl.constexpr,
    PRIORITIZED: tl.constexpr,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
):
    """Drop the rows that need frames which are gone once the next is `next_frame`."""
    room = tl.load(frame_words + w.NUM_FRAMES) - tl.load(frame_words + w.FRAME_START)
    gone = tl.maximum(tl.load(frame_words + w.FRAME_BASE), next_frame - room)
    first = oldest_of_ring(words)
    if first < tl.load(words + w.NEXT_ID):
        ids = frames_of_row(
            rows, ring_slot(words, first), tl.load(frame_words + w.ROW_NEXT), ROW_BYTES
        )
        newest = tl.load(ids + STACK - 1)
        if newest - tl.load(frame_words + w.FRAMES_BEHIND) < gone:
            oldest = oldest_whole(words, frame_words, rows, first, gone, ROW_BYTES, STACK)
            if oldest > first:
                drop_rows(
                    words,
                    leaves,
                    sums,
                    mins,
                    maxs,
                    uses,
                    reuse_counts,
                    first,
                    oldest,
                    TRACKS,
                    PRIORITIZED,
                    LEVELS,
                    MINS,
                    MAXS,
                )
