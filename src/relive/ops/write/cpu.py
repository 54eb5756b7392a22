"""Writing steps, in Numba: one call for all lanes and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

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
    words_at,
)
from relive.ops.tree.cpu import bit_length, fill, new_leaf

if TYPE_CHECKING:
    from torch import Tensor

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
    return words[w.ROWS] + (row_id - words[w.BASE_ID]) % words[w.CAPACITY] * words[w.ROW_BYTES]


@helper
def is_live(words: Any, row_id: Any) -> Any:
    """Whether the ring still holds a row."""
    oldest = max(words[w.BASE_ID], words[w.NEXT_ID] - words[w.CAPACITY])
    return oldest <= row_id and row_id < words[w.NEXT_ID]


@helper
def retire(words: Any, row_id: Any) -> None:
    """Count how often the row was drawn whose slot `row_id` takes, if there is one."""
    slot = (row_id - words[w.BASE_ID]) % words[w.CAPACITY]
    uses = carray(int32_pointer(words[w.USES]), words[w.CAPACITY])
    if row_id - words[w.BASE_ID] >= words[w.CAPACITY]:
        counts = carray(int64_pointer(words[w.REUSE_COUNTS]), w.HISTOGRAM_BINS)
        counts[bit_length(np.int64(uses[slot]))] += 1
    uses[slot] = 0


@helper
def commit(words: Any, lane: Any, source: Any, previous: Any) -> Any:
    """Copy a row to the slot of the next id and link it to its predecessor; returns its address."""
    row_id = words[w.NEXT_ID]
    if words[w.TRACK_REUSE]:
        retire(words, row_id)
    words[w.NEXT_ID] += 1
    distance = row_id - previous if previous >= 0 else 0
    if distance > LAST_LINK:
        distance = 0
    target = row_at(words, row_id)
    copy_bytes(target, source, words[w.ROW_BYTES])
    links = carray(int32_pointer(target), 3)
    links[0] = lane
    links[1] = distance
    links[2] = 0
    if distance > 0 and is_live(words, previous):
        carray(int32_pointer(row_at(words, previous)), 3)[2] = distance
    return target


@helper
def emit(words: Any, lane: Any, lane_words: Any, steps: Any, start: Any, count: Any) -> None:
    """Fold the `count` steps from `start` on, in a ring of n at address `steps`, into one row."""
    n = words[w.N_STEP]
    row_bytes = words[w.ROW_BYTES]
    gammas = gammas_of(words)
    first = steps + start * row_bytes
    last = steps + (start + count - 1) % n * row_bytes
    reward = 0.0
    for k in range(count - 1, -1, -1):
        step = steps + (start + k) % n * row_bytes
        reward = np.float64(float_at(step + words[w.REWARD_OFFSET])[0]) + gammas[1] * reward
    terminated = flag_at(last + words[w.TERMINATED_OFFSET])[0]
    truncated = flag_at(last + words[w.TRUNCATED_OFFSET])[0]
    lane_words[w.LANE_LAST], previous = words[w.NEXT_ID], lane_words[w.LANE_LAST]
    row = commit(words, lane, first, previous)
    float_at(row + words[w.REWARD_OFFSET])[0] = np.float32(reward)
    float_at(row + words[w.DISCOUNT_OFFSET])[0] = (
        np.float32(0) if terminated else np.float32(gammas[count])
    )
    flag_at(row + words[w.TERMINATED_OFFSET])[0] = terminated
    flag_at(row + words[w.TRUNCATED_OFFSET])[0] = truncated
    if count > 1:
        copy_bytes(row + words[w.NEXT_OFFSET], last + words[w.NEXT_OFFSET], words[w.NEXT_BYTES])


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
    waiting = words[w.PENDING] + lane * n * words[w.ROW_BYTES]
    ended = (
        flag_at(step + words[w.TERMINATED_OFFSET])[0] | flag_at(step + words[w.TRUNCATED_OFFSET])[0]
    )
    if n == 1:  # nothing ever waits
        emit(words, lane, lane_words, step, 0, 1)
        if ended:
            lane_words[w.LANE_LAST] = -1
    else:
        start = lane_words[w.LANE_START]
        position = (start + lane_words[w.LANE_COUNT]) % n
        copy_bytes(waiting + position * words[w.ROW_BYTES], step, words[w.ROW_BYTES])
        lane_words[w.LANE_COUNT] += 1
        if ended:
            emit_all(words, lane, lane_words, waiting)
        elif lane_words[w.LANE_COUNT] == n:
            emit(words, lane, lane_words, waiting, start, n)
            lane_words[w.LANE_START] = (start + 1) % n
            lane_words[w.LANE_COUNT] = n - 1
    if ended and words[w.AUTORESET] == w.AUTORESET_NEXT_STEP:
        lane_words[w.LANE_RESET] = 1


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
    capacity = words[w.CAPACITY]
    first_live = max(first_id, words[w.NEXT_ID] - capacity)
    first_slot = (first_live - words[w.BASE_ID]) % capacity
    count = words[w.NEXT_ID] - first_live
    if words[w.NEW_PRIORITY] == w.MAX_CURRENT:  # what is overwritten lives no more
        fill(words, first_slot, count, np.float32(0))
    fill(words, first_slot, count, new_leaf(words, reals))


@kernel
def _write(
    header: Any,
    steps: Any,
    num_steps: Any,
    first_lane: Any,
    num_lanes: Any,
    ready_made: Any,
    close: Any,
) -> None:
    words, reals = words_at(header)
    lanes = lanes_of(words)
    first_id = words[w.NEXT_ID]
    step = steps
    for _ in range(num_steps):
        for lane in range(first_lane, first_lane + num_lanes):
            if ready_made:
                commit(words, lane, step, -1)
            elif lanes[lane, w.LANE_RESET]:
                lanes[lane, w.LANE_RESET] = 0
                words[w.RESET_ROWS] += 1
            else:
                push(words, lane, lanes[lane], step)
            step += words[w.ROW_BYTES]
    if close:
        for lane in range(first_lane, first_lane + num_lanes):
            close_lane(words, lane, lanes[lane])
    set_leaves(words, reals, first_id)


def write(
    state: State, steps: Tensor, first_lane: int, *, ready_made: bool = False, close: bool = False
) -> None:
    """See `reference.write`."""
    num_steps, num_lanes, _ = steps.shape
    _write(state.header, steps.data_ptr(), num_steps, first_lane, num_lanes, ready_made, close)


def flush(state: State, first_lane: int, num_lanes: int) -> None:
    """See `reference.flush`."""
    _write(state.header, 0, 0, first_lane, num_lanes, False, True)
