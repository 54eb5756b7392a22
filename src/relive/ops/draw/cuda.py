"""Drawing rows in Triton: which slots a batch has, by the definitions of `sample.reference`.

All programs find the parts of the batch anew: they are a handful of numbers, and no other program
needs to be waited for.
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.descent.cuda import find_slots
from relive.ops.gather.cuda import ids_in, weights_in
from relive.ops.nodes.cuda import bit_length
from relive.ops.parts.cuda import before_in_part, find_parts, of_own_part, place
from relive.ops.philox.cuda import below, random_bits
from relive.ops.weights.cuda import OF_BATCH, lower_smallest, note_batch, note_weights
from relive.ops.window.cuda import ids_of, oldest_of_ring


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


@triton.jit
def positions_in_parts(position, size, draws, number):
    """Which of its part's draws each draw of a batch is: as even a mixture as can be.

    Args:
        position: In the batch, int64 [B].
        size: Of the batch, int64 [].
        draws: From part 0, int64 [].
        number: Of parts.

    Returns:
        The number among the draws of its part, int64 [B]; how many those are, int64 [B]; whether it
        is part 1, bool [B].
    """
    of_first, second = position, position < 0
    if number == 2:
        of_first = position * draws // size
        second = (position + 1) * draws // size == of_first
    index = tl.where(second, position - of_first, of_first)
    return index, tl.where(second, size - draws, draws), second


@triton.jit
def draw_uniform(rows, starts, second, bits, number):
    """Slots of draws of which every row of a part is equally likely, int64 [B]."""
    row = below(bits, of_own_part(rows, second, number))
    return place(row, before_in_part(rows, number), starts, number, second)


@triton.jit
def draw_by_priority(
    words,
    leaves,
    sums,
    mass,
    before,
    index,
    drawn,
    second,
    bits,
    number,
    STRATIFIED: tl.constexpr,
):
    """Slots of draws of which a row is as likely as its mass is of that of its part, int64 [B]."""
    own = of_own_part(mass, second, number)
    targets = targets_of(own, index, drawn, bits, STRATIFIED)
    targets = place(targets, before_in_part(mass, number), before, number, second)
    return find_slots(words, leaves, sums, targets)


@triton.jit
def track(words, uses, age_counts, slots, ids, inside):
    """Count draws of each row, and ages of those in the ring."""
    tl.atomic_add(uses + slots, 1, mask=inside, sem="relaxed")
    of_ring = inside & (slots >= tl.load(words + w.RING_START))
    age = tl.where(of_ring, tl.load(words + w.NEXT_ID) - 1 - ids, 0)
    tl.atomic_add(age_counts + bit_length(age), 1, mask=of_ring, sem="relaxed")


@triton.jit
def count_gone(words, bounds):
    """Count the ids of a range that are of rows not held any more; see `window.reference`."""
    first, stop = tl.load(bounds), tl.minimum(tl.load(bounds + 1), tl.load(words + w.NEXT_ID))
    pinned = tl.load(words + w.DEMO_FIRST_ID)
    unpinned = pinned + tl.load(words + w.DEMO_COUNT)
    written = tl.maximum(stop - first, 0)
    held = tl.maximum(stop - tl.maximum(first, oldest_of_ring(words)), 0)
    held += tl.maximum(tl.minimum(stop, unpinned) - tl.maximum(first, pinned), 0)
    tl.atomic_add(words + w.RANGE_ROWS_GONE, written - held, sem="relaxed")


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
    LAYOUT: tl.constexpr,
):
    """Program 0 notes what the next launch needs, the others draw BLOCK rows each."""
    size = count.to(tl.int64)
    number, starts, rows, mass, before, draws, share, carry = find_parts(
        words, leaves, sums, bounds, size, RANGE, WEIGHTED, LEVELS
    )
    if tl.program_id(0) == 0:
        note_batch(words, notes, number, carry)
        if WEIGHTED:
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
        if RANGE:
            count_gone(words, bounds)
    else:
        lane = (tl.program_id(0) - 1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = lane < size
        ids = tl.full([BLOCK], -1, tl.int64)
        if number > 0:
            position = tl.minimum(lane, size - 1)
            index, drawn, second = positions_in_parts(position, size, draws, number)
            counter = w.DRAWS if TRAIN else w.EVAL_DRAWS
            stream = w.TRAIN_STREAM if TRAIN else w.EVAL_STREAM
            at = tl.load(words + counter) + position
            bits, others = random_bits(tl.load(words + w.SEED), at, stream)
            slots = position
            if SHARE or not WEIGHTED:
                slots = draw_uniform(rows, starts, second, bits, number)
            if WEIGHTED:
                found = draw_by_priority(
                    words,
                    leaves,
                    sums,
                    mass,
                    before,
                    index,
                    drawn,
                    second,
                    bits,
                    number,
                    STRATIFIED,
                )
                stays = (others >> 1).to(tl.int64) < tl.load(words + w.UNIFORM_SHARE)
                slots = tl.where(stays, slots, found)
            if NORMALIZE == OF_BATCH:
                lower_smallest(
                    words,
                    leaves,
                    notes,
                    slots,
                    inside,
                    second,
                    rows,
                    mass,
                    share,
                    number,
                    MIXTURE,
                    SHARE,
                )
            ids = ids_of(words, slots)
            if TRACK and TRAIN:
                track(words, uses, age_counts, slots, ids, inside)
        tl.store(ids_in(arena) + first + lane, ids, mask=inside)
        if not WEIGHTED:
            weight = tl.where(ids >= 0, 1.0, 0.0)
            tl.store(weights_in(arena, total.to(tl.int64)) + first + lane, weight, mask=inside)
