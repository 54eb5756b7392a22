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
def ring_slot(words, row_id):
    """Slot of a row of the ring."""
    ring = (row_id - tl.load(words + w.BASE_ID)) % tl.load(words + w.RING_CAPACITY)
    return tl.load(words + w.RING_START) + ring


@triton.jit
def has_ended(words, step, mask):
    """Whether steps are the last of their episodes."""
    terminated = tl.load(step + tl.load(words + w.TERMINATED_OFFSET), mask=mask, other=0)
    truncated = tl.load(step + tl.load(words + w.TRUNCATED_OFFSET), mask=mask, other=0)
    return mask & ((terminated | truncated) != 0)


@triton.jit
def larger(a, b):
    """For a scan."""
    return tl.maximum(a, b)


@triton.jit
def plan_ready_made(words, plan, times, LANES: tl.constexpr):
    """Each step is a row."""
    first_id = tl.load(words + w.NEXT_ID)
    tl.debug_barrier()
    tl.store(plan, first_id)
    tl.store(words + w.NEXT_ID, first_id + times.to(tl.int64) * LANES)


@triton.jit
def plan_rows(
    words,
    lanes,
    rows,
    plan,
    steps,
    times,
    first_lane,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    CLOSE: tl.constexpr,
    TILE_TIMES: tl.constexpr,
    TILE_LANES: tl.constexpr,
):
    """Write the plan of all steps, bring the words of the lanes and NEXT_ID up to date.

    One program. If no step is given, a lane that is closed has its last row marked as truncated.

    Args:
        lanes, rows: of the state.
        steps: uint8 [T, L, row_bytes].
    """
    lane = tl.arange(0, TILE_LANES)
    known = lane < LANES
    own = lanes + (first_lane + lane).to(tl.int64) * w.LANE_WORDS
    count = tl.load(own + w.LANE_COUNT, mask=known, other=0)
    start = tl.load(own + w.LANE_START, mask=known, other=0)
    last = tl.load(own + w.LANE_LAST, mask=known, other=-1)
    reset = tl.load(own + w.LANE_RESET, mask=known, other=0)
    before = lane_words_of(plan, lane)
    tl.store(before + w.LANE_COUNT, count, mask=known)
    tl.store(before + w.LANE_START, start, mask=known)
    tl.store(before + w.LANE_LAST, last, mask=known)
    first_id = tl.load(words + w.NEXT_ID)
    tl.store(plan, first_id)
    drops = (tl.load(words + w.AUTORESET + lane * 0) == w.AUTORESET_NEXT_STEP)[None, :]

    begin = tl.where(reset != 0, 1, -count).to(tl.int32)
    going = tl.where(reset != 0, -2, -1).to(tl.int32)
    next_id = first_id
    newest = tl.full((TILE_LANES,), -1, tl.int64)
    made = tl.zeros((TILE_LANES,), tl.int32)
    final_begin = tl.zeros((TILE_LANES,), tl.int32)
    final_fake = tl.zeros((TILE_LANES,), tl.int32)
    dropped = first_id * 0
    for first_time in range(0, times + 1, TILE_TIMES):
        time = first_time + tl.arange(0, TILE_TIMES)[:, None]
        here = known[None, :] & (time <= times)
        is_last = here & (time == times)
        step = steps + (time.to(tl.int64) * LANES + lane[None, :]) * ROW_BYTES
        ended = has_ended(words, step, here & (time < times))
        ended_before = has_ended(words, step - LANES * ROW_BYTES, here & (time > 0))

        goes_on = tl.where(ended_before | (time == 0), -2, time - 1)
        goes_on = tl.maximum(tl.associative_scan(goes_on, 0, larger), going[None, :])
        fake = here & drops & ((time - goes_on) % 2 == 0)
        is_first = tl.where(drops, fake, ended_before)
        begins = tl.where(is_first, time + drops.to(tl.int32), -N_STEP)
        begins = tl.maximum(tl.associative_scan(begins, 0, larger), begin[None, :])

        waiting = tl.minimum(time - begins, N_STEP - 1)
        number = tl.where(ended & (fake == 0), waiting + 1, (waiting == N_STEP - 1).to(tl.int32))
        number = tl.where(is_last, tl.maximum(waiting, 0) if CLOSE else 0, number)
        number = tl.where(here, number, 0)
        of_time = tl.sum(number, 1)
        rows_before = (tl.cumsum(of_time, 0) - of_time)[:, None] + tl.cumsum(number, 1) - number
        first = next_id + rows_before
        tl.store(first_id_at(plan, time, lane[None, :], LANES), first, mask=here)
        begin_place = begin_at(plan, times, time, lane[None, :], LANES)
        tl.store(begin_place, begins.to(tl.int64), mask=here)

        next_id += tl.sum(of_time, 0)
        is_new = (number > 0) & (is_last == 0)
        newest = tl.maximum(newest, tl.max(tl.where(is_new, first + number - 1, -1), 0))
        made += tl.sum(number, 0)
        dropped += tl.sum(tl.sum((fake & (time < times)).to(tl.int32), 1), 0)
        final_begin += tl.sum(tl.where(is_last, begins, 0), 0)
        final_fake += tl.sum((fake & is_last).to(tl.int32), 0)
        begin = tl.max(begins, 0)
        going = tl.max(goes_on, 0)

    tl.debug_barrier()  # what is stored now has been read by all threads
    tl.store(words + w.NEXT_ID, next_id)
    tl.atomic_add(words + w.RESET_ROWS, dropped, sem="relaxed")
    waiting = tl.minimum(tl.maximum(times - final_begin, 0), N_STEP - 1)
    # With a full window the newest row is of this episode; if it went on without, none is newer.
    unchanged = tl.where(final_begin <= 0, last, -1)
    newest = tl.where(times - final_begin >= N_STEP, newest, unchanged)
    tl.store(own + w.LANE_COUNT, (waiting * 0 if CLOSE else waiting).to(tl.int64), mask=known)
    tl.store(own + w.LANE_START, (start + made) % N_STEP, mask=known)
    tl.store(own + w.LANE_LAST, newest * 0 - 1 if CLOSE else newest, mask=known)
    tl.store(own + w.LANE_RESET, (final_fake * 0 if CLOSE else final_fake).to(tl.int64), mask=known)
    if CLOSE:
        oldest = tl.maximum(tl.load(words + w.BASE_ID), next_id - tl.load(words + w.RING_CAPACITY))
        truncated = ring_slot(words, last) * ROW_BYTES + tl.load(words + w.TRUNCATED_OFFSET)
        is_held = known & (lane * 0 + times == 0) & (last >= oldest)
        tl.store(rows + truncated, tl.full((TILE_LANES,), 1, tl.uint8), mask=is_held)
