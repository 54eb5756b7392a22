"""Priorities by rank, for Triton: one sort of whole numbers on the device.

    key = error's bits 2^32 + age      age: how many rows are older

so that falling keys are falling errors, and of equals the newer first; a slot without a row has
key -1 and comes last. The scale follows from the leaves as they are written, and every level of
nodes is a launch. When it is time the host knows: it counts updates, as words.UPDATES does too, so
that a loaded buffer goes on where it was. Replays of a captured update only the device counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from relive.gpu.capture import is_captured
from relive.ops import words as w
from relive.ops.launch import blocks, launch
from relive.ops.nodes.cuda import bit_length, lowest_total, mass_of, real, roomy_scale
from relive.ops.power.cuda import power, power_of_two
from relive.ops.tree.cuda import rebuild
from relive.ops.window.cuda import oldest_of_ring

if TYPE_CHECKING:
    from relive.ops.state import State

LANES = 1024  # slots of a program
SMALLEST = tl.constexpr(w.SMALLEST_LEAF)


@triton.jit
def num_live(words):
    """Rows of the ring."""
    return tl.load(words + w.NEXT_ID) - oldest_of_ring(words)


@triton.jit
def num_rows(words):
    """Rows held, demonstrations too."""
    return num_live(words) + tl.load(words + w.DEMO_COUNT) + tl.load(words + w.DEMO_ADDED)


@triton.jit
def older_rows(words, slots):
    """How many rows have a smaller id than the one in each slot, int64 [B]; -1 without a row."""
    count, added = tl.load(words + w.DEMO_COUNT), tl.load(words + w.DEMO_ADDED)
    start, size = tl.load(words + w.RING_START), tl.load(words + w.RING_CAPACITY)
    live = num_live(words)
    oldest = (tl.load(words + w.NEXT_ID) - live - tl.load(words + w.BASE_ID)) % size
    age = slots - start - oldest
    age = tl.where(age < 0, age + size, age)
    ring = tl.where(age < live, count + age, -1)
    demonstration = tl.where(slots < count, slots, count + live + slots - count)
    demonstration = tl.where(slots < count + added, demonstration, -1)
    return tl.where(slots < start, demonstration, ring)


@triton.jit
def _keys(words, errors, keys, BLOCK: tl.constexpr, LAYOUT: tl.constexpr):
    """Fill in int64 [N]; begin the count of a new sort."""
    slots = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = slots < tl.load(words + w.CAPACITY)
    older = older_rows(words, slots)
    error = tl.load(errors + slots, mask=mask, other=0.0).to(tl.int32, bitcast=True)
    key = (error.to(tl.int64) << 32) | older
    tl.store(keys + slots, tl.where(older >= 0, key, -1), mask=mask)


@triton.jit
def _rank(words, leaves, order, total, BLOCK: tl.constexpr, LAYOUT: tl.constexpr):
    """The k-th slot of the order gets the leaf of rank k + 1; their masses are added up."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = k < tl.load(words + w.CAPACITY)
    leaf = power((k + 1).to(tl.float64), -real(words, w.ALPHA))
    leaf = tl.where(k < num_rows(words), tl.maximum(leaf, SMALLEST), 0.0)
    tl.store(leaves + tl.load(order + k, mask=mask, other=0), leaf, mask=mask)
    unit = power_of_two(roomy_scale(words, 1.0))  # the largest is that of rank 1
    tl.atomic_add(total, tl.sum(mass_of(leaf, unit), 0), sem="relaxed")


@triton.jit
def _scale(words, total, LAYOUT: tl.constexpr):
    """The scale that follows, unless there are no rows; another sort is done."""
    tl.atomic_xchg(words + w.UPDATES, 0)
    tl.atomic_add(words + w.SORTS, 1)
    target = (lowest_total(words) + (w.HIGHEST_TOTAL + 1)) >> 1
    scale = roomy_scale(words, 1.0) + target - (bit_length(tl.load(total)) - 1)
    if num_rows(words) > 0:
        tl.store(words + w.SCALE, scale)


def sort_by_rank(state: State) -> None:
    """See `reference.sort_by_rank`."""
    capacity, words = len(state.rows), state.words
    grid, block = (blocks(capacity, LANES),), {"BLOCK": LANES, "warps": 4}
    keys = words.new_empty(capacity)
    launch(_keys, grid, words, state.errors, keys, **block)
    order = torch.sort(keys, descending=True).indices
    total = words.new_zeros(1)
    launch(_rank, grid, words, state.leaves, order, total, **block)
    launch(_scale, (1,), words, total, warps=1)
    rebuild(state)
    if "updates" in state.workspace and not is_captured(words.device):
        state.workspace["updates"] = 0


def read_updates(state: State) -> None:
    """Note how many updates there have been since the last sort (waits)."""
    state.workspace["resort_every"] = state.word(w.RESORT_EVERY)
    state.workspace["updates"] = state.word(w.UPDATES)


def count_update(state: State) -> None:
    """There has been another update: sort if it is time. In a capture there has been none."""
    if is_captured(state.words.device):
        return
    if "updates" in state.workspace:
        state.workspace["updates"] += 1
    else:
        read_updates(state)  # where it is counted already
    if state.workspace["updates"] >= state.workspace["resort_every"]:
        sort_by_rank(state)
