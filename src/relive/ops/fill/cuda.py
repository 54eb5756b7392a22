"""Filling a batch, in Triton: weights, fields, and the counters that the draw before it reads."""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.gather.cuda import copy_rows, ids_in, weights_in
from relive.ops.weights.cuda import CARRY, NEXT_SWEEP, NUMBER, THIS_TURN, TURN, weights_of
from relive.ops.window.cuda import slots_of


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


@triton.jit
def weigh(
    words,
    leaves,
    arena,
    notes,
    begin,
    count,
    first,
    total,
    SHARE: tl.constexpr,
    NORMALIZE: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Weights of TOGETHER rows of a batch, from `begin` on; 0 where nothing was drawn."""
    lane = begin + tl.arange(0, TOGETHER)
    inside = lane < count
    ids = tl.load(ids_in(arena) + first + lane, mask=inside, other=-1)
    held = ids >= 0
    slots = tl.where(held, slots_of(words, ids), 0)
    weight = weights_of(words, leaves, notes, slots, held, NORMALIZE, SHARE)
    tl.store(weights_in(arena, total) + first + lane, tl.where(held, weight, 0.0), mask=inside)


@triton.jit(do_not_specialize=["count", "first", "total", "weighers"])
def fill_batch(
    words,
    rows,
    frames,
    frame_words,
    leaves,
    ids,
    arena,
    notes,
    count,
    first,
    total,
    weighers,
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
    TILES: tl.constexpr,
    WEIGHED_TOGETHER: tl.constexpr,
    FRAME_BYTES: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """The first programs weigh and count what was drawn, the others copy."""
    program, all_rows = tl.program_id(0), total.to(tl.int64)
    if program < weighers:
        begin = program.to(tl.int64) * WEIGHED_TOGETHER
        if WEIGHTED:
            weigh(
                words,
                leaves,
                arena,
                notes,
                begin,
                count,
                first,
                all_rows,
                SHARE,
                NORMALIZE,
                WEIGHED_TOGETHER,
            )
        if program == 0:
            advance(words, notes, count.to(tl.int64), TRAIN, WEIGHTED)
    else:
        copier = (program - weighers).to(tl.int64)
        begin = copier // PIECES * (TOGETHER * TILES)
        for tile in range(TILES):
            copy_rows(
                words,
                rows,
                frames,
                frame_words,
                ids_in(ids),
                arena,
                begin + tile * TOGETHER,
                count,
                first,
                all_rows,
                copier % PIECES,
                ROW_BYTES,
                ROW_WORDS,
                FIELDS,
                NUM_FIELDS,
                PIECES,
                TOGETHER,
                FRAME_BYTES,
            )
