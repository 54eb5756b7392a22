"""Writing steps, in Numba: one call for all lanes and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from relive.batch import CACHE_LINE
from relive.fields import LAST_LINK
from relive.ops import words as w
from relive.ops.compiled import (
    byte_pointer,
    copy_bytes,
    float32_pointer,
    float64_pointer,
    helper,
    int32_pointer,
    int64_pointer,
    kernel,
    prefetch,
    words_at,
)
from relive.ops.pack.cpu import pack_row, table_of
from relive.ops.tree.cpu import bit_length, fill, new_leaf
from relive.ops.window.cpu import oldest_of_ring, ring_slot

PREFETCH_BYTES = 1 << 11  # how far ahead memory is asked for while rows are written in a row

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.pack.reference import Column
    from relive.ops.state import State


@helper
def lanes_of(words: Any) -> Any:
    """The words of every lane."""
    return carray(int64_pointer(words[w.LANES]), (words[w.NUM_LANES], w.LANE_WORDS))


@helper
def gammas_of(words: Any) -> Any:
    """gamma^k."""
    return carray(float64_pointer(words[w.GAMMAS]), words[w.N_STEP] + 1)


@helper
def float_at(address: Any) -> Any:
    """A float32 in memory, as an array of one."""
    return carray(float32_pointer(address), 1)


@helper
def flag_at(address: Any) -> Any:
    """A byte in memory, as an array of one."""
    return carray(byte_pointer(address), 1)


@helper
def row_at(words: Any, row_id: Any) -> Any:
    """Address of the slot of an id."""
    return words[w.ROWS] + ring_slot(words, row_id) * words[w.ROW_BYTES]


@helper
def is_live(words: Any, row_id: Any) -> Any:
    """Whether the ring still holds a row."""
    return oldest_of_ring(words) <= row_id and row_id < words[w.NEXT_ID]


@helper
def retire(words: Any, row_id: Any) -> None:
    """Count how often the row was drawn whose slot `row_id` takes, if there is one."""
    slot = ring_slot(words, row_id)
    uses = carray(int32_pointer(words[w.USES]), words[w.CAPACITY])
    if row_id - words[w.BASE_ID] >= words[w.RING_CAPACITY]:
        counts = carray(int64_pointer(words[w.REUSE_COUNTS]), w.HISTOGRAM_BINS)
        counts[bit_length(np.int64(uses[slot]))] += 1
    uses[slot] = 0


@helper
def links_of(row: Any) -> Any:
    """Lane, distance to the row before in the same episode, and to the one after."""
    return carray(int32_pointer(row), 3)


@helper
def distance_between(row_id: Any, previous: Any) -> Any:
    """What a link to the row before holds; 0 if there is none (-1), or it is too far away."""
    distance = row_id - previous if previous >= 0 else 0
    return distance if distance <= LAST_LINK else 0


@helper
def link_back(words: Any, row: Any, row_id: Any, previous: Any) -> None:
    """Tell the row before a new one, if it is still held, how far away its successor is."""
    distance = distance_between(row_id, previous)
    if distance > 0 and distance < words[w.RING_CAPACITY] and previous >= words[w.BASE_ID]:
        before = row - distance * words[w.ROW_BYTES]
        if before < words[w.ROWS] + words[w.RING_START] * words[w.ROW_BYTES]:
            before += words[w.RING_CAPACITY] * words[w.ROW_BYTES]
        links_of(before)[2] = distance


@helper
def place(words: Any, lane: Any, row: Any, row_id: Any, distance: Any, following: Any) -> None:
    """Make what lies in the slot of an id its row, with links to its lane's rows before and after.

    Args:
        distance, following: in ids; 0: there is none.
    """
    if words[w.TRACK_REUSE]:
        retire(words, row_id)
    links = links_of(row)
    links[0] = lane
    links[1] = distance
    links[2] = following


@helper
def has_ended(words: Any, row: Any) -> Any:
    """Whether a step is the last of its episode."""
    terminated = flag_at(row + words[w.TERMINATED_OFFSET])[0]
    return (terminated | flag_at(row + words[w.TRUNCATED_OFFSET])[0]) != 0


@helper
def discount_one(words: Any, row: Any) -> None:
    """Fill in the discount of a single step."""
    terminated = flag_at(row + words[w.TERMINATED_OFFSET])[0]
    discount = np.float32(0) if terminated else np.float32(gammas_of(words)[1])
    float_at(row + words[w.DISCOUNT_OFFSET])[0] = discount


@helper
def emit(words: Any, lane: Any, lane_words: Any, steps: Any, start: Any, count: Any) -> None:
    """Fold the `count` steps from `start` on, in a ring of n at address `steps`, into one row."""
    n = words[w.N_STEP]
    row_bytes = words[w.ROW_BYTES]
    gammas = gammas_of(words)
    last = steps + (start + count - 1) % n * row_bytes
    reward = 0.0
    for k in range(count - 1, -1, -1):
        step = steps + (start + k) % n * row_bytes
        reward = np.float64(float_at(step + words[w.REWARD_OFFSET])[0]) + gammas[1] * reward
    terminated = flag_at(last + words[w.TERMINATED_OFFSET])[0]
    truncated = flag_at(last + words[w.TRUNCATED_OFFSET])[0]
    row = row_at(words, words[w.NEXT_ID])
    copy_bytes(row, steps + start * row_bytes, row_bytes)
    float_at(row + words[w.REWARD_OFFSET])[0] = np.float32(reward)
    float_at(row + words[w.DISCOUNT_OFFSET])[0] = (
        np.float32(0) if terminated else np.float32(gammas[count])
    )
    flag_at(row + words[w.TERMINATED_OFFSET])[0] = terminated
    flag_at(row + words[w.TRUNCATED_OFFSET])[0] = truncated
    if count > 1:
        copy_bytes(row + words[w.NEXT_OFFSET], last + words[w.NEXT_OFFSET], words[w.NEXT_BYTES])
    row_id = words[w.NEXT_ID]
    words[w.NEXT_ID] += 1
    previous = lane_words[w.LANE_LAST]
    place(words, lane, row, row_id, distance_between(row_id, previous), 0)
    link_back(words, row, row_id, previous)
    lane_words[w.LANE_LAST] = row_id


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
def set_leaves(words: Any, reals: Any, first_id: Any) -> None:
    """Give the rows written since `first_id` the priority of new rows."""
    if words[w.WEIGHTING] == w.UNIFORM or words[w.NEXT_ID] == first_id:
        return
    first_live = max(first_id, words[w.NEXT_ID] - words[w.RING_CAPACITY])
    first_slot = ring_slot(words, first_live)
    count = words[w.NEXT_ID] - first_live
    if words[w.NEW_PRIORITY] == w.MAX_CURRENT:  # what is overwritten lives no more
        fill(words, first_slot, count, np.float32(0))
    fill(words, first_slot, count, new_leaf(words, reals))
    if words[w.WEIGHTING] == w.RANKED:
        errors = carray(float32_pointer(words[w.ERRORS]), words[w.CAPACITY])
        slot = first_slot
        for _ in range(count):
            errors[slot] = np.float32(np.inf)
            slot = slot + 1 if slot + 1 < words[w.CAPACITY] else words[w.RING_START]


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
def place_all(
    words: Any, lanes: Any, columns: Any, first: Any, count: Any, ready_made: Any
) -> None:
    """Pack the steps first..first + count where they will live, and make them rows.

    Whoever comes before a step here is num_lanes rows away, so nothing is carried from one step to
    the next; lanes are told of the last steps at the end.
    """
    first_lane, num_lanes = lanes
    every_lane = lanes_of(words)
    row_bytes = words[w.ROW_BYTES]  # words are read once: stores to rows might be stores to them
    discount, terminated = words[w.DISCOUNT_OFFSET], words[w.TERMINATED_OFFSET]
    truncated, tracks = words[w.TRUNCATED_OFFSET], words[w.TRACK_REUSE]
    gamma = np.float32(gammas_of(words)[1])
    ahead = max(row_bytes, PREFETCH_BYTES)
    row_id = words[w.NEXT_ID]
    row = row_at(words, row_id)
    words[w.NEXT_ID] += count
    stop = first + count
    position = first % num_lanes
    for i in range(first, stop):
        for offset in range(0, row_bytes, CACHE_LINE):
            prefetch(row + ahead + offset)
        pack_row(columns, i, row)
        if tracks:
            retire(words, row_id)
        lane = first_lane + position
        links = links_of(row)
        links[0] = lane
        links[1] = 0
        links[2] = 0
        if not ready_made:
            is_terminal = flag_at(row + terminated)[0]
            ended = (is_terminal | flag_at(row + truncated)[0]) != 0
            float_at(row + discount)[0] = np.float32(0) if is_terminal else gamma
            if i < first + num_lanes:
                links[1] = distance_between(row_id, every_lane[lane, w.LANE_LAST])
                link_back(words, row, row_id, every_lane[lane, w.LANE_LAST])
            else:
                before = row - num_lanes * row_bytes
                links[1] = links_of(before)[2]  # it has been told whether this row follows it
            if i + num_lanes >= stop:
                every_lane[lane, w.LANE_LAST] = -1 if ended else row_id
            elif not ended:
                links[2] = num_lanes
        row += row_bytes
        row_id += 1
        position = position + 1 if position + 1 < num_lanes else 0


@helper
def close_lanes(words: Any, lanes: Any) -> None:
    """End the episodes of lanes here, as truncated."""
    first_lane, num_lanes = lanes
    every_lane = lanes_of(words)
    for lane in range(first_lane, first_lane + num_lanes):
        close_lane(words, lane, every_lane[lane])


@kernel
def _write(header: Any, steps: Any) -> None:
    words, reals = words_at(header)
    first_id = words[w.NEXT_ID]
    push_all(words, (0, words[w.NUM_LANES]), steps, words[w.NUM_LANES], 0)
    set_leaves(words, reals, first_id)


@kernel
def _extend(
    header: Any,
    table: Any,
    num_columns: Any,
    count: Any,
    first_lane: Any,
    num_lanes: Any,
    ready_made: Any,
    close: Any,
    staging: Any,
    staging_rows: Any,
) -> None:
    words, reals = words_at(header)
    columns = carray(int64_pointer(table), (num_columns, 3))
    lanes = first_lane, num_lanes
    row_bytes = words[w.ROW_BYTES]
    first_id = words[w.NEXT_ID]
    every_step_is_a_row = ready_made or (
        words[w.N_STEP] == 1 and words[w.AUTORESET] != w.AUTORESET_NEXT_STEP
    )
    first = np.int64(0)
    while first < count:
        if every_step_is_a_row:
            slot = ring_slot(words, words[w.NEXT_ID])
            together = min(words[w.CAPACITY] - slot, count - first)
            place_all(words, lanes, columns, first, together, ready_made)
        else:
            together = min(staging_rows, count - first)
            for i in range(together):
                pack_row(columns, first + i, staging + i * row_bytes)
            push_all(words, lanes, staging, together, first % num_lanes)
        first += together
    if close:
        close_lanes(words, lanes)
    set_leaves(words, reals, first_id)


@kernel
def _flush(header: Any, first_lane: Any, num_lanes: Any) -> None:
    words, reals = words_at(header)
    first_id = words[w.NEXT_ID]
    close_lanes(words, (first_lane, num_lanes))
    set_leaves(words, reals, first_id)


def write(state: State, steps: Tensor) -> None:
    """See `reference.write`."""
    _write(state.header, steps.data_ptr())


def extend(
    state: State,
    columns: list[Column],
    count: int,
    lanes: range,
    staging: Tensor,
    *,
    ready_made: bool,
    close: bool,
) -> None:
    """See `reference.extend`."""
    table = table_of(columns)
    _extend(
        state.header,
        table.buffer_info()[0],
        len(columns),
        count,
        lanes.start,
        len(lanes),
        ready_made,
        close,
        staging.data_ptr(),
        len(staging),
    )


def flush(state: State, lanes: range) -> None:
    """See `reference.flush`."""
    _flush(state.header, lanes.start, len(lanes))
