"""Drawing a batch: rows, weights, and every field of the rows gathered into one arena.

Within a part of n rows (see `ops.window`), whose masses sum to M, k draws are made:

    uniform       row floor(u n)
    by priority   P(i) = mass_i / M; stratified: draw j comes from [j, j + 1) M / k
                  with a uniform share s:  P(i) = (1 - s) mass_i / M + s / n
    weight        (n P(i))^-beta over its normaliser, then at most weight_clip
                  "buffer": the largest weight any row with a positive leaf could have
                  "batch":  the largest of the batch;  None: 1

(Schaul et al. 2016, arXiv:1511.05952, section 3.4.) With two parts, n and P are those inside each
and the normaliser is common, or, with mixture weights, P is that of the whole mixture. u is a
64-bit number of the Philox block whose counter is the number of the draw, so batch k + 1 goes on
where batch k ended; training draws and others have streams of their own. The other half of the
block decides whether a draw belongs to the uniform share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.ops import words as w
from relive.ops.draw.reference import draw_rows, track
from relive.ops.gather.reference import arena_columns, gather_rows
from relive.ops.weights.reference import importance_weights
from relive.ops.window import reference as windows
from relive.schedules import Linear

if TYPE_CHECKING:
    from relive.ops.state import State


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
    """Fill an arena with a batch.

    Args:
        arena: uint8, laid out by `BatchLayout`.
        train: count as a training sample: progress, sweep, age and reuse go on.
        ids: draw from the rows with ids in [start, stop) only, whatever the window; those of the
            range that are gone are counted.
        first, total: the batch is rows first..first + batch_size of an arena of `total` rows.

    Returns:
        OK, or NOTHING_TO_DRAW, in which case nothing has changed.
    """
    total = batch_size if total is None else total
    parts, carry = windows.parts(state, batch_size, ids)
    if not parts:
        return w.NOTHING_TO_DRAW
    counter, stream = (w.DRAWS, w.TRAIN_STREAM) if train else (w.EVAL_DRAWS, w.EVAL_STREAM)
    slots, part_of = draw_rows(state, parts, batch_size, counter, stream)
    row_ids = windows.ids_of(state, slots)
    if state.word(w.WEIGHTING) == w.UNIFORM:
        weights = torch.ones(batch_size)
    else:
        weights = importance_weights(state, parts, slots, part_of, beta(state))
    if ids is not None:
        state.words[w.RANGE_ROWS_GONE] += windows.num_gone(state, *ids)
    if train:
        if state.word(w.TRACK_REUSE):
            track(state, slots, row_ids)
        state.words[w.PROGRESS] += 1
        state.words[w.SWEEP] = (state.word(w.SWEEP) + 1) % state.word(w.SWEEP_LENGTH)
        state.floats[w.DEMO_CARRY] = carry
    state.words[counter] += batch_size
    state.words[w.SAMPLES] += 1
    state.words[w.SAMPLED_ROWS] += batch_size
    columns = arena_columns(state, arena, total)
    columns[0][first : first + batch_size] = row_ids.view(-1, 1).view(torch.uint8)
    columns[1][first : first + batch_size] = weights.view(-1, 1).view(torch.uint8)
    gather_rows(state, slots, columns[2:], first)
    return w.OK


def beta(state: State) -> float:
    """The exponent of the importance weights at the next training sample."""
    start, end = state.real(w.BETA_START), state.real(w.BETA_END)
    return Linear(start, end, int(state.real(w.BETA_STEPS)))(state.word(w.PROGRESS))


def can_draw(state: State) -> bool:
    """Whether the next batch has a row to draw."""
    return bool(windows.parts(state, 1, None)[0])


def gather(state: State, ids: Tensor, arena: Tensor) -> None:
    """Copy every gathered field of the rows `ids` (int64 [B], held) into an arena."""
    columns = arena_columns(state, arena, len(ids))[2:]
    gather_rows(state, windows.slots_of(state, ids), columns, 0)
