"""Drawing a batch, in Triton: one launch draws, another copies rows and weighs them.

What is drawn is noted as ids in the arena, -1 where nothing can be drawn, so the second launch
needs nothing of its own but the notes of `weights.cuda`. It also moves the counters on, which the
first one reads. Nothing is refused: a batch of nothing has weights 0 and fields 0 and is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from relive.gpu.transfer import moved
from relive.ops import words as w
from relive.ops.draw.cuda import draw_rows
from relive.ops.fill.cuda import fill_batch
from relive.ops.gather.layout import GatherLayout, gather_layout
from relive.ops.launch import blocks, launch
from relive.ops.weights.cuda import INFINITE_BITS, NUM_NOTES, SMALLEST

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

DRAWS_TOGETHER, MANY_DRAWS_TOGETHER = 8, 128  # of a program of one warp, or of four
WEIGHED_TOGETHER = 128  # rows of a program
MANY_DRAWS = 1 << 12  # of a batch: enough to fill a GPU


class Choices(NamedTuple):
    """What never changes of a buffer's sampling, compiled into its kernels."""

    weighted: bool
    stratified: bool
    share: bool  # of uniform draws among those by priority
    normalize: int
    mixture: bool
    track: bool
    levels: int
    rows: GatherLayout


def sample(
    state: State,
    arena: Tensor,
    batch_size: int,
    *,
    train: bool,
    ids: tuple[int, int] | Tensor | None = None,
    first: int = 0,
    total: int | None = None,
) -> int:
    """See `reference.sample`; the host does not wait, and nothing is refused.

    Args:
        ids: As there, or int64 [2] on the device, which a captured call reads anew each time.

    Returns:
        OK. Where nothing can be drawn, ids are -1, weights and fields 0, and it is counted, as are
        rows of the range that are gone.
    """
    choices, notes = prepared(state)
    total = batch_size if total is None else total
    together = MANY_DRAWS_TOGETHER if batch_size >= MANY_DRAWS else DRAWS_TOGETHER
    launch(
        draw_rows,
        (1 + blocks(batch_size, together),),
        state.words,
        state.leaves,
        state.sums,
        state.mins,
        state.uses,
        state.age_counts,
        state.words if ids is None else _bounds(ids, state.words.device),
        notes,
        arena,
        batch_size,
        first,
        total,
        warps=max(1, together // 32),
        TRAIN=train,
        RANGE=ids is not None,
        WEIGHTED=choices.weighted,
        STRATIFIED=choices.stratified,
        SHARE=choices.share,
        NORMALIZE=choices.normalize,
        MIXTURE=choices.mixture,
        TRACK=choices.track,
        LEVELS=choices.levels,
        BLOCK=together,
    )
    _fill(state, arena, arena, batch_size, first, total, drawn=True, train=train)
    return w.OK


def gather(state: State, ids: Tensor, arena: Tensor) -> None:
    """See `reference.gather`; the host does not wait. An id of -1 gives zeros."""
    _fill(state, ids, arena, len(ids), 0, len(ids), drawn=False, train=False)


def _fill(
    state: State,
    ids: Tensor,
    arena: Tensor,
    count: int,
    first: int,
    total: int,
    *,
    drawn: bool,
    train: bool,
) -> None:
    choices, notes = prepared(state)
    rows = choices.rows
    together, tiles = rows.tile(count)
    weighers = blocks(count, WEIGHED_TOGETHER) if choices.weighted else 1
    weighers = weighers if drawn else 0
    launch(
        fill_batch,
        (weighers + blocks(count, together * tiles) * rows.pieces,),
        state.words,
        state.rows,
        state.frames,
        state.frame_words,
        state.leaves,
        ids,
        arena,
        notes,
        count,
        first,
        total,
        weighers,
        TRAIN=train,
        WEIGHTED=choices.weighted,
        SHARE=choices.share,
        NORMALIZE=choices.normalize,
        ROW_BYTES=rows.row_bytes,
        ROW_WORDS=rows.row_words,
        FIELDS=rows.fields,
        NUM_FIELDS=len(rows.fields),
        PIECES=rows.pieces,
        TOGETHER=together,
        TILES=tiles,
        WEIGHED_TOGETHER=WEIGHED_TOGETHER,
        FRAME_BYTES=state.frames.shape[1],
    )


def prepared(state: State) -> tuple[Choices, Tensor]:
    """What kernels are compiled with, and the notes; read and made once (waits on CUDA)."""
    if "sampling" not in state.workspace:
        words = state.words.tolist()
        notes = torch.zeros(NUM_NOTES, dtype=torch.int64, device=state.words.device)
        notes[SMALLEST.value : SMALLEST.value + 2].fill_(INFINITE_BITS)
        choices = Choices(
            weighted=words[w.WEIGHTING] != w.UNIFORM,
            stratified=bool(words[w.STRATIFIED]),
            share=words[w.UNIFORM_SHARE] > 0,
            normalize=words[w.NORMALIZE],
            mixture=bool(words[w.MIXTURE_WEIGHTS]),
            track=bool(words[w.TRACK_REUSE]),
            levels=words[w.NUM_LEVELS],
            rows=gather_layout(state.rows.shape[1], state.columns.tolist()),
        )
        state.workspace["sampling"] = choices, notes
    return state.workspace["sampling"]


def _bounds(ids: tuple[int, int] | Tensor, device: torch.device) -> Tensor:
    if isinstance(ids, tuple):
        return moved(torch.tensor(ids, device="cpu"), device)
    return ids
