"""Drawing a batch, in Numba: draws, weights and gather in one call.

Everything is done for the whole batch, step by step and level by level: the reads of different
draws do not wait for each other, and the arithmetic becomes vector instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import float32_pointer, int64_pointer, kernel, words_at
from relive.ops.draw.cpu import draw_rows, track
from relive.ops.gather.cpu import gather_columns, lines
from relive.ops.parts.cpu import (
    ANY_ID,
    MAX_PARTS,
    MAX_RUNS,
    PART_WORDS,
    RUN_WORDS,
    find_parts,
)
from relive.ops.weights.cpu import weigh
from relive.ops.window.cpu import find_ids, find_slots, num_gone

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State


@kernel
def _sample(
    header: Any,
    arena: Any,
    batch_size: Any,
    train: Any,
    first_id: Any,
    stop_id: Any,
    first: Any,
    total: Any,
) -> Any:
    words, reals = words_at(header)
    runs = np.empty((MAX_PARTS, MAX_RUNS, RUN_WORDS), np.int64)
    parts = np.empty((MAX_PARTS, PART_WORDS), np.int64)
    shares = np.empty(MAX_PARTS, np.float64)
    number, carry = find_parts(words, reals, runs, parts, shares, batch_size, first_id, stop_id)
    if number == 0:
        return w.NOTHING_TO_DRAW
    ids = carray(int64_pointer(arena), total)[first : first + batch_size]
    weights = carray(float32_pointer(arena + lines(8 * total)), total)[first : first + batch_size]
    counter = w.DRAWS if train else w.EVAL_DRAWS
    stream = w.TRAIN_STREAM if train else w.EVAL_STREAM
    slots = np.empty(batch_size, np.int64)
    draw_rows(words, runs, parts, number, counter, stream, slots)
    if words[w.WEIGHTING] == w.UNIFORM:
        weights[:] = np.float32(1)
    else:
        weigh(words, reals, runs, parts, shares, number, slots, weights)
    find_ids(words, slots, ids)
    if stop_id != ANY_ID:
        words[w.RANGE_ROWS_GONE] += num_gone(words, first_id, stop_id)
    if train:
        if words[w.TRACK_REUSE]:
            track(words, slots, ids)
        words[w.PROGRESS] += 1
        words[w.SWEEP] = (words[w.SWEEP] + 1) % words[w.SWEEP_LENGTH]
        reals[w.DEMO_CARRY] = carry
    words[counter] += batch_size
    words[w.SAMPLES] += 1
    words[w.SAMPLED_ROWS] += batch_size
    gather_columns(words, slots, arena, first, total)
    return w.OK


@kernel
def _can_draw(header: Any) -> Any:
    words, reals = words_at(header)
    runs = np.empty((MAX_PARTS, MAX_RUNS, RUN_WORDS), np.int64)
    parts = np.empty((MAX_PARTS, PART_WORDS), np.int64)
    number, _ = find_parts(words, reals, runs, parts, np.empty(MAX_PARTS, np.float64), 1, 0, ANY_ID)
    return number


@kernel
def _gather(header: Any, arena: Any, ids: Any, batch_size: Any) -> None:
    words, _ = words_at(header)
    slots = np.empty(batch_size, np.int64)
    find_slots(words, carray(int64_pointer(ids), batch_size), slots)
    gather_columns(words, slots, arena, 0, batch_size)


def sample(
    state: State,
    arena: Tensor,
    batch_size: int,
    *,
    train: bool,
    ids: tuple[int, int] | None = None,
    first: int = 0,
    total: int | None = None,
) -> int:
    """See `reference.sample`."""
    first_id, stop_id = (0, ANY_ID) if ids is None else ids
    return int(
        _sample(
            state.header,
            arena.data_ptr(),
            batch_size,
            train,
            first_id,
            stop_id,
            first,
            batch_size if total is None else total,
        )
    )


def can_draw(state: State) -> bool:
    """See `reference.can_draw`."""
    return bool(_can_draw(state.header))


def gather(state: State, ids: Tensor, arena: Tensor) -> None:
    """See `reference.gather`."""
    _gather(state.header, arena.data_ptr(), ids.data_ptr(), len(ids))
