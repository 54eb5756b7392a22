"""What each position of an update asks for and which of them decides, for Triton.

    ask      each position says which leaf it wants; rows note the last position that names them
    weigh    whoever stands there sets the leaf
    apply    the change of mass goes to every node above; rows forget who named them

Functions of a kernel: `ids`, `values` are pointers to what an update is given; `slots`, `new`,
`changes` to as many int64, float32 and int64 that go from one step to the next; `stamps` to an
int32 for every leaf, -1 between updates; `i` are positions [B], `mask` those that exist. What a
step stores the next one loads, so a barrier or the end of a launch lies between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.nodes.cuda import INFINITY, mass_of, real, store_real
from relive.ops.power.cuda import power64, power_of_two
from relive.ops.tree.cuda import add_masses, mass_change
from relive.ops.window.cuda import oldest_before

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

KEEP = tl.constexpr(float("-inf"))  # in place of a leaf: a bad number leaves the old one
SMALLEST, LARGEST = tl.constexpr(w.SMALLEST_LEAF), tl.constexpr(w.LARGEST_LEAF)


@triton.jit
def held_slots(words, ids):
    """The slot of each id, int64 [B]; -1 where there is no such row (any more)."""
    base, next_id = tl.load(words + w.BASE_ID), tl.load(words + w.NEXT_ID)
    size, end = tl.load(words + w.RING_CAPACITY), tl.load(words + w.CAPACITY)
    oldest = oldest_before(words, next_id)
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

    That is KEEP or -`bad`: negative or infinite, so that it does not count as the largest that was
    set.
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

    Fills in `slots`, where the row is, -1 for one that is not held; and `new`, the leaf (the error,
    if RANKED) that is asked for.
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
        # before any error as a new row; -INFINITY is KEEP, and neither counts as the largest
        largest = tl.where(seen > 0, seen, -INFINITY)
        asked = instead(words, tl.abs(value), good, largest, mask)
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
    tl.debug_barrier()  # more lanes than threads: who loads need not be who stores
    tl.store(slots + i, tl.where(is_last, slot, -1), mask=mask)
    return slot, asked, is_last & (asked > KEEP)


@triton.jit
def weigh(words, leaves, slots, new, stamps, changes, i, mask, AS_LEAVES: tl.constexpr):
    """The last position that names a row sets its leaf.

    Fills in `changes`, by how much the mass grows; `new` becomes the leaf that is set, negative
    where none is.

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
    tl.debug_barrier()  # as above
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


def stamps_of(state: State) -> Tensor:
    """Where rows note who names them: int32, one a leaf, -1 between calls.

    Made by the first update, which must not be one that is captured in a CUDA graph.
    """
    if "stamps" not in state.workspace:
        like = state.leaves
        stamps = torch.full(like.shape, -1, dtype=torch.int32, device=like.device)
        state.workspace["stamps"] = stamps
    return state.workspace["stamps"]
