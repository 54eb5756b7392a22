"""Copying rows into an arena: one column a field, each at a cache line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.batch import CACHE_LINE
from relive.fields import NO_CONVERSION
from relive.ops import words as w
from relive.ops.convert.reference import STORED_DTYPES, decode
from relive.ops.frames.reference import slots_of_frames

if TYPE_CHECKING:
    from relive.ops.state import State


def gather_rows(state: State, slots: Tensor, columns: list[Tensor], first: int) -> None:
    """Copy every gathered field of the rows in some slots, as a batch shows it.

    Args:
        slots: int64 [B].
        columns: `arena_columns` behind ids and weights, written into from row `first` on.
    """
    for target, column in zip(columns, state.columns.tolist(), strict=True):
        offset, nbytes, _, conversion, stack = column
        if stack:
            stored = _stacks(state, slots, offset, nbytes, stack)
        else:
            stored = state.rows[slots, offset : offset + nbytes]
        if conversion != NO_CONVERSION:
            stored = decode(stored.view(STORED_DTYPES[conversion])).view(torch.uint8)
        target[first : first + len(slots)] = stored


def _stacks(state: State, slots: Tensor, offset: int, nbytes: int, stack: int) -> Tensor:
    """Frames whose ids rows have, one behind the other: uint8 [B, nbytes]."""
    ids = state.rows[slots, offset : offset + 8 * stack].view(torch.int64)
    frames = state.frames[slots_of_frames(state, ids), : nbytes // stack]
    return frames.reshape(len(slots), nbytes)


def arena_columns(state: State, arena: Tensor, batch_size: int) -> list[Tensor]:
    """Ids, weights and the gathered columns as uint8 [B, bytes] views of an arena."""
    views, end = [], 0
    for nbytes in (8, 4, *state.columns[:, w.COLUMN_BATCH_BYTES].tolist()):
        views.append(arena[end : end + batch_size * nbytes].view(batch_size, nbytes))
        end += -(-batch_size * nbytes // CACHE_LINE) * CACHE_LINE
    return views
