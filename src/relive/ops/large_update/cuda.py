"""Updates of more rows than one program should take, for Triton: each step is a launch of many.

What goes from launch to launch in sums and largest values over programs is the tally, int64
[NUM_SUMS]; floats that are not negative are there as their bits, which sort as they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.decide.cuda import apply, ask, note, note_largest, stamps_of, unstamp, weigh
from relive.ops.launch import blocks, launch
from relive.ops.nodes.cuda import block_of, constants, tree_of
from relive.ops.tree.cuda import lift_inner, lift_lowest, settle

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

LANES = 256  # of a program
NUMBER, TAKEN, CHANGE, MOST, SEEN, FITS, NUM_SUMS = map(tl.constexpr, range(7))


@triton.jit
def raise_tally(tally, index, values):
    """The largest of floats that are not negative, over programs: as the bits of one."""
    bits = tl.max(values, 0).to(tl.int32, bitcast=True).to(tl.int64)
    tl.atomic_max(tally + index, bits, sem="relaxed")


@triton.jit
def largest_of_tally(tally, index):
    """That float."""
    return tl.load(tally + index).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["count"])
def _ask(
    words,
    ids,
    values,
    stamps,
    slots,
    new,
    tally,
    count,
    AS_LEAVES: tl.constexpr,
    RANKED: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    if tl.program_id(0) == 0:
        tl.atomic_add(words + w.UPDATED_ROWS, count.to(tl.int64))
        k = tl.arange(0, 8)
        tl.store(tally + k, tl.zeros((8,), tl.int64), mask=k < NUM_SUMS)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ask(words, ids, values, slots, new, stamps, i, i < count, AS_LEAVES, RANKED)


@triton.jit(do_not_specialize=["count"])
def _weigh(
    words,
    leaves,
    stamps,
    slots,
    changes,
    new,
    tally,
    count,
    AS_LEAVES: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_set, was, grows, leaf, counts = weigh(
        words, leaves, slots, new, stamps, changes, i, i < count, AS_LEAVES
    )
    tl.atomic_add(tally + NUMBER, tl.sum(is_set.to(tl.int64), 0), sem="relaxed")
    tl.atomic_add(tally + TAKEN, tl.sum(was, 0), sem="relaxed")
    tl.atomic_add(tally + CHANGE, tl.sum(grows, 0), sem="relaxed")
    raise_tally(tally, MOST, leaf)
    raise_tally(tally, SEEN, counts)


@triton.jit(do_not_specialize=["count"])
def _settle(
    words,
    leaves,
    sums,
    mins,
    maxs,
    new,
    tally,
    count,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    note_largest(words, largest_of_tally(tally, SEEN))
    fits = settle(
        words,
        leaves,
        sums,
        mins,
        maxs,
        new,
        count,
        tl.load(tally + NUMBER),
        tl.load(tally + TAKEN),
        tl.load(tally + CHANGE),
        largest_of_tally(tally, MOST),
        LEVELS,
        MINS,
        MAXS,
        BLOCK,
    )
    tl.store(tally + FITS, fits.to(tl.int64))


@triton.jit(do_not_specialize=["count"])
def _apply(
    words,
    leaves,
    sums,
    mins,
    maxs,
    stamps,
    slots,
    changes,
    tally,
    count,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    fits = tl.load(tally + FITS) != 0
    slot = apply(words, sums, slots, stamps, changes, i, i < count, fits, LEVELS)
    if MINS or MAXS:
        lift_lowest(leaves, mins, maxs, slot >> w.LEAF_BITS, slot >= 0, MINS, MAXS)


@triton.jit(do_not_specialize=["count"])
def _lift(
    words,
    mins,
    maxs,
    slots,
    count,
    LEVEL: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + i, mask=i < count, other=-1)
    node = slot >> (w.LEAF_BITS + LEVEL * w.NODE_BITS)
    lift_inner(words, mins, maxs, LEVEL, node, slot >= 0, MINS, MAXS)


@triton.jit(do_not_specialize=["count"])
def _note_some(
    errors,
    stamps,
    slots,
    new,
    tally,
    count,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    raise_tally(tally, SEEN, note(errors, slots, new, stamps, i, i < count))


@triton.jit(do_not_specialize=["count"])
def _end_notes(words, stamps, slots, tally, count, BLOCK: tl.constexpr, LAYOUT: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.atomic_add(words + w.UPDATES, 1)
        note_largest(words, largest_of_tally(tally, SEEN))
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    unstamp(slots, stamps, i, i < count)


def update_many(state: State, ids: Tensor, values: Tensor, as_leaves: bool) -> None:
    """Set leaves: 4 launches, and one for each further level if extrema are kept."""
    tree, kind, count = tree_of(state), constants(state), len(ids)
    words, leaves, _, mins, maxs = tree
    stamps, (slots, changes) = stamps_of(state), ids.new_empty(2, count)
    new, tally = torch.empty_like(values), ids.new_empty(NUM_SUMS.value)
    grid, block = (blocks(count, LANES),), {"BLOCK": LANES, "warps": LANES // 32}
    asked = words, ids, values, stamps, slots, new, tally
    launch(_ask, grid, *asked, count, AS_LEAVES=as_leaves, RANKED=False, **block)
    scratch = stamps, slots, changes
    launch(_weigh, grid, words, leaves, *scratch, new, tally, count, AS_LEAVES=as_leaves, **block)
    launch(_settle, (1,), *tree, new, tally, count, **kind, **block_of(count))
    launch(_apply, grid, *tree, *scratch, tally, count, **kind, **block)
    extrema = {name: kind[name] for name in ("MINS", "MAXS")}
    for level in range(1, kind["LEVELS"] if any(extrema.values()) else 1):
        launch(_lift, grid, words, mins, maxs, slots, count, LEVEL=level, **extrema, **block)


def update_errors_of_many(state: State, ids: Tensor, values: Tensor, as_leaves: bool) -> None:
    """Set errors, for the next sort by rank: 3 launches."""
    words, errors, count = state.words, state.errors, len(ids)
    stamps, slots, new = stamps_of(state), torch.empty_like(ids), torch.empty_like(values)
    tally = ids.new_empty(NUM_SUMS.value)
    grid, block = (blocks(count, LANES),), {"BLOCK": LANES, "warps": LANES // 32}
    asked = words, ids, values, stamps, slots, new, tally
    launch(_ask, grid, *asked, count, AS_LEAVES=as_leaves, RANKED=True, **block)
    launch(_note_some, grid, errors, stamps, slots, new, tally, count, **block)
    launch(_end_notes, grid, words, stamps, slots, tally, count, **block)
