"""Priorities of rows that have been trained on, for Triton.

    ask      each position says which leaf it wants; rows note the last position that names them
    weigh    whoever stands there sets the leaf
    settle   the scale stays, or all sums are found anew
    apply    the change of mass goes to every node above
    lift     and so do extrema

One program does all of this for a batch of up to 4096; for a larger one each step is a launch of
many programs. Numbers that were never given out are skipped as stale ones are, nothing is refused,
and rows are not sorted by rank: `relive.ops.rank.cuda.sort_by_rank` is called by the host, which
counts its updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.launch import blocks, launch
from relive.ops.power.cuda import power64, power_of_two
from relive.ops.tree.cuda import (
    add_masses,
    block_of,
    constants,
    lift,
    lift_inner,
    lift_lowest,
    mass_change,
    mass_of,
    real,
    settle,
    store_real,
    tree_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

ONE_PROGRAM = 4096  # rows, at most, that are one program's
LANES = 256  # of a program, where there are many
INFINITY, KEEP = tl.constexpr(float("inf")), tl.constexpr(float("-inf"))
SMALLEST, LARGEST = tl.constexpr(w.SMALLEST_LEAF), tl.constexpr(w.LARGEST_LEAF)

# Sums over the programs of a large batch.
NUMBER, TAKEN, CHANGE, MOST, SEEN, FITS, NUM_SUMS = map(tl.constexpr, range(7))


@triton.jit
def held_slots(words, ids):
    """The slot of each id, int64 [B]; -1 where there is no such row (any more)."""
    base, next_id = tl.load(words + w.BASE_ID), tl.load(words + w.NEXT_ID)
    size, end = tl.load(words + w.RING_CAPACITY), tl.load(words + w.CAPACITY)
    oldest = tl.maximum(base, next_id - size)
    slot = tl.load(words + w.RING_START) + (oldest - base) % size + (ids - oldest)
    slot = tl.where(slot < end, slot, slot - size)
    count = tl.load(words + w.DEMO_COUNT)
    pinned = ids - tl.load(words + w.DEMO_FIRST_ID)
    added = ids - tl.load(words + w.ADDED_FIRST_ID)
    is_added = (added >= 0) & (added < tl.load(words + w.DEMO_ADDED))
    slot = tl.where((ids >= oldest) & (ids < next_id), slot, -1)
    slot = tl.where((pinned >= 0) & (pinned < count), pinned, slot)
    return tl.where(is_added, count + added, slot)


@triton.jit
def transform(words, values, slots):
    """(|td error| + eps)^alpha with the bonus of demonstrations; 0 or a normal float32 [B]."""
    alpha = real(words, w.ALPHA)
    magnitude = tl.abs(values.to(tl.float64)) + real(words, w.EPS)
    bonus = real(words, w.DEMO_BONUS)
    magnitude += tl.where(slots < tl.load(words + w.RING_START), bonus, 0.0)
    usable = (magnitude > 0.0) & (magnitude < INFINITY)
    leaf = power64(tl.where(usable, magnitude, 1.0), alpha)
    leaf = tl.minimum(tl.maximum(leaf, 0.5 * SMALLEST), 2.0 * LARGEST)
    zero = tl.where(alpha == 0.0, 1.0, 0.0)  # 0^alpha
    return tl.where(magnitude > 0.0, leaf, zero).to(tl.float32)


@triton.jit
def instead(words, values, good, bad, mask):
    """What is asked for, with what bad numbers ask for in place of theirs, which are counted.

    That is negative, so that it does not count as the largest that was set: KEEP, or -`bad`.
    """
    tl.atomic_add(words + w.BAD_PRIORITIES, tl.sum((mask & (good == 0)).to(tl.int64), 0))
    policy = tl.zeros(values.shape, tl.int64) + tl.load(words + w.BAD_PRIORITY)
    return tl.where(good, values, tl.where(policy == w.MAX_BAD, -bad, KEEP))


@triton.jit
def ask(
    words,
    ids,
    values,
    slots,
    new,
    stamps,
    i,
    mask,
    AS_LEAVES: tl.constexpr,
    RANKED: tl.constexpr,
):
    """What each position asks for, and the last position that names each row.

    Args:
        ids, values: pointers to int64 and float32 [count].
        slots, new: pointers to int64 and float32 [count], filled in: where the row is, -1 for one
            that is not held, and the leaf (the error, if RANKED) that is asked for.
        stamps: pointer to int32 [leaves], all -1 before.
    """
    slot = tl.where(mask, held_slots(words, tl.load(ids + i, mask=mask, other=-1)), -1)
    tl.atomic_max(stamps + slot, i.to(tl.int32), mask=slot >= 0, sem="relaxed")
    tl.store(slots + i, slot, mask=mask)
    tl.atomic_add(words + w.STALE_UPDATES, tl.sum((mask & (slot < 0)).to(tl.int64), 0))
    value = tl.load(values + i, mask=mask, other=0.0)
    good = tl.abs(value) < INFINITY
    seen = real(words, w.MAX_LEAF).to(tl.float32)
    if RANKED:
        if AS_LEAVES:  # infinity: never updated
            good = value >= 0
        asked = instead(words, tl.abs(value), good, seen, mask)
    else:
        if AS_LEAVES:
            good = good & (value >= 0)
            asked = value
        else:
            asked = transform(words, value, slot)
        held = tl.where(asked > 0, tl.minimum(tl.maximum(asked, SMALLEST), LARGEST), 0.0)
        clamped = good & (held != asked) & (slot >= 0)
        tl.atomic_add(words + w.CLAMPED_PRIORITIES, tl.sum(clamped.to(tl.int64), 0))
        asked = instead(words, held, good, tl.where(seen > 0, seen, 1.0), mask)
    tl.store(new + i, asked, mask=mask)


@triton.jit
def decided(slots, new, stamps, i, mask):
    """Slots, [B], what is asked of them, and where this position decides: a leaf is to be set.

    `slots` becomes -1 where another position decides.
    """
    slot = tl.load(slots + i, mask=mask, other=-1)
    is_last = tl.load(stamps + slot, mask=slot >= 0, other=-1) == i
    asked = tl.load(new + i, mask=mask, other=KEEP)
    tl.store(slots + i, tl.where(is_last, slot, -1), mask=mask)
    return slot, asked, is_last & (asked > KEEP)


@triton.jit
def weigh(words, leaves, slots, new, stamps, changes, i, mask, AS_LEAVES: tl.constexpr):
    """The last position that names a row sets its leaf.

    Args:
        changes: pointer to int64 [count], filled in: by how much the mass grows. `new` becomes
            the leaf that is set, negative where none is.

    Returns:
        [B] each: whether a leaf is set, the mass that was there, by how much it grows, the leaf,
        the leaf if it counts as the largest that was ever set.
    """
    slot, asked, is_set = decided(slots, new, stamps, i, mask)
    old = tl.load(leaves + slot, mask=is_set, other=0.0)
    leaf = tl.where(is_set, tl.abs(asked), 0.0)
    counts = asked >= 0
    if AS_LEAVES:  # writing back what was read sets nothing new
        counts = counts & (leaf != old)
    unit = power_of_two(tl.load(words + w.SCALE))
    grows = mass_change(old, leaf, unit, is_set)
    tl.store(leaves + slot, leaf, mask=is_set)
    tl.store(changes + i, grows, mask=mask)
    tl.store(new + i, tl.where(is_set, leaf, -1.0), mask=mask)
    return is_set, mass_of(old, unit), grows, leaf, tl.where(counts, leaf, 0.0)


@triton.jit
def note(errors, slots, new, stamps, i, mask):
    """The last position that names a row sets its error; returns those that count as largest."""
    slot, asked, is_set = decided(slots, new, stamps, i, mask)
    tl.store(errors + slot, tl.abs(asked), mask=is_set)
    return tl.where(is_set & (asked >= 0) & (asked < INFINITY), asked, 0.0)


@triton.jit
def unstamp(slots, stamps, i, mask):
    """Rows forget who named them; returns those slots that are decided here, else -1."""
    slot = tl.load(slots + i, mask=mask, other=-1)
    tl.store(stamps + slot, tl.full(slot.shape, -1, tl.int32), mask=slot >= 0)
    return slot


@triton.jit
def apply(words, sums, slots, stamps, changes, i, mask, fits, LEVELS: tl.constexpr):
    """The change of mass goes to every node above; returns as `unstamp`."""
    slot = unstamp(slots, stamps, i, mask)
    if fits:
        grows = tl.load(changes + i, mask=mask, other=0)
        add_masses(words, sums, slot, grows, slot >= 0, LEVELS)
    return slot


@triton.jit
def note_largest(words, seen):
    """Remember the largest leaf or error that was set, after a barrier."""
    largest = real(words, w.MAX_LEAF)
    tl.debug_barrier()
    store_real(words, w.MAX_LEAF, tl.maximum(largest, seen.to(tl.float64)))


@triton.jit(do_not_specialize=["count"])
def _update(
    words,
    leaves,
    sums,
    mins,
    maxs,
    ids,
    values,
    stamps,
    slots,
    changes,
    new,
    count,
    AS_LEAVES: tl.constexpr,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """All of it, by one program."""
    tl.atomic_add(words + w.UPDATED_ROWS, count.to(tl.int64))
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        ask(words, ids, values, slots, new, stamps, i, i < count, AS_LEAVES, False)
    tl.debug_barrier()
    number, taken = tl.zeros((BLOCK,), tl.int64), tl.zeros((BLOCK,), tl.int64)
    change = tl.zeros((BLOCK,), tl.int64)
    most, seen = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        is_set, was, grows, leaf, counts = weigh(
            words, leaves, slots, new, stamps, changes, i, i < count, AS_LEAVES
        )
        number += is_set.to(tl.int64)
        taken += was
        change += grows
        most = tl.maximum(most, leaf)
        seen = tl.maximum(seen, counts)
    note_largest(words, tl.max(seen, 0))
    fits = settle(
        words,
        leaves,
        sums,
        mins,
        maxs,
        new,
        count,
        tl.sum(number, 0),
        tl.sum(taken, 0),
        tl.sum(change, 0),
        tl.max(most, 0),
        LEVELS,
        MINS,
        MAXS,
        BLOCK,
    )
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        apply(words, sums, slots, stamps, changes, i, i < count, fits, LEVELS)
    if (MINS or MAXS) and fits:
        lift(words, leaves, mins, maxs, slots, count, LEVELS, MINS, MAXS, BLOCK)


@triton.jit(do_not_specialize=["count"])
def _note(
    words,
    errors,
    ids,
    values,
    stamps,
    slots,
    new,
    count,
    AS_LEAVES: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """The errors of priorities by rank, by one program."""
    tl.atomic_add(words + w.UPDATED_ROWS, count.to(tl.int64))
    tl.atomic_add(words + w.UPDATES, 1)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        ask(words, ids, values, slots, new, stamps, i, i < count, AS_LEAVES, True)
    tl.debug_barrier()
    seen = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        seen = tl.maximum(seen, note(errors, slots, new, stamps, i, i < count))
    note_largest(words, tl.max(seen, 0))
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        unstamp(slots, stamps, i, i < count)


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


def update(state: State, ids: Tensor, values: Tensor, *, as_leaves: bool) -> int:
    """See `reference.update`; always OK."""
    if len(state.errors):
        _update_errors(state, ids, values, as_leaves)
    elif len(ids) <= ONE_PROGRAM:
        _update_few(state, ids, values, as_leaves)
    else:
        _update_many(state, ids, values, as_leaves)
    return w.OK


def _update_few(state: State, ids: Tensor, values: Tensor, as_leaves: bool) -> None:
    count, (slots, changes) = len(ids), torch.empty_like(ids.expand(2, -1))
    scratch = stamps_of(state), slots, changes, torch.empty_like(values)
    launch(
        _update,
        (1,),
        *tree_of(state),
        ids,
        values,
        *scratch,
        count,
        AS_LEAVES=as_leaves,
        **constants(state),
        **block_of(count),
    )


def _update_many(state: State, ids: Tensor, values: Tensor, as_leaves: bool) -> None:
    tree, kind, count = tree_of(state), constants(state), len(ids)
    words, leaves, _, mins, maxs = tree
    stamps, (slots, changes) = stamps_of(state), torch.empty_like(ids.expand(2, -1))
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


def _update_errors(state: State, ids: Tensor, values: Tensor, as_leaves: bool) -> None:
    words, errors, count = state.words, state.errors, len(ids)
    stamps, slots, new = stamps_of(state), torch.empty_like(ids), torch.empty_like(values)
    if count <= ONE_PROGRAM:
        given = words, errors, ids, values, stamps, slots, new
        launch(_note, (1,), *given, count, AS_LEAVES=as_leaves, **block_of(count))
        return
    tally = ids.new_empty(NUM_SUMS.value)
    grid, block = (blocks(count, LANES),), {"BLOCK": LANES, "warps": LANES // 32}
    asked = words, ids, values, stamps, slots, new, tally
    launch(_ask, grid, *asked, count, AS_LEAVES=as_leaves, RANKED=True, **block)
    launch(_note_some, grid, errors, stamps, slots, new, tally, count, **block)
    launch(_end_notes, grid, words, stamps, slots, tally, count, **block)


def stamps_of(state: State) -> Tensor:
    """Where rows note who names them: int32, one a leaf, -1 between calls.

    Made by the first update, which must not be one that is captured in a CUDA graph.
    """
    if "stamps" not in state.workspace:
        like = state.leaves
        stamps = torch.full(like.shape, -1, dtype=torch.int32, device=like.device)
        state.workspace["stamps"] = stamps
    return state.workspace["stamps"]
