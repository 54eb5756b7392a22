"""Which rows the steps of every lane become, in Numba: one step after the other.

n  steps folded into one row
"""

from __future__ import annotations

from typing import Any

from numba import carray

from relive.ops import words as w
from relive.ops.compiled import copy_bytes, helper, int64_pointer
from relive.ops.rows.cpu import (
    discount_one,
    distance_between,
    emit,
    flag_at,
    has_ended,
    link_back,
    place,
    row_at,
)
from relive.ops.window.cpu import oldest_of_ring


@helper
def lanes_of(words: Any) -> Any:
    """The words of every lane."""
    return carray(int64_pointer(words[w.LANES]), (words[w.NUM_LANES], w.LANE_WORDS))


@helper
def emit_all(words: Any, lane: Any, lane_words: Any, steps: Any) -> None:
    """Fold every waiting step; the lane's episode is over."""
    n = words[w.N_STEP]
    start = lane_words[w.LANE_START]
    for left in range(lane_words[w.LANE_COUNT], 0, -1):
        emit(words, lane, lane_words, steps, start, left)
        start = (start + 1) % n
    lane_words[w.LANE_START] = start
    lane_words[w.LANE_COUNT] = 0
    lane_words[w.LANE_LAST] = -1


@helper
def push(words: Any, lane: Any, lane_words: Any, step: Any) -> None:
    """Take one step into a lane."""
    n = words[w.N_STEP]
    row_bytes = words[w.ROW_BYTES]
    if n == 1:  # nothing ever waits
        row_id = words[w.NEXT_ID]
        row = row_at(words, row_id)
        words[w.NEXT_ID] += 1
        copy_bytes(row, step, row_bytes)
        previous = lane_words[w.LANE_LAST]
        discount_one(words, row)
        place(words, lane, row, row_id, distance_between(row_id, previous), 0)
        link_back(words, row, row_id, previous)
        lane_words[w.LANE_LAST] = row_id
        if has_ended(words, row):
            lane_words[w.LANE_LAST] = -1
            if words[w.AUTORESET] == w.AUTORESET_NEXT_STEP:
                lane_words[w.LANE_RESET] = 1
        return
    waiting = words[w.PENDING] + lane * n * row_bytes
    ended = has_ended(words, step)
    start = lane_words[w.LANE_START]
    position = (start + lane_words[w.LANE_COUNT]) % n
    copy_bytes(waiting + position * row_bytes, step, row_bytes)
    lane_words[w.LANE_COUNT] += 1
    if ended:
        emit_all(words, lane, lane_words, waiting)
        if words[w.AUTORESET] == w.AUTORESET_NEXT_STEP:
            lane_words[w.LANE_RESET] = 1
    elif lane_words[w.LANE_COUNT] == n:
        emit(words, lane, lane_words, waiting, start, n)
        lane_words[w.LANE_START] = (start + 1) % n
        lane_words[w.LANE_COUNT] = n - 1


@helper
def push_all(words: Any, lanes: Any, steps: Any, count: Any, position: Any) -> None:
    """Take `count` packed steps, the first of them of the lane at `position` of the lanes."""
    first_lane, num_lanes = lanes
    every_lane = lanes_of(words)
    for i in range(count):
        lane = first_lane + position
        position = position + 1 if position + 1 < num_lanes else 0
        if every_lane[lane, w.LANE_RESET]:
            every_lane[lane, w.LANE_RESET] = 0
            words[w.RESET_ROWS] += 1
        else:
            push(words, lane, every_lane[lane], steps + i * words[w.ROW_BYTES])


@helper
def is_live(words: Any, row_id: Any) -> Any:
    """Whether the ring still holds a row."""
    return oldest_of_ring(words) <= row_id and row_id < words[w.NEXT_ID]


@helper
def close_lane(words: Any, lane: Any, lane_words: Any) -> None:
    """End a lane's episode here, as truncated."""
    n = words[w.N_STEP]
    waiting = words[w.PENDING] + lane * n * words[w.ROW_BYTES]
    count = lane_words[w.LANE_COUNT]
    if count > 0:
        last = waiting + (lane_words[w.LANE_START] + count - 1) % n * words[w.ROW_BYTES]
        flag_at(last + words[w.TRUNCATED_OFFSET])[0] = 1
    if is_live(words, lane_words[w.LANE_LAST]):  # the full window that ends with the same step
        flag_at(row_at(words, lane_words[w.LANE_LAST]) + words[w.TRUNCATED_OFFSET])[0] = 1
    emit_all(words, lane, lane_words, waiting)
    lane_words[w.LANE_RESET] = 0


@helper
def close_lanes(words: Any, lanes: Any) -> None:
    """End the episodes of lanes here, as truncated."""
    first_lane, num_lanes = lanes
    every_lane = lanes_of(words)
    for lane in range(first_lane, first_lane + num_lanes):
        close_lane(words, lane, every_lane[lane])
