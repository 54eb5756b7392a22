"""Writing steps, in Numba: one call for all lanes and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from relive.batch import CACHE_LINE
from relive.ops import words as w
from relive.ops.compiled import helper, int64_pointer, kernel, prefetch, words_at
from relive.ops.enter.cpu import enter_rows
from relive.ops.lanes.cpu import close_lanes, lanes_of, push_all
from relive.ops.pack.cpu import pack_row, table_of
from relive.ops.rows.cpu import (
    distance_between,
    flag_at,
    float_at,
    gammas_of,
    link_back,
    links_of,
    retire,
    row_at,
)
from relive.ops.window.cpu import ring_slot

PREFETCH_BYTES = 1 << 11  # how far ahead memory is asked for while rows are written in a row

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.pack.reference import Column
    from relive.ops.state import State


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


@kernel
def _write(header: Any, steps: Any) -> None:
    words, reals = words_at(header)
    first_id = words[w.NEXT_ID]
    push_all(words, (0, words[w.NUM_LANES]), steps, words[w.NUM_LANES], 0)
    enter_rows(words, reals, first_id)


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
    enter_rows(words, reals, first_id)


@kernel
def _flush(header: Any, first_lane: Any, num_lanes: Any) -> None:
    words, reals = words_at(header)
    first_id = words[w.NEXT_ID]
    close_lanes(words, (first_lane, num_lanes))
    enter_rows(words, reals, first_id)


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
        staging.shape[0],
    )


def flush(state: State, lanes: range) -> None:
    """See `reference.flush`."""
    _flush(state.header, lanes.start, len(lanes))
