"""The sum tree for Triton kernels: leaves are set, and paths change, not the whole tree.

    settle   the scale stays, or all sums are found anew
    sums     every node above a leaf is told by how much its mass grew, in any order
    lift     extrema are recomputed, upwards until nothing changes

Functions of a kernel, see `nodes.cuda`, and two operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.launch import blocks, launch
from relive.ops.nodes.cuda import (
    CHILDREN,
    INFINITY,
    MOST_REGISTERS,
    NODES,
    block_of,
    children_of,
    constants,
    extremum_of_leaves,
    fresh_scale,
    mass_of,
    refresh,
    refresh_inner,
    refresh_lowest,
    roomy_scale,
    total_fits,
    tree_of,
)
from relive.ops.power.cuda import power_of_two
from relive.ops.tree.shape import level_sizes

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

MASS_LIMIT = tl.constexpr(2.0 ** (w.HIGHEST_TOTAL + 1))


@triton.jit
def add_masses(words, sums, slots, masses, mask, LEVELS: tl.constexpr):
    """Add to every node above each slot; programs may do so at the same time."""
    node = slots >> w.LEAF_BITS
    for level in tl.static_range(LEVELS):
        first = tl.load(words + w.LEVEL_0 + level)
        tl.atomic_add(sums + first + node, masses, mask=mask, sem="relaxed")
        node = node >> w.NODE_BITS


@triton.jit
def mass_change(old, new, unit, mask):
    """By how much masses grow, int64 [B]; means nothing where `new` is too large for the scale."""
    is_small = new.to(tl.float64) * unit < MASS_LIMIT
    return tl.where(mask, mass_of(tl.where(is_small, new, 0.0), unit) - mass_of(old, unit), 0)


@triton.jit
def settle(
    words,
    leaves,
    sums,
    mins,
    maxs,
    new,
    count,
    number,
    taken,
    change,
    largest,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """After leaves have been set: the total, or, if the scale cannot stay, a whole new tree.

    Args:
        new: pointer to float32 [count], the leaves that were set; negative where none was.
        number: how many were set.
        taken: mass that was there before.
        change: by how much it grew, see `mass_change`.
        largest: of the leaves that were set.

    Returns:
        Whether the scale stays: then the sums are still to be told.
    """
    scale = tl.load(words + w.SCALE)
    total = tl.load(words + w.TOTAL)
    coarse = tl.minimum(scale, roomy_scale(words, largest))
    mass = taken + change
    if coarse < scale:
        unit = power_of_two(coarse)
        masses = tl.zeros((BLOCK,), tl.int64)
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK)
            leaf = tl.load(new + i, mask=i < count, other=0.0)
            masses += mass_of(tl.maximum(leaf, 0.0), unit)
        mass = tl.sum(masses, 0)
    fits = (number == 0) | total_fits(words, total - taken, coarse, mass)
    tl.debug_barrier()
    if fits:
        tl.store(words + w.TOTAL, total + change)
    else:
        scale = fresh_scale(words, leaves)
        tl.store(words + w.SCALE, scale)
        tl.atomic_add(words + w.RESCALES, 1)
        stop = tl.load(words + w.NUM_LEAVES)
        total = refresh(
            words, leaves, sums, mins, maxs, scale, stop * 0, stop, 0, 0, LEVELS, MINS, MAXS
        )
        tl.store(words + w.TOTAL, total)
    return fits


@triton.jit
def put(nodes, values, mask):
    """Store what lanes of one address agree on; returns how many addresses held something else."""
    bits = values.to(tl.int32, bitcast=True)
    pointers = nodes.to(tl.pointer_type(tl.int32), bitcast=True)
    before = tl.atomic_xchg(pointers, bits, mask=mask, sem="relaxed")
    return tl.sum(((before != bits) & mask).to(tl.int32), 0)


@triton.jit
def lift_lowest(leaves, mins, maxs, node, mask, MINS: tl.constexpr, MAXS: tl.constexpr):
    """Recompute extrema of nodes of the lowest level; returns how many changed."""
    changed = tl.full((), 0, tl.int32)
    if MINS:
        changed += put(mins + node, extremum_of_leaves(leaves, node, mask, False), mask)
    if MAXS:
        changed += put(maxs + node, extremum_of_leaves(leaves, node, mask, True), mask)
    return changed


@triton.jit
def lift_inner(words, mins, maxs, level, node, mask, MINS: tl.constexpr, MAXS: tl.constexpr):
    """Recompute extrema of nodes of a higher level; returns how many changed."""
    below = tl.load(words + w.LEVEL_0 + level - 1)
    here = tl.load(words + w.LEVEL_0 + level)
    changed = tl.full((), 0, tl.int32)
    if MINS:
        smallest = tl.min(children_of(mins, below, node, mask), 1)
        changed += put(mins + here + node, smallest, mask)
    if MAXS:
        largest = tl.max(children_of(maxs, below, node, mask), 1)
        changed += put(maxs + here + node, largest, mask)
    return changed


@triton.jit
def lift(
    words,
    leaves,
    mins,
    maxs,
    slots,
    count,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Bring the extrema above slots up to date, upwards until nothing changes.

    Args:
        slots: pointer to int64 [count]; those that are negative are passed over.
    """
    changed = tl.full((), 0, tl.int32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        slot = tl.load(slots + i, mask=i < count, other=-1)
        changed += lift_lowest(leaves, mins, maxs, slot >> w.LEAF_BITS, slot >= 0, MINS, MAXS)
    level = 1
    shift = w.LEAF_BITS + w.NODE_BITS
    while (changed > 0) & (level < LEVELS):
        tl.debug_barrier()
        changed = changed * 0
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK)
            slot = tl.load(slots + i, mask=i < count, other=-1)
            changed += lift_inner(words, mins, maxs, level, slot >> shift, slot >= 0, MINS, MAXS)
        level += 1
        shift += w.NODE_BITS


@triton.jit(do_not_specialize=["count"])
def _assign(
    words,
    leaves,
    sums,
    mins,
    maxs,
    slots,
    new,
    changes,
    count,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    unit = power_of_two(tl.load(words + w.SCALE))
    taken = tl.zeros((BLOCK,), tl.int64)
    change = tl.zeros((BLOCK,), tl.int64)
    largest = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        mask = i < count
        slot = tl.load(slots + i, mask=mask, other=0)
        leaf = tl.load(new + i, mask=mask, other=0.0)
        old = tl.load(leaves + slot, mask=mask, other=0.0)
        grown = mass_change(old, leaf, unit, mask)
        tl.debug_barrier()  # more lanes than threads: who loads need not be who stores
        tl.store(leaves + slot, leaf, mask=mask)
        tl.store(changes + i, grown, mask=mask)
        taken += mass_of(old, unit)
        change += grown
        largest = tl.maximum(largest, leaf)
    total_taken, total_change, most = tl.sum(taken, 0), tl.sum(change, 0), tl.max(largest, 0)
    tl.debug_barrier()
    fits = settle(
        words,
        leaves,
        sums,
        mins,
        maxs,
        new,
        count,
        count,
        total_taken,
        total_change,
        most,
        LEVELS,
        MINS,
        MAXS,
        BLOCK,
    )
    if fits:
        for start in range(0, count, BLOCK):
            i = start + tl.arange(0, BLOCK)
            slot = tl.load(slots + i, mask=i < count, other=0)
            grown = tl.load(changes + i, mask=i < count, other=0)
            add_masses(words, sums, slot, grown, i < count, LEVELS)
        if MINS or MAXS:
            lift(words, leaves, mins, maxs, slots, count, LEVELS, MINS, MAXS, BLOCK)


@triton.jit
def _rebuild_level(
    words,
    leaves,
    sums,
    mins,
    maxs,
    LEVEL: tl.constexpr,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """Of one level, NODES nodes a program; those that are padding have no children."""
    node = tl.program_id(0).to(tl.int64) * NODES + tl.arange(0, NODES)
    here = tl.load(words + w.LEVEL_0 + LEVEL)
    exists = node < tl.load(words + w.LEVEL_0 + LEVEL + 1) - here
    if LEVEL == 0:
        unit = power_of_two(tl.load(words + w.SCALE))
        refresh_lowest(leaves, sums, mins, maxs, unit, node, exists, MINS, MAXS)
    else:
        below = tl.load(words + w.LEVEL_0 + LEVEL - 1)
        has_children = (node << w.NODE_BITS) < here - below
        refresh_inner(sums, mins, maxs, below, here, node, has_children & exists, MINS, MAXS)
        padding = exists & ((node << w.NODE_BITS) >= here - below)
        tl.store(sums + here + node, tl.zeros((NODES,), tl.int64), mask=padding)
        if MINS:
            infinite = tl.full((NODES,), INFINITY, tl.float32)
            tl.store(mins + here + node, infinite, mask=padding)
        if MAXS:
            tl.store(maxs + here + node, tl.zeros((NODES,), tl.float32), mask=padding)
    if LEVEL == LEVELS - 1:  # 8 nodes, of one program
        tl.debug_barrier()
        total = tl.sum(tl.load(sums + here + tl.arange(0, CHILDREN)), 0)
        tl.store(words + w.TOTAL, total)


def set_leaves(state: State, slots: Tensor, leaves: Tensor) -> None:
    """See `reference.set_leaves`; one launch of one program."""
    count = len(slots)
    launch(
        _assign,
        (1,),
        *tree_of(state),
        slots,
        leaves,
        torch.empty_like(slots),
        count,
        **constants(state),
        **block_of(count),
    )


def rebuild(state: State) -> None:
    """See `reference.rebuild`; a launch a level."""
    for level, size in enumerate(level_sizes(len(state.rows))):
        launch(
            _rebuild_level,
            (blocks(size, NODES.value),),
            *tree_of(state),
            LEVEL=level,
            **constants(state),
            warps=4,
            maxnreg=MOST_REGISTERS,
        )
