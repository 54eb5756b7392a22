"""The leaves of new rows, for Triton: a run of slots, around the end of the ring.

All that changes belongs to one program of a launch, and what it does ends with a barrier.
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.nodes.cuda import (
    INFINITY,
    LEAVES,
    fresh_scale,
    mass_of,
    real,
    refresh,
    roomy_scale,
    root_extremum,
    total_fits,
)
from relive.ops.power.cuda import power_of_two


@triton.jit
def slots_from(words, first, k):
    """The k-th slot from `first` on, around the end of the ring, int64 [B]."""
    slot = first + k
    end = tl.load(words + w.CAPACITY)
    return tl.where(slot < end, slot, slot - tl.load(words + w.RING_CAPACITY))


@triton.jit
def fill(
    words,
    leaves,
    sums,
    mins,
    maxs,
    first,
    count,
    leaf,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
):
    """Give `count` >= 1 slots from `first` on, around the end of the ring, one leaf.

    If the scale cannot stay, it is found anew and every node recomputed, else those above the run.
    """
    scale = tl.load(words + w.SCALE)
    unit = power_of_two(scale)
    masses = tl.zeros((LEAVES,), tl.int64)
    for start in range(0, count, LEAVES):
        k = start + tl.arange(0, LEAVES)
        slots = slots_from(words, first, k)
        masses += mass_of(tl.load(leaves + slots, mask=k < count, other=0.0), unit)
        tl.debug_barrier()  # more lanes than threads: who loads a leaf need not be who stores it
        tl.store(leaves + slots, tl.zeros((LEAVES,), tl.float32) + leaf, mask=k < count)
    rest = tl.load(words + w.TOTAL) - tl.sum(masses, 0)
    coarse = tl.minimum(scale, roomy_scale(words, leaf))
    fits = total_fits(words, rest, coarse, count * mass_of(leaf, power_of_two(coarse)))
    tl.debug_barrier()
    end = tl.load(words + w.CAPACITY)
    tail = tl.load(words + w.RING_START)
    stop = tl.minimum(first + count, end)
    tail_stop = tail + count - (stop - first)
    if not fits:
        scale = fresh_scale(words, leaves)
        tl.store(words + w.SCALE, scale)
        tl.atomic_add(words + w.RESCALES, 1)
        first, stop, tail_stop = first * 0, tl.load(words + w.NUM_LEAVES), tail
    total = refresh(
        words, leaves, sums, mins, maxs, scale, first, stop, tail, tail_stop, LEVELS, MINS, MAXS
    )
    tl.store(words + w.TOTAL, total)
    tl.debug_barrier()


@triton.jit
def new_leaf(words, maxs, RANKED: tl.constexpr, LEVELS: tl.constexpr, MAXS: tl.constexpr):
    """The leaf at which a new row enters, float32 []."""
    if RANKED:
        largest = tl.full((), 1.0, tl.float32)  # as if it ranked first
    elif MAXS:
        largest = root_extremum(words, maxs, True, LEVELS)
    else:
        largest = real(words, w.MAX_LEAF).to(tl.float32)
    return tl.where(largest > 0, largest, 1.0)


@triton.jit
def enter_rows(
    words,
    leaves,
    sums,
    mins,
    maxs,
    errors,
    first_id,
    next_id,
    RANKED: tl.constexpr,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
):
    """Give the rows first_id..next_id - 1, just written, the priority of new rows.

    `words.NEXT_ID` is not read, so this program may write it, on either side of a barrier.
    """
    size = tl.load(words + w.RING_CAPACITY)
    first_live = tl.maximum(first_id, next_id - size)
    count = next_id - first_live
    first = tl.load(words + w.RING_START) + (first_live - tl.load(words + w.BASE_ID)) % size
    if count > 0:
        if MAXS:  # what is overwritten lives no more
            zero = tl.full((), 0.0, tl.float32)
            fill(words, leaves, sums, mins, maxs, first, count, zero, LEVELS, MINS, MAXS)
        leaf = new_leaf(words, maxs, RANKED, LEVELS, MAXS)
        fill(words, leaves, sums, mins, maxs, first, count, leaf, LEVELS, MINS, MAXS)
        if RANKED:
            for start in range(0, count, LEAVES):
                k = start + tl.arange(0, LEAVES)
                slots = slots_from(words, first, k)
                tl.store(errors + slots, tl.full((LEAVES,), INFINITY, tl.float32), mask=k < count)
