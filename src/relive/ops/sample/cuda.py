"""Drawing a batch, in Triton: one launch draws, another copies rows and weighs them.

What is drawn is noted as ids in the arena, -1 where nothing can be drawn, so the second launch
needs nothing of its own but the notes of `weights.cuda`. It also moves the counters on, which the
first one reads. Nothing is refused: a batch of nothing has weights 0 and fields 0 and is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.gather.cuda import copy_rows, ids_in, weights_in
from relive.ops.gather.layout import GatherLayout, gather_layout
from relive.ops.launch import blocks, launch
from relive.ops.parts.cuda import before_in_part, find_parts, of_part, place
from relive.ops.philox.cuda import below, random_bits
from relive.ops.tree.cuda import bit_length, descend, real, store_real
from relive.ops.weights.cuda import (
    CARRY,
    INFINITE_BITS,
    NEXT_SWEEP,
    NUM_NOTES,
    NUMBER,
    OF_BATCH,
    SMALLEST,
    THIS_TURN,
    TURN,
    both_terms,
    lower_smallest,
    note_weights,
    ratios,
    weights_of,
)
from relive.ops.window.cuda import ids_of, slots_of

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

DRAWS_TOGETHER, MANY_DRAWS_TOGETHER = 32, 128  # of a program of one warp, or of four
MANY_DRAWS = 1 << 13


class Choices(NamedTuple):
    """What never changes of a buffer's sampling, compiled into its kernels."""

    weighted: bool
    stratified: bool
    share: bool  # of uniform draws among those by priority
    normalize: int
    mixture: bool
    track: bool
    levels: int
    rows: GatherLayout


@triton.jit
def mirrored(x):
    """32 bits in reverse order, int64 [*]."""
    x = ((x >> 1) & 0x55555555) | ((x & 0x55555555) << 1)
    x = ((x >> 2) & 0x33333333) | ((x & 0x33333333) << 2)
    x = ((x >> 4) & 0x0F0F0F0F) | ((x & 0x0F0F0F0F) << 4)
    x = ((x >> 8) & 0x00FF00FF) | ((x & 0x00FF00FF) << 8)
    return (x >> 16) | ((x & 0xFFFF) << 16)


@triton.jit
def stratum(index, count):
    """Which of `count` strata a draw comes from, int64 [B]; see `reference.stratum`."""
    slices = count & -count
    odd = count // slices
    return (index % odd) * slices + ((mirrored(index // odd) * slices) >> 32)


@triton.jit
def targets_of(mass, index, count, bits, STRATIFIED: tl.constexpr):
    """Where in the mass of its part each draw falls, int64 [B].

    Args:
        mass: Of the part, int64 [B].
        index: Number of the draw among `count` of its part, int64 [B].
        bits: uint64 [B].
    """
    if not STRATIFIED:
        return below(bits, mass)
    j = stratum(index, count)
    width = mass // count
    rest = mass - width * count
    low = j * width + j * rest // count
    high = (j + 1) * width + (j + 1) * rest // count
    return low + below(bits, high - low)


@triton.jit(do_not_specialize=["count", "first", "total"])
def draw_rows(
    words,
    leaves,
    sums,
    mins,
    uses,
    age_counts,
    bounds,
    notes,
    arena,
    count,
    first,
    total,
    TRAIN: tl.constexpr,
    RANGE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    STRATIFIED: tl.constexpr,
    SHARE: tl.constexpr,
    NORMALIZE: tl.constexpr,
    MIXTURE: tl.constexpr,
    TRACK: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,  # noqa: ARG001 - part of the cache's key
):
    """Program 0 notes what the next launch needs, the others draw BLOCK rows each."""
    size = count.to(tl.int64)
    number, starts, rows, mass, before, draws, share, carry = find_parts(
        words, leaves, sums, bounds, size, RANGE, WEIGHTED, LEVELS
    )
    if tl.program_id(0) == 0:
        tl.store(notes + NUMBER, number)
        sweep = (tl.load(words + w.SWEEP) + 1) % tl.load(words + w.SWEEP_LENGTH)
        tl.store(notes + NEXT_SWEEP, sweep)
        store_real(notes, CARRY, carry)
        if WEIGHTED:
            if number > 0:
                note_weights(
                    words,
                    leaves,
                    mins,
                    notes,
                    starts,
                    rows,
                    mass,
                    share,
                    number,
                    NORMALIZE,
                    MIXTURE,
                    SHARE,
                    LEVELS,
                )
    else:
        lane = (tl.program_id(0) - 1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = lane < size
        ids = tl.full([BLOCK], -1, tl.int64)
        if number > 0:
            position = tl.minimum(lane, size - 1)
            of_first = position * draws // size  # spread as evenly as can be
            second = (position + 1) * draws // size == of_first
            counter = w.DRAWS if TRAIN else w.EVAL_DRAWS
            stream = w.TRAIN_STREAM if TRAIN else w.EVAL_STREAM
            at = tl.load(words + counter) + position
            bits, others = random_bits(tl.load(words + w.SEED), at, stream)
            in_part = tl.where(second, of_part(rows, number, 1), of_part(rows, number, 0))
            row = below(bits, in_part)
            slots = place(row, before_in_part(rows, number), starts, number, second)
            if WEIGHTED:
                in_part = tl.where(second, of_part(mass, number, 1), of_part(mass, number, 0))
                index = tl.where(second, position - of_first, of_first)
                drawn = tl.where(second, size - draws, draws)
                targets = targets_of(in_part, index, drawn, bits, STRATIFIED)
                mass_before = before_in_part(mass, number)
                targets = place(targets, mass_before, before, number, second)
                found = descend(words, leaves, sums, targets, LEVELS)
                if SHARE:
                    uniform = (others >> 1).to(tl.int64) < tl.load(words + w.UNIFORM_SHARE)
                    slots = tl.where(uniform, slots, found)
                else:
                    slots = found
                if NORMALIZE == OF_BATCH:
                    a_0, b_0, a_1, b_1 = both_terms(words, rows, mass, share, number, MIXTURE)
                    leaf = tl.load(leaves + slots).to(tl.float64)
                    ratio = ratios(leaf, second, a_0, b_0, a_1, b_1, number, SHARE)
                    lower_smallest(notes, ratio, inside)
            ids = ids_of(words, slots)
            if TRACK and TRAIN:
                tl.atomic_add(uses + slots, 1, mask=inside, sem="relaxed")
                age = tl.load(words + w.NEXT_ID) - 1 - ids
                of_ring = inside & (slots >= tl.load(words + w.RING_START))
                bin = bit_length(tl.where(of_ring, age, 0))
                tl.atomic_add(age_counts + bin, 1, mask=of_ring, sem="relaxed")
        tl.store(ids_in(arena) + first + lane, ids, mask=inside)
        if not WEIGHTED:
            weight = tl.where(ids >= 0, 1.0, 0.0)
            tl.store(weights_in(arena, total.to(tl.int64)) + first + lane, weight, mask=inside)


@triton.jit
def advance(words, notes, count, TRAIN: tl.constexpr, WEIGHTED: tl.constexpr):
    """Count a batch that was drawn."""
    drawn = tl.load(notes + NUMBER) > 0
    counter = w.DRAWS if TRAIN else w.EVAL_DRAWS
    tl.atomic_add(words + counter, count, mask=drawn, sem="relaxed")
    tl.atomic_add(words + w.SAMPLED_ROWS, count, mask=drawn, sem="relaxed")
    tl.atomic_add(words + w.SAMPLES, 1, mask=drawn, sem="relaxed")
    tl.atomic_add(words + w.EMPTY_SAMPLES, 1, mask=drawn == 0, sem="relaxed")
    if TRAIN:
        tl.atomic_add(words + w.PROGRESS, 1, mask=drawn, sem="relaxed")
        tl.store(words + w.SWEEP, tl.load(notes + NEXT_SWEEP), mask=drawn)
        tl.store(words + w.DEMO_CARRY, tl.load(notes + CARRY), mask=drawn)
    if WEIGHTED:
        tl.store(notes + TURN, 1 - tl.load(notes + THIS_TURN), mask=drawn)


@triton.jit(do_not_specialize=["count", "first", "total"])
def gather_rows(
    words,
    rows,
    leaves,
    ids,
    arena,
    notes,
    count,
    first,
    total,
    DRAWN: tl.constexpr,
    TRAIN: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SHARE: tl.constexpr,
    NORMALIZE: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    ROW_WORDS: tl.constexpr,
    FIELDS: tl.constexpr,
    NUM_FIELDS: tl.constexpr,
    PIECES: tl.constexpr,
    TOGETHER: tl.constexpr,
    LAYOUT: tl.constexpr,  # noqa: ARG001 - part of the cache's key
):
    """Copy TOGETHER rows, or a piece of them, and weigh them if they were DRAWN by priority."""
    block, piece = tl.program_id(0), tl.program_id(1)
    lane = block.to(tl.int64) * TOGETHER + tl.arange(0, TOGETHER)
    inside = lane < count
    row, all_rows = first + lane, total.to(tl.int64)
    of_row = tl.load(ids_in(ids) + row, mask=inside, other=-1)
    held = of_row >= 0
    slots = tl.where(held, slots_of(words, of_row), 0)
    if DRAWN:
        if piece == 0:
            if WEIGHTED:
                weight = weights_of(words, leaves, notes, slots, held, NORMALIZE, SHARE)
                weight = tl.where(held, weight, 0.0)
                tl.store(weights_in(arena, all_rows) + row, weight, mask=inside)
            if block == 0:
                advance(words, notes, count.to(tl.int64), TRAIN, WEIGHTED)
    copy_rows(
        rows,
        arena,
        slots,
        row,
        inside,
        held,
        all_rows,
        piece,
        ROW_BYTES,
        ROW_WORDS,
        FIELDS,
        NUM_FIELDS,
        PIECES,
    )


def sample(
    state: State,
    arena: Tensor,
    batch_size: int,
    *,
    train: bool,
    ids: tuple[int, int] | Tensor | None = None,
    first: int = 0,
    total: int | None = None,
) -> int:
    """See `reference.sample`; the host does not wait, and nothing is refused.

    Args:
        ids: As there, or int64 [2] on the device, which a captured call reads anew each time.

    Returns:
        OK. Where nothing can be drawn, ids are -1, weights and fields 0, and it is counted.
    """
    choices, notes = _prepared(state)
    total = batch_size if total is None else total
    together = MANY_DRAWS_TOGETHER if batch_size >= MANY_DRAWS else DRAWS_TOGETHER
    launch(
        draw_rows,
        (1 + blocks(batch_size, together),),
        state.words,
        state.leaves,
        state.sums,
        state.mins,
        state.uses,
        state.age_counts,
        state.words if ids is None else _bounds(ids, state.words.device),
        notes,
        arena,
        batch_size,
        first,
        total,
        warps=max(1, together // 32),
        TRAIN=train,
        RANGE=ids is not None,
        WEIGHTED=choices.weighted,
        STRATIFIED=choices.stratified,
        SHARE=choices.share,
        NORMALIZE=choices.normalize,
        MIXTURE=choices.mixture,
        TRACK=choices.track,
        LEVELS=choices.levels,
        BLOCK=together,
    )
    _gather(state, arena, arena, batch_size, first, total, drawn=True, train=train)
    return w.OK


def gather(state: State, ids: Tensor, arena: Tensor) -> None:
    """See `reference.gather`; the host does not wait. An id of -1 gives zeros."""
    _gather(state, ids, arena, len(ids), 0, len(ids), drawn=False, train=False)


def _gather(
    state: State,
    ids: Tensor,
    arena: Tensor,
    count: int,
    first: int,
    total: int,
    *,
    drawn: bool,
    train: bool,
) -> None:
    choices, notes = _prepared(state)
    rows = choices.rows
    together = rows.rows_together(count)
    launch(
        gather_rows,
        (blocks(count, together), rows.pieces),
        state.words,
        state.rows,
        state.leaves,
        ids,
        arena,
        notes,
        count,
        first,
        total,
        DRAWN=drawn,
        TRAIN=train,
        WEIGHTED=choices.weighted,
        SHARE=choices.share,
        NORMALIZE=choices.normalize,
        ROW_BYTES=rows.row_bytes,
        ROW_WORDS=rows.row_words,
        FIELDS=rows.fields,
        NUM_FIELDS=len(rows.fields),
        PIECES=rows.pieces,
        TOGETHER=together,
    )


def _prepared(state: State) -> tuple[Choices, Tensor]:
    """What kernels are compiled with, and the notes; read and made once (waits on CUDA)."""
    if "sampling" not in state.workspace:
        words = state.words.tolist()
        notes = torch.zeros(NUM_NOTES, dtype=torch.int64, device=state.words.device)
        notes[SMALLEST.value : SMALLEST.value + 2].fill_(INFINITE_BITS)
        choices = Choices(
            weighted=words[w.WEIGHTING] != w.UNIFORM,
            stratified=bool(words[w.STRATIFIED]),
            share=words[w.UNIFORM_SHARE] > 0,
            normalize=words[w.NORMALIZE],
            mixture=bool(words[w.MIXTURE_WEIGHTS]),
            track=bool(words[w.TRACK_REUSE]),
            levels=words[w.NUM_LEVELS],
            rows=gather_layout(state.rows.shape[1], state.columns.tolist()),
        )
        state.workspace["sampling"] = choices, notes
    return state.workspace["sampling"]


def _bounds(ids: tuple[int, int] | Tensor, device: torch.device) -> Tensor:
    if isinstance(ids, tuple):
        return torch.tensor(ids).to(device, non_blocking=True)
    return ids
