"""Priorities of rows that have been trained on, for Triton; see `reference.update`.

One program does all there is to do (`decide.cuda`, then `tree.cuda`) for up to 4096 rows: it owns
the tree, and barriers are its order. For more, `large_update.cuda` does.

Nothing is refused: ids that were never given out are skipped, and counted as those of rows that
have been overwritten are. When to sort by rank the host knows, which counts updates; not those of
replays of a captured one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.decide.cuda import apply, ask, note, note_largest, stamps_of, unstamp, weigh
from relive.ops.large_update.cuda import update_errors_of_many, update_many
from relive.ops.launch import launch
from relive.ops.nodes.cuda import block_of, constants, tree_of
from relive.ops.rank.cuda import count_update
from relive.ops.tree.cuda import lift, settle

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

ONE_PROGRAM = 4096  # rows, at most


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


def update(state: State, ids: Tensor, values: Tensor, *, as_leaves: bool) -> int:
    """See `reference.update`; always OK. The first must not be captured in a CUDA graph."""
    is_large = len(ids) > ONE_PROGRAM
    if len(state.errors):
        update_some = update_errors_of_many if is_large else _update_errors
    else:
        update_some = update_many if is_large else _update_leaves
    update_some(state, ids, values, as_leaves)
    if len(state.errors):
        count_update(state)
    return w.OK


def _update_leaves(state: State, ids: Tensor, values: Tensor, as_leaves: bool) -> None:
    count, (slots, changes) = len(ids), ids.new_empty(2, len(ids))
    scratch = stamps_of(state), slots, changes, torch.empty_like(values)
    given = *tree_of(state), ids, values, *scratch, count
    kind = constants(state) | block_of(count)
    launch(_update, (1,), *given, AS_LEAVES=as_leaves, **kind)


def _update_errors(state: State, ids: Tensor, values: Tensor, as_leaves: bool) -> None:
    scratch = stamps_of(state), torch.empty_like(ids), torch.empty_like(values)
    given = state.words, state.errors, ids, values, *scratch, len(ids)
    launch(_note, (1,), *given, AS_LEAVES=as_leaves, **block_of(len(ids)))
