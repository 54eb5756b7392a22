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
from relive.ops.lanes.cuda import begin_at, first_id_at, lane_words_of
from relive.ops.nodes.cuda import bit_length
from relive.ops.pack.cuda import BYTES, WORDS, load_words, place_of
from relive.ops.window.cuda import oldest_before, ring_slot

FARTHEST = tl.constexpr(LAST_LINK)
FLOATS = tl.constexpr(tl.pointer_type(tl.float32))
TOGETHER = tl.constexpr(8)  # steps of a window that are read at the same time


@triton.jit
def waiting_at(own, oldest_place, time, N_STEP: tl.constexpr, ROW_BYTES: tl.constexpr):
    """Where steps are that wait, those of times before 0; packed, uint8* [*].

    Args:
        own: uint8* [*], the waiting steps of each one's lane.
        oldest_place: where time 0 would be in `own`.
    """
    return own + (oldest_place + time) % N_STEP * ROW_BYTES


@triton.jit
def load_part(
    words,
    columns,
    index,
    waiting,
    time,
    step,
    mask,
    TYPE: tl.constexpr,
    PLACES: tl.constexpr,
):
    """A part of steps, by the word that says where it lies in a row; [R].

    Args:
        waiting: where each is if it waits, see `waiting_at`.
        step: which each is if it was given.
    """
    offset = tl.load(words + index)
    waits = mask & (time < 0)
    given, is_given = place_of(words, columns, offset, step, mask & (time >= 0), PLACES)
    place = tl.where(waits, waiting + offset, given)
    return tl.load(place.to(TYPE), mask=waits | is_given, other=0)


@triton.jit
def fold(
    words,
    columns,
    gammas,
    own,
    oldest_place,
    lane,
    time,
    times,
    is_step,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    PLACES: tl.constexpr,
):
    """The windows that begin with some steps, followed from the last step to the first.

    Args:
        own, oldest_place: as in `waiting_at`.
        time: int64 [R].

    Returns:
        The return, float64; how many steps there are, int64; whether the last of them is
        terminated, and truncated; all [R].
    """
    reward = time.to(tl.float64) * 0.0
    length = time * 0
    terminated, truncated = tl.zeros_like(is_step), tl.zeros_like(is_step)
    gamma = tl.load(gammas + 1)
    for back in tl.range(0, N_STEP, loop_unroll_factor=TOGETHER):
        ahead = time + (N_STEP - 1 - back)
        exists = is_step & (ahead < times)
        step = ahead * LANES + lane
        waiting = waiting_at(own, oldest_place, ahead, N_STEP, ROW_BYTES)
        one = load_part(
            words, columns, w.REWARD_OFFSET, waiting, ahead, step, exists, FLOATS, PLACES
        ).to(tl.float64)
        terminates = load_part(
            words, columns, w.TERMINATED_OFFSET, waiting, ahead, step, exists, BYTES, PLACES
        )
        truncates = load_part(
            words, columns, w.TRUNCATED_OFFSET, waiting, ahead, step, exists, BYTES, PLACES
        )
        ends = (terminates | truncates) != 0
        reward = one + gamma * tl.where(ends, 0.0, reward)
        length = tl.where(exists, tl.where(ends, 1, length + 1), 0)
        terminated = tl.where(length == 1, terminates != 0, terminated)
        truncated = tl.where(length == 1, truncates != 0, truncated)
    return reward, length, terminated, truncated


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
def with_word(row, word, offset, value):
    """Rows in which the word at an offset is replaced.

    Args:
        row: int32 [R, W], words of 4 bytes.
        word: int32 [1, W], which of a row they are.
        value: int [R].
    """
    return tl.where(word == offset // 4, value.to(tl.int32)[:, None], row)


@triton.jit
def with_flag(row, word, offset, value):
    """Rows in which the byte at an offset is replaced; see `with_word`, value: bool [R]."""
    shift = ((offset % 4) * 8).to(tl.int32)
    byte = tl.full((1, 1), 255, tl.int32) << shift
    value = value.to(tl.int32)[:, None] << shift
    return tl.where(word == offset // 4, (row & ~byte) | value, row)


@triton.jit
def float_bits(value):
    """The bits of numbers as float32, int32."""
    return value.to(tl.float32).to(tl.int32, bitcast=True)


@triton.jit
def with_return(
    words,
    row,
    word,
    reward,
    discount,
    terminated,
    truncated,
    N_STEP: tl.constexpr,
):
    """Rows with what a window makes of them; row, word: as in `with_word`, others [R]."""
    if N_STEP > 1:  # else it stays as it was given
        row = with_word(row, word, tl.load(words + w.REWARD_OFFSET), float_bits(reward))
    row = with_word(row, word, tl.load(words + w.DISCOUNT_OFFSET), float_bits(discount))
    row = with_flag(row, word, tl.load(words + w.TERMINATED_OFFSET), terminated)
    return with_flag(row, word, tl.load(words + w.TRUNCATED_OFFSET), truncated)


@triton.jit
def count_reuse(words, uses, reuse_counts, row_id, first_id, slot, is_row):
    """Count how often the rows were drawn whose slots new ones take."""
    capacity = tl.load(words + w.RING_CAPACITY)
    is_oldest = is_row & (row_id - first_id < capacity)  # of the new rows of this slot
    drawn = tl.load(uses + slot, mask=is_oldest, other=0).to(tl.int64)
    first = tl.maximum(tl.load(words + w.BASE_ID), tl.load(words + w.OLDEST_ID))
    replaces = is_row & (row_id - capacity >= first)
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
    columns,
    rows,
    pending,
    gammas,
    uses,
    reuse_counts,
    plan,
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
    PLACES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
):
    """Make rows of a block of steps, where the plan says.

    Args:
        columns: Of T * L steps, see `pack.cuda`.
        first_time: that of the first step of block 0.
        block: of BLOCK_ROWS steps, by time and lane.
        piece, pieces: which of the pieces of BLOCK_WORDS words of each row this program copies.
    """
    item = block.to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    lane = item % LANES
    time = item // LANES + first_time
    is_row = time < times
    first_id, next_id = tl.load(plan), tl.load(words + w.NEXT_ID)
    oldest = oldest_before(words, next_id)
    own = pending + (first_lane + lane) * N_STEP * ROW_BYTES
    if READY_MADE:
        row_id, oldest_place = first_id + item, item * 0
        previous, following = item * 0 - 1, item * 0 - 1
        reward, discount, length = item.to(tl.float64), item.to(tl.float64), item
        terminated, truncated = is_row, is_row
    else:
        saved = lane_words_of(plan, lane)
        count = tl.load(saved + w.LANE_COUNT, mask=is_row, other=0)
        oldest_place = tl.load(saved + w.LANE_START, mask=is_row, other=0) + count
        begin = begin_at(plan, times, time, lane, LANES)
        begin = tl.load(begin, mask=is_row & (time >= 0), other=0)
        begin = tl.where(time < 0, -count, begin)
        is_row = is_row & (time >= begin)
        reward, length, terminated, truncated = fold(
            words,
            columns,
            gammas,
            own,
            oldest_place,
            lane,
            time,
            times,
            is_row,
            LANES,
            N_STEP,
            ROW_BYTES,
            PLACES,
        )
        is_over = terminated | truncated
        discount = tl.load(gammas + length, mask=is_row, other=0.0)
        discount = tl.where(terminated, 0.0, discount)
        if CLOSE:
            truncated = truncated | (time + length == times) & (is_over == 0)
        else:
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

    to = (rows + slot * ROW_BYTES).to(WORDS)[:, None]
    next_first = tl.load(words + w.NEXT_OFFSET)
    next_stop = next_first + tl.load(words + w.NEXT_BYTES)
    for number in range(piece, (ROW_BYTES // 4 + BLOCK_WORDS - 1) // BLOCK_WORDS, pieces):
        word = number * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS)[None, :]
        mask = is_row[:, None] & (word < ROW_BYTES // 4)
        source = time[:, None]
        if N_STEP > 1 and not READY_MADE:
            is_next = (word * 4 >= next_first) & (word * 4 < next_stop)
            source = tl.where(is_next, (time + length - 1)[:, None], source)
        given = mask & (source >= 0)
        row = load_words(words, columns, source * LANES + lane[:, None], word, given, PLACES)
        if N_STEP > 1 and not READY_MADE:
            waiting = waiting_at(own[:, None], oldest_place[:, None], source, N_STEP, ROW_BYTES)
            row |= tl.load(waiting.to(WORDS) + word, mask=mask & (source < 0), other=0)
        row = with_word(row, word, 0, first_lane + lane)
        row = with_word(row, word, 4, distance)
        row = with_word(row, word, 8, link_between(row_id, following))
        if not READY_MADE:
            row = with_return(words, row, word, reward, discount, terminated, truncated, N_STEP)
        tl.store(to + word, row, mask=mask)


@triton.jit
def keep_steps(
    words,
    columns,
    pending,
    lanes,
    times,
    first_lane,
    first_time,
    block,
    piece,
    pieces,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    PLACES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
):
    """Put those of a block of steps into their lanes that wait from now on; see `build_rows`."""
    item = block.to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    lane = item % LANES
    time = item // LANES + first_time
    given = (time >= 0) & (time < times)
    own = lanes + (first_lane + lane) * w.LANE_WORDS
    oldest = times - tl.load(own + w.LANE_COUNT, mask=given, other=0)
    waits = given & (time >= oldest)
    place = tl.load(own + w.LANE_START, mask=waits, other=0) + time - oldest
    place = (first_lane + lane) * N_STEP + place % N_STEP
    to = (pending + place * ROW_BYTES).to(WORDS)[:, None]
    step = (time * LANES + lane)[:, None]
    for number in range(piece, (ROW_BYTES // 4 + BLOCK_WORDS - 1) // BLOCK_WORDS, pieces):
        word = number * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS)[None, :]
        mask = waits[:, None] & (word < ROW_BYTES // 4)
        tl.store(to + word, load_words(words, columns, step, word, mask, PLACES), mask=mask)
