"""Keeping frames once, in Triton: three launches for any number of steps.

`reference` takes one frame after the other. Here each is first compared with the one it may be,
where its bytes are in the same call: one of an observation with the next observation of the same
lane one time before (at time 0 with what is kept of it), one of a next observation with the one
behind its place in the observation. So whether a frame is new needs no id.

    compare   KNOWN: it is that one; NEAR: not, but it is that in front of it in its stack; NEITHER
    number    with all frames in order, new ones have the ids from NEXT_FRAME on: a sum. What is
              KNOWN is followed back to a frame that is not, at most 2 k times, or to one of a call
              before. Then rows are dropped whose frames will be gone
    copy      new frames go to their slots, and all else of the steps into the rows

k  frames of a stack    L  lanes    S  steps    frame  2 k of a step: first those of the observation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from relive.frames import most_at_once
from relive.ops import words as w
from relive.ops.evict.cuda import evict_rows
from relive.ops.launch import blocks, launch, power_of_two
from relive.ops.nodes.cuda import MOST_REGISTERS, constants

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

TILE = 1024  # units that a program copies or compares at once
NUMBERED = tl.constexpr(1024)  # frames that get ids at once
NEITHER, KNOWN, NEAR = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
BYTES = tl.constexpr(tl.pointer_type(tl.uint8))
PAIRS = tl.constexpr(tl.pointer_type(tl.uint16))
WORDS = tl.constexpr(tl.pointer_type(tl.int32))
LONGS = tl.constexpr(tl.pointer_type(tl.int64))
# Which attribute of a `Move` is where.
SOURCE, TARGET, NBYTES, UNIT_OF_MOVE = (tl.constexpr(index) for index in range(4))


class Move(NamedTuple):
    """Bytes that a row takes over of a step.

    Attributes:
        source, target: The first of them in the step, and in the row.
        nbytes: How many.
        unit: As many are copied at once.
    """

    source: int
    target: int
    nbytes: int
    unit: int


class Shape(NamedTuple):
    """What never changes of the frames of a buffer, compiled into its kernels.

    Attributes:
        stack: k.
        size: Bytes of a frame.
        pitch: Bytes from one frame that is kept to the next.
        unit: Bytes that are read at once.
        step_obs, step_next, row_obs, row_next: As in `relive.frames.FrameLayout`.
        moves: As there.
    """

    stack: int
    size: int
    pitch: int
    unit: int
    step_obs: int
    step_next: int
    row_obs: int
    row_next: int
    moves: tuple[Move, ...]

    def tile(self, count: int) -> dict[str, int]:
        """How many of `count` frames a program looks at, and how much of them at once."""
        units = min(power_of_two(self.size // self.unit), TILE)
        return {"FRAMES": min(TILE // units, power_of_two(count)), "UNITS": units}


@triton.jit
def units(pointer, size: tl.constexpr):
    """A pointer to numbers of a size."""
    if size == 4:
        return pointer.to(WORDS)
    elif size == 2:  # noqa: RET505 - both branches are compiled alike
        return pointer.to(PAIRS)
    else:
        return pointer.to(BYTES)


@triton.jit
def slots_of_frames(frame_words, ids):
    """Slots of frames that are kept, int64 [*]."""
    base, start = tl.load(frame_words + w.FRAME_BASE), tl.load(frame_words + w.FRAME_START)
    ring = start + (ids - base) % (tl.load(frame_words + w.NUM_FRAMES) - start)
    return tl.where(ids >= base, ring, ids - tl.load(frame_words + w.DEMO_FIRST_FRAME))


@triton.jit
def frame_in(
    steps,
    frame,
    STACK: tl.constexpr,
    SIZE: tl.constexpr,
    STEP_BYTES: tl.constexpr,
    STEP_OBS: tl.constexpr,
    STEP_NEXT: tl.constexpr,
):
    """First bytes of frames of packed steps, pointers [R]; frame: of all of them, int64 [R]."""
    step, place = frame // (2 * STACK), frame % (2 * STACK)
    begin = tl.where(place < STACK, STEP_OBS, STEP_NEXT - STACK * SIZE)
    return steps + step * STEP_BYTES + begin + place * SIZE


@triton.jit
def one_before(frame, num_lanes, STACK: tl.constexpr):
    """The frame that one may be, int64 [R]: negative where it is one of a call before.

    The last frame of a next observation may be none.
    """
    of_next = frame % (2 * STACK) >= STACK
    return tl.where(of_next, frame - STACK + 1, frame + STACK - num_lanes * (2 * STACK))


@triton.jit
def kept_before(stacks, frame, first_lane, num_lanes, STACK: tl.constexpr):
    """Where the id is of a frame of a call before, pointers [R]; frame: as `one_before` has it."""
    last = frame + num_lanes * (2 * STACK)
    lane = first_lane + last // (2 * STACK)
    return stacks + lane * STACK + last % (2 * STACK) - STACK


@triton.jit
def are_equal(one, other, mask, SIZE: tl.constexpr, UNIT: tl.constexpr, UNITS: tl.constexpr):
    """Where two frames have the same bytes, bool [R]; one, other: pointers [R]."""
    count: tl.constexpr = SIZE // UNIT
    differ = tl.zeros((mask.shape[0], UNITS), tl.int32)
    for first in range(0, count, UNITS):
        unit = first + tl.arange(0, UNITS)[None, :]
        here = mask[:, None] & (unit < count)
        ours = tl.load(units(one, UNIT)[:, None] + unit, mask=here, other=0)
        theirs = tl.load(units(other, UNIT)[:, None] + unit, mask=here, other=0)
        differ = differ | (ours != theirs).to(tl.int32)
    return mask & (tl.max(differ, 1) == 0)


@triton.jit(do_not_specialize=["count", "first_lane", "num_lanes"])
def compare_frames(
    steps,
    frames,
    frame_words,
    stacks,
    notes,
    count,
    first_lane,
    num_lanes,
    STACK: tl.constexpr,
    SIZE: tl.constexpr,
    PITCH: tl.constexpr,
    UNIT: tl.constexpr,
    STEP_BYTES: tl.constexpr,
    STEP_OBS: tl.constexpr,
    STEP_NEXT: tl.constexpr,
    FRAMES: tl.constexpr,
    UNITS: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """Note of each of `count` frames whether it is KNOWN, NEAR or NEITHER, some a program."""
    frame = tl.program_id(0).to(tl.int64) * FRAMES + tl.arange(0, FRAMES)
    inside = frame < count
    here = frame_in(steps, frame, STACK, SIZE, STEP_BYTES, STEP_OBS, STEP_NEXT)
    before = one_before(frame, num_lanes, STACK)
    of_call = inside & (before >= 0)
    ids = kept_before(stacks, before, first_lane, num_lanes, STACK)
    ids = tl.load(ids, mask=inside & (before < 0), other=-1)
    there = frame_in(
        steps, tl.where(of_call, before, 0), STACK, SIZE, STEP_BYTES, STEP_OBS, STEP_NEXT
    )
    kept = frames + slots_of_frames(frame_words, ids) * PITCH
    there = tl.where(of_call, there, kept)
    is_last = frame % (2 * STACK) == 2 * STACK - 1
    may_be = (of_call & (is_last == 0)) | (ids >= 0)
    note = tl.where(are_equal(here, there, may_be, SIZE, UNIT, UNITS), KNOWN, NEITHER)
    others = inside & (note == NEITHER) & (frame % STACK > 0)
    if tl.max(others.to(tl.int32), 0) > 0:
        note = tl.where(are_equal(here, here - SIZE, others, SIZE, UNIT, UNITS), NEAR, note)
    tl.store(notes + frame, note, mask=inside)


@triton.jit
def are_new(notes, frame, note, mask):
    """Which frames are kept, bool [R]; one like that in front of it if that was there before.

    Args:
        note: Theirs, int32 [R].
    """
    in_front = tl.load(notes + frame - 1, mask=mask & (note == NEAR), other=NEITHER)
    return mask & (note != KNOWN) & ((note != NEAR) | (in_front == KNOWN))


@triton.jit
def id_in_row(
    rows,
    frame,
    STACK: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    ROW_OBS: tl.constexpr,
    ROW_NEXT: tl.constexpr,
):
    """Where rows have the ids of frames, pointers [R]."""
    step, place = frame // (2 * STACK), frame % (2 * STACK)
    begin = tl.where(place < STACK, ROW_OBS, ROW_NEXT - 8 * STACK)
    return (rows + step * ROW_BYTES + begin + 8 * place).to(LONGS)


@triton.jit
def number_new(frame_words, notes, fresh, count):
    """Write ids for all frames that are not KNOWN; returns the id of the next one."""
    next_frame = tl.load(frame_words + w.NEXT_FRAME)
    for start in range(0, count, NUMBERED):
        frame = start + tl.arange(0, NUMBERED)
        inside = frame < count
        note = tl.load(notes + frame, mask=inside, other=KNOWN)
        new = are_new(notes, frame, note, inside).to(tl.int32)
        tl.store(fresh + frame, next_frame + tl.cumsum(new, 0) - 1, mask=inside)
        next_frame += tl.sum(new, 0)
    return next_frame


@triton.jit
def tell_rows(
    stacks,
    notes,
    fresh,
    made,
    count,
    first_lane,
    num_lanes,
    STACK: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    ROW_OBS: tl.constexpr,
    ROW_NEXT: tl.constexpr,
):
    """Write the ids of all frames into the rows that are made."""
    for start in range(0, count, NUMBERED):
        frame = start + tl.arange(0, NUMBERED).to(tl.int64)
        inside = frame < count
        is_known = tl.load(notes + frame, mask=inside, other=NEITHER) == KNOWN
        found = frame
        for _ in range(2 * STACK):
            found = tl.where(is_known, one_before(found, num_lanes, STACK), found)
            is_known = is_known & (found >= 0)
            is_known = tl.load(notes + found, mask=is_known, other=NEITHER) == KNOWN
        was_kept = inside & (found < 0)
        kept = kept_before(stacks, found, first_lane, num_lanes, STACK)
        kept = tl.load(kept, mask=was_kept, other=0)
        new = tl.load(fresh + found, mask=inside & (found >= 0), other=0)
        at = id_in_row(made, frame, STACK, ROW_BYTES, ROW_OBS, ROW_NEXT)
        tl.store(at, tl.where(was_kept, kept, new), mask=inside)


@triton.jit
def remember_stacks(
    stacks,
    made,
    count,
    first_lane,
    num_lanes,
    STACK: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    ROW_OBS: tl.constexpr,
    ROW_NEXT: tl.constexpr,
):
    """The frames of the last next observation of each lane are what its next one may have."""
    number = num_lanes * STACK
    for start in range(0, number, NUMBERED):
        place = start + tl.arange(0, NUMBERED).to(tl.int64)
        frame = count - num_lanes * (2 * STACK) + place // STACK * STACK + STACK + place
        at = id_in_row(made, frame, STACK, ROW_BYTES, ROW_OBS, ROW_NEXT)
        ids = tl.load(at, mask=place < number, other=0)
        tl.store(stacks + first_lane * STACK + place, ids, mask=place < number)


@triton.jit(do_not_specialize=["count", "first_lane", "num_lanes"])
def number_frames(
    words,
    frame_words,
    stacks,
    notes,
    fresh,
    made,
    rows,
    leaves,
    sums,
    mins,
    maxs,
    uses,
    reuse_counts,
    count,
    first_lane,
    num_lanes,
    STACK: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    ROW_OBS: tl.constexpr,
    ROW_NEXT: tl.constexpr,
    TRACKS: tl.constexpr,
    PRIORITIZED: tl.constexpr,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """Give `count` frames their ids, which may be none, and drop rows: one program.

    Args:
        made: The rows that are made of the steps.
        rows: Those that are held.
    """
    next_frame = number_new(frame_words, notes, fresh, count)
    tl.debug_barrier()
    if count > 0:
        tl.store(frame_words + w.NEXT_FRAME, next_frame)
        tell_rows(
            stacks,
            notes,
            fresh,
            made,
            count,
            first_lane,
            num_lanes,
            STACK,
            ROW_BYTES,
            ROW_OBS,
            ROW_NEXT,
        )
        tl.debug_barrier()
        remember_stacks(
            stacks, made, count, first_lane, num_lanes, STACK, ROW_BYTES, ROW_OBS, ROW_NEXT
        )
    evict_rows(
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
        ROW_BYTES,
        TRACKS,
        PRIORITIZED,
        LEVELS,
        MINS,
        MAXS,
    )


@triton.jit
def copy_units(source, target, mask, COUNT: tl.constexpr, UNIT: tl.constexpr, UNITS: tl.constexpr):
    """Copy numbers that lie behind each other; source, target: pointers [R], mask: bool [R]."""
    for first in range(0, COUNT, UNITS):
        unit = first + tl.arange(0, UNITS)[None, :]
        here = mask[:, None] & (unit < COUNT)
        found = tl.load(units(source, UNIT)[:, None] + unit, mask=here, other=0)
        tl.store(units(target, UNIT)[:, None] + unit, found, mask=here)


@triton.jit
def keep_new(
    steps,
    made,
    frames,
    frame_words,
    notes,
    count,
    block,
    STACK: tl.constexpr,
    SIZE: tl.constexpr,
    PITCH: tl.constexpr,
    UNIT: tl.constexpr,
    STEP_BYTES: tl.constexpr,
    STEP_OBS: tl.constexpr,
    STEP_NEXT: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    ROW_OBS: tl.constexpr,
    ROW_NEXT: tl.constexpr,
    FRAMES: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Copy those of a block of FRAMES frames that are new into their slots."""
    frame = block * FRAMES + tl.arange(0, FRAMES)
    inside = frame < count
    note = tl.load(notes + frame, mask=inside, other=KNOWN)
    new = are_new(notes, frame, note, inside)
    if tl.max(new.to(tl.int32), 0) > 0:
        ids = id_in_row(made, frame, STACK, ROW_BYTES, ROW_OBS, ROW_NEXT)
        slot = slots_of_frames(frame_words, tl.load(ids, mask=new, other=0))
        source = frame_in(steps, frame, STACK, SIZE, STEP_BYTES, STEP_OBS, STEP_NEXT)
        copy_units(source, frames + slot * PITCH, new, SIZE // UNIT, UNIT, UNITS)


@triton.jit
def fill_rows(
    steps,
    made,
    count,
    block,
    STEP_BYTES: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    MOVES: tl.constexpr,
    STEPS: tl.constexpr,
    MOVED: tl.constexpr,
):
    """Copy all but the stacks of a block of STEPS of `count` steps into their rows."""
    step = block * STEPS + tl.arange(0, STEPS)
    for m in tl.static_range(len(MOVES)):
        source = steps + step * STEP_BYTES + MOVES[m][SOURCE]
        target = made + step * ROW_BYTES + MOVES[m][TARGET]
        number = MOVES[m][NBYTES] // MOVES[m][UNIT_OF_MOVE]
        copy_units(source, target, step < count, number, MOVES[m][UNIT_OF_MOVE], MOVED)


@triton.jit(do_not_specialize=["count", "keepers"])
def copy_frames(
    steps,
    made,
    frames,
    frame_words,
    notes,
    count,
    keepers,
    STACK: tl.constexpr,
    SIZE: tl.constexpr,
    PITCH: tl.constexpr,
    UNIT: tl.constexpr,
    STEP_BYTES: tl.constexpr,
    STEP_OBS: tl.constexpr,
    STEP_NEXT: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    ROW_OBS: tl.constexpr,
    ROW_NEXT: tl.constexpr,
    MOVES: tl.constexpr,
    FRAMES: tl.constexpr,
    UNITS: tl.constexpr,
    STEPS: tl.constexpr,
    MOVED: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """The first programs keep the new ones of `count` frames, the others fill in the rows."""
    program = tl.program_id(0).to(tl.int64)
    if program < keepers:
        keep_new(
            steps,
            made,
            frames,
            frame_words,
            notes,
            count,
            program,
            STACK,
            SIZE,
            PITCH,
            UNIT,
            STEP_BYTES,
            STEP_OBS,
            STEP_NEXT,
            ROW_BYTES,
            ROW_OBS,
            ROW_NEXT,
            FRAMES,
            UNITS,
        )
    else:
        block = program - keepers
        number = count // (2 * STACK)
        fill_rows(steps, made, number, block, STEP_BYTES, ROW_BYTES, MOVES, STEPS, MOVED)


def intern(state: State, steps: Tensor, rows: Tensor, lanes: range) -> None:
    """See `reference.intern`; three launches, and the host does not wait.

    Args:
        steps: At most `most_at_once`, of whole times; contiguous, as `rows`.
    """
    shape, notes, _ = shape_of(state)
    count = len(steps) * 2 * shape.stack
    assert count <= len(notes)
    assert len(steps) % len(lanes) == 0
    tile = shape.tile(count)
    keepers = blocks(count, tile["FRAMES"])
    in_steps = {
        "STACK": shape.stack,
        "SIZE": shape.size,
        "PITCH": shape.pitch,
        "UNIT": shape.unit,
        "STEP_BYTES": steps.shape[1],
        "STEP_OBS": shape.step_obs,
        "STEP_NEXT": shape.step_next,
    }
    launch(
        compare_frames,
        (keepers,),
        steps,
        state.frames,
        state.frame_words,
        state.stacks,
        notes,
        count,
        lanes.start,
        len(lanes),
        **in_steps,
        **tile,
    )
    _number(state, rows, count, lanes)
    moved = min(power_of_two(max(move.nbytes // move.unit for move in shape.moves)), TILE)
    together = min(TILE // moved, power_of_two(len(steps)))
    launch(
        copy_frames,
        (keepers + blocks(len(steps), together),),
        steps,
        rows,
        state.frames,
        state.frame_words,
        notes,
        count,
        keepers,
        **in_steps,
        ROW_BYTES=rows.shape[1],
        ROW_OBS=shape.row_obs,
        ROW_NEXT=shape.row_next,
        MOVES=shape.moves,
        **tile,
        STEPS=together,
        MOVED=moved,
    )


def evict(state: State) -> None:
    """See `reference.evict`; one launch, and the host does not wait."""
    _number(state, state.rows, 0, range(1))


def _number(state: State, made: Tensor, count: int, lanes: range) -> None:
    shape, notes, fresh = shape_of(state)
    launch(
        number_frames,
        (1,),
        state.words,
        state.frame_words,
        state.stacks,
        notes,
        fresh,
        made,
        state.rows,
        state.leaves,
        state.sums,
        state.mins,
        state.maxs,
        state.uses,
        state.reuse_counts,
        count,
        lanes.start,
        len(lanes),
        STACK=shape.stack,
        ROW_BYTES=state.rows.shape[1],
        ROW_OBS=shape.row_obs,
        ROW_NEXT=shape.row_next,
        TRACKS=len(state.uses) > 0,
        PRIORITIZED=len(state.leaves) > 0,
        **constants(state),
        warps=8,
        maxnreg=MOST_REGISTERS,
    )


def shape_of(state: State) -> tuple[Shape, Tensor, Tensor]:
    """What kernels are compiled with, and what one notes for the next; made once (waits on CUDA).

    Returns:
        The shape; what each frame of a call is, int32; the id that it has if it is new, int64.
    """
    if "frames" not in state.workspace:
        words: list[int] = state.frame_words.tolist()
        runs = (words[i : i + w.MOVE_WORDS] for i in range(w.FIRST_MOVE, len(words), w.MOVE_WORDS))
        shape = Shape(
            stack=words[w.STACK],
            size=words[w.FRAME_SIZE],
            pitch=words[w.FRAME_BYTES],
            unit=_unit_of(words[w.FRAME_SIZE], words[w.STEP_OBS], words[w.STEP_NEXT]),
            step_obs=words[w.STEP_OBS],
            step_next=words[w.STEP_NEXT],
            row_obs=words[w.ROW_OBS],
            row_next=words[w.ROW_NEXT],
            moves=tuple(Move(a, b, n, _unit_of(a, b, n)) for a, b, n in runs),
        )
        count = most_at_once(len(state.stacks)) * 2 * shape.stack
        notes = torch.zeros(count, dtype=torch.int32, device=state.words.device)
        state.workspace["frames"] = shape, notes, torch.zeros_like(notes, dtype=torch.int64)
    return state.workspace["frames"]


def _unit_of(*numbers: int) -> int:
    """The most bytes, up to a word, that all of these are multiples of."""
    return next(unit for unit in (4, 2, 1) if not any(number % unit for number in numbers))
