"""Drawing a batch: rows, weights, and every field of the rows gathered into one arena.

    uniform       id = oldest + floor(u N)
    proportional  P(i) = mass_i / total; stratified: draw j comes from [j, j + 1) total / B
    weight        (N P(i))^-beta over its normaliser, then at most weight_clip
                  "buffer": the largest weight any row could have, (leaf_i / smallest leaf)^-beta
                  "batch":  the largest of the batch;  None: 1

(Schaul et al. 2016, arXiv:1511.05952, section 3.4.) u is a 64-bit number of the Philox block whose
counter is the number of the draw, so batch k + 1 goes on where batch k ended; training draws and
others have streams of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.batch import CACHE_LINE
from relive.fields import NO_CONVERSION
from relive.ops import words as w
from relive.ops.convert.reference import STORED_DTYPES, decode
from relive.ops.philox.reference import random_below
from relive.ops.power.reference import power
from relive.ops.tree import reference as tree
from relive.schedules import Linear

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.ops.state import State


def sample(state: State, arena: Tensor, batch_size: int, *, train: bool) -> int:
    """Fill an arena with a batch.

    Args:
        arena: uint8, laid out by `BatchLayout`.
        train: count as a training sample: progress, age and reuse go on.

    Returns:
        OK, or NOTHING_TO_DRAW, in which case nothing has changed.
    """
    next_id, capacity = state.word(w.NEXT_ID), state.word(w.CAPACITY)
    live = min(next_id - state.word(w.BASE_ID), capacity)
    proportional = state.word(w.WEIGHTING) == w.PROPORTIONAL
    if live == 0 or (proportional and state.word(w.TOTAL) == 0):
        return w.NOTHING_TO_DRAW
    counter, stream = (w.DRAWS, w.TRAIN_STREAM) if train else (w.EVAL_DRAWS, w.EVAL_STREAM)

    def draw(bound: int, number: int) -> int:
        return random_below(bound, state.word(w.SEED), state.word(counter) + number, stream)

    oldest = next_id - live
    if proportional:
        slots = tree.find(state, torch.tensor(targets(state, batch_size, draw)))
        oldest_slot = (oldest - state.word(w.BASE_ID)) % capacity
        ids = oldest + (slots - oldest_slot) % capacity
        weights = importance_weights(state, state.leaves[slots], live)
    else:
        ids = torch.tensor([oldest + draw(live, number) for number in range(batch_size)])
        weights = torch.ones(batch_size)
    if train and state.word(w.TRACK_REUSE):
        for row_id in ids.tolist():
            state.uses[(row_id - state.word(w.BASE_ID)) % capacity] += 1
            state.age_counts[(next_id - 1 - row_id).bit_length()] += 1
    state.words[counter] += batch_size
    if train:
        state.words[w.PROGRESS] += 1
    state.words[w.SAMPLES] += 1
    state.words[w.SAMPLED_ROWS] += batch_size
    columns = _arena_columns(state, arena, batch_size)
    columns[0].copy_(ids.view(-1, 1).view(torch.uint8))
    columns[1].copy_(weights.view(-1, 1).view(torch.uint8))
    gather(state, ids, arena)
    return w.OK


def targets(state: State, batch_size: int, below: Callable[[int, int], int]) -> list[int]:
    """Where in the total mass each draw falls.

    Args:
        below: (bound, number of the draw) -> its random integer below the bound.
    """
    total = state.word(w.TOTAL)
    if not state.word(w.STRATIFIED):
        return [below(total, number) for number in range(batch_size)]
    found = []
    for number in range(batch_size):
        j = stratum(number, batch_size)
        low, high = j * total // batch_size, (j + 1) * total // batch_size
        found.append(low + below(high - low, number))
    return found


def stratum(position: int, batch_size: int) -> int:
    """Which of B strata the draw at a position of the batch comes from.

    With B = 2^k q, q odd, position a q + b gets stratum b 2^k + reverse_k(a): for every power of
    two m dividing B, each of the m equal slices of the batch then holds one draw of every run of m
    neighbouring strata.
    """
    bits = (batch_size & -batch_size).bit_length() - 1
    a, b = divmod(position, batch_size >> bits)
    mirrored = int(f"{a:0{bits}b}"[::-1], 2) if bits else 0
    return (b << bits) + mirrored


def beta(state: State) -> float:
    """The exponent of the importance weights at the next training sample."""
    start, end = state.real(w.BETA_START), state.real(w.BETA_END)
    return Linear(start, end, int(state.real(w.BETA_STEPS)))(state.word(w.PROGRESS))


def importance_weights(state: State, leaves: Tensor, live: int) -> Tensor:
    """float32 [B] weights of drawn leaves."""
    normalize = state.word(w.NORMALIZE)
    exact = leaves.to(torch.float64)
    if normalize == w.NO_NORMALIZER:
        mass = tree.masses(leaves, state.word(w.SCALE)).to(torch.float64)
        ratio = mass * float(live) / float(state.word(w.TOTAL))
    elif normalize == w.BATCH_NORMALIZER:
        ratio = exact / exact.min()
    else:
        ratio = exact / state.leaves[state.leaves > 0].min().to(torch.float64)
    weights = power(ratio, -beta(state))
    clip = torch.tensor(state.real(w.WEIGHT_CLIP), dtype=torch.float32)
    state.words[w.CLIPPED_WEIGHTS] += int((weights > clip).sum())
    return torch.minimum(weights, clip)


def gather(state: State, ids: Tensor, arena: Tensor) -> None:
    """Copy every gathered field of the rows `ids` (int64 [B], live) into an arena."""
    slots = (ids - state.words[w.BASE_ID]) % state.words[w.CAPACITY]
    columns = _arena_columns(state, arena, len(ids))[2:]
    for target, column in zip(columns, state.columns.tolist(), strict=True):
        offset, nbytes, _, conversion = column
        stored = state.rows[slots, offset : offset + nbytes]
        if conversion != NO_CONVERSION:
            stored = decode(stored.view(STORED_DTYPES[conversion])).view(torch.uint8)
        target.copy_(stored)


def _arena_columns(state: State, arena: Tensor, batch_size: int) -> list[Tensor]:
    """Ids, weights and the gathered columns as uint8 [B, bytes] views of an arena."""
    views, end = [], 0
    for nbytes in (8, 4, *state.columns[:, w.COLUMN_BATCH_BYTES].tolist()):
        views.append(arena[end : end + batch_size * nbytes].view(batch_size, nbytes))
        end += -(-batch_size * nbytes // CACHE_LINE) * CACHE_LINE
    return views
