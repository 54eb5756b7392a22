"""Which rows the steps of every lane become, and their ids, for Triton kernels.

`write.reference` takes one step after the other. Here all are looked at together: time 0 is the
first new step of every lane, the steps that wait lie before it, and time T, one past the last, is
when episodes are closed. With f the last time before t whose step did not end an episode, a
next-step autoreset makes the step at t a fake one if t - f is even: of consecutive ends every
other one is of a fake step. An episode begins at the last time b <= t that follows an end (and its
fake step); so at time t

    rows = min(t - b, n - 1) + 1    if the step ends its episode
           1                        if it does not, but fills a window: t - b >= n - 1
           0                        otherwise

and ids follow by a sum over all times and lanes. What comes of it is the plan, int64:

    [1]             the first id
    [L, LANE_WORDS] the words of the lanes before
    [T + 1, L]      the id of the first row that a time makes of a lane
    [T + 1, L]      b

n  steps folded into one row    L  lanes    T  times
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.pack.cuda import place_of
from relive.ops.window.cuda import oldest_before, ring_slot


def plan_words(num_lanes: int, times: int) -> int:
    """How many words a plan has."""
    return 1 + num_lanes * (w.LANE_WORDS + 2 * (times + 1))


@triton.jit
def lane_words_of(plan, lane):
    """Where the words of a lane are, as they were."""
    return plan + 1 + lane.to(tl.int64) * w.LANE_WORDS


@triton.jit
def first_id_at(plan, time, lane, LANES: tl.constexpr):
    """Where the id is of the first row that a time makes of a lane."""
    return plan + 1 + LANES * w.LANE_WORDS + time.to(tl.int64) * LANES + lane


@triton.jit
def begin_at(plan, times, time, lane, LANES: tl.constexpr):
    """Where the time is at which the episode of a step begins."""
    return first_id_at(plan, times + 1 + time, lane, LANES)


@triton.jit
def flag_of(words, columns, index, step, mask, PLACES: tl.constexpr):
    """A flag of given steps, by the word that says where it lies in a row."""
    place, mask = place_of(words, columns, tl.load(words + index), step, mask, PLACES)
    return tl.load(place, mask=mask, other=0) != 0


@triton.jit
def has_ended(words, columns, step, mask, PLACES: tl.constexpr):
    """Whether given steps are the last of their episodes."""
    terminated = flag_of(words, columns, w.TERMINATED_OFFSET, step, mask, PLACES)
    return terminated | flag_of(words, columns, w.TRUNCATED_OFFSET, step, mask, PLACES)


@triton.jit
def larger(a, b):
    """For a scan."""
    return tl.maximum(a, b)


@triton.jit
def count_rows(
    words,
    lanes,
    plan,
    columns,
    times,
    first_lane,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    CLOSE: tl.constexpr,
    PLACES: tl.constexpr,
    TILE_TIMES: tl.constexpr,
    TILE_LANES: tl.constexpr,
):
    """Write into the plan b, and how many rows each time makes of each lane; save the lanes' words.

    In the place of LANE_RESET the number of all rows of the lane is saved.
    """
    for tile in range(0, LANES, TILE_LANES):
        lane = tile + tl.arange(0, TILE_LANES)
        known = lane < LANES
        own = lanes + (first_lane + lane).to(tl.int64) * w.LANE_WORDS
        saved = lane_words_of(plan, lane)
        count = tl.load(own + w.LANE_COUNT, mask=known, other=0)
        tl.store(saved + w.LANE_COUNT, count, mask=known)
        start = tl.load(own + w.LANE_START, mask=known, other=0)
        tl.store(saved + w.LANE_START, start, mask=known)
        last = tl.load(own + w.LANE_LAST, mask=known, other=0)
        tl.store(saved + w.LANE_LAST, last, mask=known)
        reset = tl.load(own + w.LANE_RESET, mask=known, other=0)
        drops = (tl.load(words + w.AUTORESET + lane * 0) == w.AUTORESET_NEXT_STEP)[None, :]
        begin = tl.where(reset != 0, 1, -count).to(tl.int32)
        going = tl.where(reset != 0, -2, -1).to(tl.int32)
        made = tl.zeros((TILE_LANES,), tl.int32)
        dropped = tl.zeros((TILE_LANES,), tl.int32)
        for first_time in range(0, times + 1, TILE_TIMES):
            time = first_time + tl.arange(0, TILE_TIMES)[:, None]
            here = known[None, :] & (time <= times)
            step = time.to(tl.int64) * LANES + lane[None, :]
            ended = has_ended(words, columns, step, here & (time < times), PLACES)
            ended_before = has_ended(words, columns, step - LANES, here & (time > 0), PLACES)

            goes_on = tl.where(ended_before | (time == 0), -2, time - 1)
            goes_on = tl.maximum(tl.associative_scan(goes_on, 0, larger), going[None, :])
            fake = here & drops & ((time - goes_on) % 2 == 0)
            is_first = tl.where(drops, fake, ended_before)
            begins = tl.where(is_first, time + drops.to(tl.int32), -N_STEP)
            begins = tl.maximum(tl.associative_scan(begins, 0, larger), begin[None, :])
            place = begin_at(plan, times, time, lane[None, :], LANES)
            tl.store(place, begins.to(tl.int64), mask=here)

            waiting = tl.minimum(time - begins, N_STEP - 1)
            number = (waiting == N_STEP - 1).to(tl.int32)
            number = tl.where(ended & (fake == 0), waiting + 1, number)
            if CLOSE:
                number = tl.where(time == times, tl.maximum(waiting, 0), number)
            else:
                number = tl.where(time == times, 0, number)
            number = tl.where(here, number, 0)
            place = first_id_at(plan, time, lane[None, :], LANES)
            tl.store(place, number.to(tl.int64), mask=here)
            made += tl.sum(number, 0)
            dropped += tl.sum((fake & (time < times)).to(tl.int32), 0)
            begin = tl.max(begins, 0)
            going = tl.max(goes_on, 0)
        tl.store(saved + w.LANE_RESET, made.to(tl.int64), mask=known)
        dropped_rows = tl.sum(dropped, 0).to(tl.int64)
        tl.atomic_add(words + w.RESET_ROWS, dropped_rows, sem="relaxed")


@triton.jit
def number_rows(
    plan, next_id, times, LANES: tl.constexpr, CLOSE: tl.constexpr, NUMBERED: tl.constexpr
):
    """Make ids of numbers of rows, NUMBERED at once; returns the next id."""
    count = times.to(tl.int64) * LANES
    if CLOSE:
        count += LANES
    for start in range(0, count, NUMBERED):
        place = start + tl.arange(0, NUMBERED)
        first = plan + 1 + LANES * w.LANE_WORDS + place
        number = tl.load(first, mask=place < count, other=0)
        until = tl.cumsum(number, 0)
        tl.debug_barrier()  # more lanes than threads: who loads need not be who stores
        tl.store(first, next_id + until - number, mask=place < count)
        next_id += tl.sum(number, 0)
    return next_id


@triton.jit
def move_lanes(
    words,
    lanes,
    rows,
    plan,
    next_id,
    times,
    first_lane,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    CLOSE: tl.constexpr,
    TILE_LANES: tl.constexpr,
):
    """Bring the words of the lanes up to date."""
    oldest = oldest_before(words, next_id)
    for tile in range(0, LANES, TILE_LANES):
        lane = tile + tl.arange(0, TILE_LANES)
        known = lane < LANES
        saved = lane_words_of(plan, lane)
        start = tl.load(saved + w.LANE_START, mask=known, other=0)
        last = tl.load(saved + w.LANE_LAST, mask=known, other=-1)
        made = tl.load(saved + w.LANE_RESET, mask=known, other=0)
        begin = tl.load(begin_at(plan, times, times + lane * 0, lane, LANES), mask=known, other=0)
        waiting = tl.minimum(tl.maximum(times - begin, 0), N_STEP - 1)
        is_full = known & (times - begin >= N_STEP)
        newest = first_id_at(plan, times - 1 + lane * 0, lane, LANES)
        newest = tl.load(newest, mask=is_full, other=-1)
        newest = tl.where((begin <= 0) & (is_full == 0), last, newest)
        reset = (begin > times).to(tl.int64)
        if CLOSE:
            # A row of an earlier call is the last one only if no step has come since
            is_marked = known & (lane * 0 + times == 0) & (last >= oldest)
            mark = ring_slot(words, tl.where(is_marked, last, oldest)) * ROW_BYTES
            mark = rows + mark + tl.load(words + w.TRUNCATED_OFFSET)
            tl.store(mark, tl.full((TILE_LANES,), 1, tl.uint8), mask=is_marked)
            waiting, newest, reset = waiting * 0, newest * 0 - 1, reset * 0
        own = lanes + (first_lane + lane).to(tl.int64) * w.LANE_WORDS
        tl.store(own + w.LANE_COUNT, waiting, mask=known)
        tl.store(own + w.LANE_START, (start + made) % N_STEP, mask=known)
        tl.store(own + w.LANE_LAST, newest, mask=known)
        tl.store(own + w.LANE_RESET, reset, mask=known)


@triton.jit
def plan_rows(
    words,
    lanes,
    rows,
    plan,
    columns,
    times,
    first_lane,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    CLOSE: tl.constexpr,
    READY_MADE: tl.constexpr,
    PLACES: tl.constexpr,
    TILE_TIMES: tl.constexpr,
    TILE_LANES: tl.constexpr,
    NUMBERED: tl.constexpr,
):
    """Write the plan of all steps, bring the words of the lanes and NEXT_ID up to date.

    One program. If no step is given, a lane that is closed has its last row marked as truncated.

    Args:
        columns: Of T * L steps, see `pack.cuda`.

    Returns:
        The ids of the first new row, and of the next to come.
    """
    first_id = tl.load(words + w.NEXT_ID)
    if READY_MADE:
        next_id = first_id + times.to(tl.int64) * LANES
    else:
        count_rows(
            words,
            lanes,
            plan,
            columns,
            times,
            first_lane,
            LANES,
            N_STEP,
            CLOSE,
            PLACES,
            TILE_TIMES,
            TILE_LANES,
        )
        tl.debug_barrier()
        next_id = number_rows(plan, first_id, times, LANES, CLOSE, NUMBERED)
    tl.debug_barrier()  # all threads have read what is stored now
    tl.store(plan, first_id)
    tl.store(words + w.NEXT_ID, next_id)
    if not READY_MADE:
        move_lanes(
            words,
            lanes,
            rows,
            plan,
            next_id,
            times,
            first_lane,
            LANES,
            N_STEP,
            ROW_BYTES,
            CLOSE,
            TILE_LANES,
        )
    return first_id, next_id
