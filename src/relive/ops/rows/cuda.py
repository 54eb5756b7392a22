"""Folding steps into rows, for Triton kernels: every step by itself, as the plan of lanes says.

A step looks up to n - 1 steps ahead for the end of its window. It becomes a row of the ring if the
window is whole or its lane is closed.

n  steps folded into one row    L  lanes    T  times    R  steps looked at together
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.fields import LAST_LINK
from relive.ops import words as w
from relive.ops.lanes.cuda import begin_at, first_id_at, has_ended, lane_words_of, ring_slot
from relive.ops.nodes.cuda import bit_length

FARTHEST = tl.constexpr(LAST_LINK)
TOGETHER = tl.constexpr(8)  # steps of a window that are read at the same time


@triton.jit
def place_of(steps, time, lane, LANES: tl.constexpr, ROW_BYTES: tl.constexpr):
    """Where given steps are."""
    return steps + (time * LANES + lane) * ROW_BYTES


@triton.jit
def fold(
    words,
    gammas,
    own,
    steps,
    lane,
    time,
    times,
    oldest_place,
    is_step,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    ROW_BYTES: tl.constexpr,
):
    """The windows that begin with some steps, followed from the last step to the first.

    Args:
        own: uint8* [R], the waiting steps of each one's lane.
        time: int64 [R].
        oldest_place: where time 0 would be in `own`.

    Returns:
        The return, float64; how many steps there are, int64; whether the episode ends with them;
        where the first of them is, and the last; all [R].
    """
    reward = time.to(tl.float64) * 0.0
    length = time * 0
    is_over = tl.zeros_like(is_step)
    first = place_of(steps, time, lane, LANES, ROW_BYTES)
    last = first
    gamma = tl.load(gammas + 1)
    reward_offset = tl.load(words + w.REWARD_OFFSET)
    for back in tl.range(0, N_STEP, loop_unroll_factor=TOGETHER):
        ahead = time + (N_STEP - 1 - back)
        waits = own + (oldest_place + ahead) % N_STEP * ROW_BYTES
        first = tl.where(ahead < 0, waits, place_of(steps, ahead, lane, LANES, ROW_BYTES))
        exists = is_step & (ahead < times)
        ended = has_ended(words, first, exists)
        place = (first + reward_offset).to(tl.pointer_type(tl.float32))
        one = tl.load(place, mask=exists, other=0.0).to(tl.float64)
        reward = one + gamma * tl.where(ended, 0.0, reward)
        length = tl.where(exists, tl.where(ended, 1, length + 1), 0)
        is_over = exists & (ended | is_over)
        last = tl.where(length == 1, first, last)
    return reward, length, is_over, first, last


@triton.jit
def chain(
    plan,
    lane,
    time,
    times,
    begin,
    length,
    is_over,
    is_row,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    CLOSE: tl.constexpr,
):
    """Ids of rows, of those of the lane before them and of those after (-1: none), int64 [R]."""
    is_whole = is_over | (length == N_STEP)
    final = time + length - 1
    first = first_id_at(plan, tl.where(is_whole, final, times), lane, LANES)
    # The rows that one time makes of a lane have windows one shorter each, down to 1.
    longest = tl.where(is_whole, N_STEP, N_STEP - 1)
    number = tl.minimum(time - begin, longest - length)
    row_id = tl.load(first, mask=is_row, other=0) + number
    earlier = is_row & (time > begin) & (number == 0)
    previous = tl.load(first - LANES, mask=earlier, other=0)
    previous = tl.where(number == 0, previous, row_id - 1)
    last = tl.load(lane_words_of(plan, lane) + w.LANE_LAST, mask=is_row, other=-1)
    previous = tl.where(time > begin, previous, tl.where(begin <= 0, last, -1))
    # After a window that slides on, what waits becomes rows when the lane is closed, at time T
    stop = times + 1 if CLOSE and N_STEP > 1 else times
    slides = is_row & is_whole & (is_over == 0) & (final + 1 < stop)
    following = tl.load(first + LANES, mask=slides, other=-1)
    following = tl.where((is_over | (is_whole == 0)) & (length > 1), row_id + 1, following)
    return row_id, previous, following


@triton.jit
def with_part(row, word, offset, value, BYTES: tl.constexpr):
    """Rows in which the bytes at an offset are replaced.

    Args:
        row: int64 [R, W], words of 8 bytes.
        word: int [1, W], which of a row they are.
        value: int64 [R, 1].
    """
    shift = (offset % 8) * 8
    mask = tl.full((1, 1), (1 << (8 * BYTES)) - 1, tl.int64) << shift
    return tl.where(word == offset // 8, (row & ~mask) | ((value << shift) & mask), row)


@triton.jit
def float_bits(value):
    """The bits of numbers as float32, int64."""
    return value.to(tl.float32).to(tl.int32, bitcast=True).to(tl.int64)


@triton.jit
def with_return(
    words,
    gammas,
    row,
    word,
    reward,
    length,
    last,
    is_cut,
    is_row,
    N_STEP: tl.constexpr,
):
    """Rows with what a window makes of them.

    Args:
        row, word: as in `with_part`.
        last: uint8* [R], the last steps of the windows.
        is_cut: whether these are the last of their lanes, and the lanes are closed.
    """
    terminated_offset = tl.load(words + w.TERMINATED_OFFSET)
    truncated_offset = tl.load(words + w.TRUNCATED_OFFSET)
    terminated = tl.load(last + terminated_offset, mask=is_row, other=0) != 0
    truncated = (tl.load(last + truncated_offset, mask=is_row, other=0) != 0) | is_cut
    discount = tl.where(terminated, 0.0, tl.load(gammas + length, mask=is_row, other=0.0))
    if N_STEP > 1:  # else it stays as it was given
        reward_offset = tl.load(words + w.REWARD_OFFSET)
        row = with_part(row, word, reward_offset, float_bits(reward)[:, None], 4)
    discount_offset = tl.load(words + w.DISCOUNT_OFFSET)
    row = with_part(row, word, discount_offset, float_bits(discount)[:, None], 4)
    row = with_part(row, word, terminated_offset, terminated.to(tl.int64)[:, None], 1)
    return with_part(row, word, truncated_offset, truncated.to(tl.int64)[:, None], 1)


@triton.jit
def count_reuse(words, uses, reuse_counts, row_id, first_id, slot, is_row):
    """Count how often the rows were drawn whose slots new ones take."""
    capacity = tl.load(words + w.RING_CAPACITY)
    is_oldest = is_row & (row_id - first_id < capacity)  # of the new rows of this slot
    drawn = tl.load(uses + slot, mask=is_oldest, other=0).to(tl.int64)
    replaces = is_row & (row_id - tl.load(words + w.BASE_ID) >= capacity)
    tl.atomic_add(reuse_counts + bit_length(drawn), 1, mask=replaces, sem="relaxed")
    tl.debug_barrier()
    tl.store(uses + slot, 0, mask=is_oldest)


@triton.jit
def tell_before(words, rows, previous, distance, oldest, is_row, ROW_BYTES: tl.constexpr):
    """Tell the rows before some new ones, if they are held, how far away their successors are."""
    is_told = is_row & (previous >= oldest) & (distance > 0)
    place = rows + ring_slot(words, tl.where(is_told, previous, oldest)) * ROW_BYTES + 8
    tl.store(place.to(tl.pointer_type(tl.int32)), distance.to(tl.int32), mask=is_told)


@triton.jit
def link_between(earlier, later):
    """What a link holds; 0 if one of the rows is none (-1), or they are too far apart."""
    distance = tl.where((earlier >= 0) & (later >= 0), later - earlier, 0)
    return tl.where(distance <= FARTHEST, distance, 0)


@triton.jit
def build_rows(
    words,
    rows,
    pending,
    gammas,
    uses,
    reuse_counts,
    plan,
    steps,
    times,
    first_lane,
    first_time,
    block,
    piece,
    pieces,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    CLOSE: tl.constexpr,
    READY_MADE: tl.constexpr,
    TRACKS: tl.constexpr,
    ROWS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Make rows of a block of steps, where the plan says.

    Args:
        steps: uint8 [T, L, row_bytes].
        first_time: that of the first step of block 0.
        block: of ROWS steps, by time and lane.
        piece, pieces: which of the pieces of WORDS words of each row this program copies.
    """
    item = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lane = item % LANES
    time = item // LANES + first_time
    is_row = time < times
    first_id, next_id = tl.load(plan), tl.load(words + w.NEXT_ID)
    oldest = tl.maximum(tl.load(words + w.BASE_ID), next_id - tl.load(words + w.RING_CAPACITY))
    if READY_MADE:
        first = steps + item * ROW_BYTES
        last = first
        row_id = first_id + item
        previous, following = item * 0 - 1, item * 0 - 1
        reward, length, is_cut = item.to(tl.float64), item, is_row
    else:
        saved = lane_words_of(plan, lane)
        count = tl.load(saved + w.LANE_COUNT, mask=is_row, other=0)
        oldest_place = tl.load(saved + w.LANE_START, mask=is_row, other=0) + count
        begin = begin_at(plan, times, time, lane, LANES)
        begin = tl.load(begin, mask=is_row & (time >= 0), other=0)
        begin = tl.where(time < 0, -count, begin)
        is_row = is_row & (time >= begin)
        own = pending + (first_lane + lane) * N_STEP * ROW_BYTES
        reward, length, is_over, first, last = fold(
            words,
            gammas,
            own,
            steps,
            lane,
            time,
            times,
            oldest_place,
            is_row,
            LANES,
            N_STEP,
            ROW_BYTES,
        )
        is_cut = (time + length == times) & (is_over == 0)
        if not CLOSE:
            is_cut = tl.zeros_like(is_cut)
            is_row = is_row & (is_over | (length == N_STEP))
        row_id, previous, following = chain(
            plan, lane, time, times, begin, length, is_over, is_row, LANES, N_STEP, CLOSE
        )
    slot = ring_slot(words, tl.where(is_row, row_id, oldest))
    distance = link_between(previous, row_id)
    leads = item * 0 + piece == 0  # one program of those that share rows does what is not copied
    if TRACKS:
        count_reuse(words, uses, reuse_counts, row_id, first_id, slot, is_row & leads)
    is_row = is_row & (row_id >= oldest)  # the others are overwritten by the same call
    # Rows of this call find out by themselves.
    is_told = is_row & leads & (previous < first_id)
    tell_before(words, rows, previous, distance, oldest, is_told, ROW_BYTES)

    from_first = first.to(tl.pointer_type(tl.int64))[:, None]
    from_last = last.to(tl.pointer_type(tl.int64))[:, None]
    to = (rows + slot * ROW_BYTES).to(tl.pointer_type(tl.int64))[:, None]
    next_first = tl.load(words + w.NEXT_OFFSET)
    next_stop = next_first + tl.load(words + w.NEXT_BYTES)
    for number in range(piece, (ROW_BYTES // 8 + WORDS - 1) // WORDS, pieces):
        word = number * WORDS + tl.arange(0, WORDS)[None, :]
        mask = is_row[:, None] & (word < ROW_BYTES // 8)
        is_next = (word * 8 >= next_first) & (word * 8 < next_stop)
        row = tl.load(tl.where(is_next, from_last, from_first) + word, mask=mask, other=0)
        row = with_part(row, word, 0, (first_lane + lane)[:, None], 4)
        row = with_part(row, word, 4, distance[:, None], 4)
        row = with_part(row, word, 8, link_between(row_id, following)[:, None], 4)
        if not READY_MADE:
            row = with_return(
                words, gammas, row, word, reward, length, last, is_cut, is_row, N_STEP
            )
        tl.store(to + word, row, mask=mask)


@triton.jit
def keep_steps(
    pending,
    lanes,
    steps,
    times,
    first_lane,
    first_time,
    block,
    piece,
    pieces,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    ROWS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Put those of a block of steps into their lanes that wait from now on; see `build_rows`."""
    item = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lane = item % LANES
    time = item // LANES + first_time
    given = (time >= 0) & (time < times)
    own = lanes + (first_lane + lane) * w.LANE_WORDS
    oldest = times - tl.load(own + w.LANE_COUNT, mask=given, other=0)
    waits = given & (time >= oldest)
    place = tl.load(own + w.LANE_START, mask=waits, other=0) + time - oldest
    place = (first_lane + lane) * N_STEP + place % N_STEP
    step = place_of(steps, time, lane, LANES, ROW_BYTES).to(tl.pointer_type(tl.int64))[:, None]
    to = (pending + place * ROW_BYTES).to(tl.pointer_type(tl.int64))[:, None]
    for number in range(piece, (ROW_BYTES // 8 + WORDS - 1) // WORDS, pieces):
        word = number * WORDS + tl.arange(0, WORDS)[None, :]
        mask = waits[:, None] & (word < ROW_BYTES // 8)
        tl.store(to + word, tl.load(step + word, mask=mask), mask=mask)
