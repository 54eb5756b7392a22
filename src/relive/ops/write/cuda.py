"""Writing steps, in Triton: first a plan of all rows (`lanes.cuda`), then the rows (`rows.cuda`).

The plan is made by one program, the rows by as many as there are blocks of steps; where few steps
are concerned one program does both. Nothing that a launch reads is written by another program of it
(steps that begin to wait take the places of others that waited, so many steps need a third launch).

n  steps folded into one row    L  lanes    T  times
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from relive.ops.lanes.cuda import plan_ready_made, plan_rows, plan_words
from relive.ops.launch import blocks, launch, power_of_two
from relive.ops.pack.cuda import pack
from relive.ops.rows.cuda import build_rows

if TYPE_CHECKING:
    from relive.ops.pack.reference import Column
    from relive.ops.state import State

FEW = 16  # steps that one program plans and writes
PLANNED_AT_ONCE = 1024  # steps
TILE_WORDS = 512  # words of 8 bytes that a program copies at once


@triton.jit(do_not_specialize=["times", "first_lane", "first_time"])
def write_kernel(
    words,
    rows,
    pending,
    lanes,
    gammas,
    errors,
    uses,
    reuse_counts,
    plan,
    steps,
    times,
    first_lane,
    first_time,
    LANES: tl.constexpr,
    N_STEP: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    CLOSE: tl.constexpr,
    READY_MADE: tl.constexpr,
    PLANS: tl.constexpr,
    EMITS: tl.constexpr,
    KEEPS: tl.constexpr,
    RANKED: tl.constexpr,
    TRACKS: tl.constexpr,
    ROWS: tl.constexpr,
    WORDS: tl.constexpr,
    TILE_TIMES: tl.constexpr,
    TILE_LANES: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """Plan rows (one program), or build them from a block of ROWS steps, or both."""
    if PLANS and READY_MADE:
        plan_ready_made(words, plan, times, LANES)
    elif PLANS:
        plan_rows(
            words,
            lanes,
            rows,
            plan,
            steps,
            times,
            first_lane,
            LANES,
            N_STEP,
            ROW_BYTES,
            CLOSE,
            TILE_TIMES,
            TILE_LANES,
        )
    if PLANS and EMITS:
        tl.debug_barrier()
    if EMITS or KEEPS:
        build_rows(
            words,
            rows,
            pending,
            lanes,
            gammas,
            errors,
            uses,
            reuse_counts,
            plan,
            steps,
            times,
            first_lane,
            first_time,
            tl.program_id(0),
            tl.program_id(1),
            tl.num_programs(1),
            LANES,
            N_STEP,
            ROW_BYTES,
            CLOSE,
            READY_MADE,
            EMITS,
            KEEPS,
            RANKED,
            TRACKS,
            ROWS,
            WORDS,
        )


class _Call(NamedTuple):
    """What one call writes.

    Attributes:
        steps: uint8 [at least T, L, row_bytes].
    """

    state: State
    steps: Tensor
    times: int
    lanes: range
    ready_made: bool
    close: bool

    def run(self) -> None:
        """Launch what is needed."""
        state, num_lanes = self.state, len(self.lanes)
        n_step = 1 if self.ready_made else state.pending.shape[1]
        plan = torch.empty(
            plan_words(num_lanes, self.times), dtype=torch.int64, device=state.words.device
        )
        oldest = 1 - n_step
        keeps = n_step > 1 and not self.close
        items = (self.times - oldest) * num_lanes
        if items == 0:
            self._launch(plan, 0, 1, plans=True)
        elif items <= FEW and self.times <= 1 and not self.ready_made:
            self._launch(plan, oldest, items, plans=True, emits=True, keeps=keeps)
        else:
            self._launch(plan, oldest, 1, plans=True)
            at_once = keeps and self.times <= 1
            self._launch(plan, oldest, items, emits=True, keeps=at_once)
            if keeps and not at_once:
                first = max(0, self.times + oldest)
                self._launch(plan, first, (self.times - first) * num_lanes, keeps=True)

    def _launch(
        self,
        plan: Tensor,
        first_time: int,
        items: int,
        *,
        plans: bool = False,
        emits: bool = False,
        keeps: bool = False,
    ) -> None:
        state, num_lanes = self.state, len(self.lanes)
        row_words = state.rows.shape[1] // 8
        block = power_of_two(items) if plans else max(1, TILE_WORDS // power_of_two(row_words))
        piece = min(power_of_two(row_words), TILE_WORDS // block)
        builds = emits or keeps
        tile_lanes = min(power_of_two(num_lanes), PLANNED_AT_ONCE // 2)
        most_times = PLANNED_AT_ONCE // tile_lanes
        tile_times = next(k for k in (2, 32, most_times) if k > self.times or k >= most_times)
        launch(
            write_kernel,
            (blocks(items, block), 1 if plans else blocks(row_words, piece)),
            state.words,
            state.rows,
            state.pending,
            state.lanes,
            state.gammas,
            state.errors,
            state.uses,
            state.reuse_counts,
            plan,
            self.steps,
            self.times,
            self.lanes.start,
            first_time,
            LANES=num_lanes,
            N_STEP=state.pending.shape[1],
            ROW_BYTES=state.rows.shape[1],
            CLOSE=self.close,
            READY_MADE=self.ready_made,
            PLANS=plans,
            EMITS=emits,
            KEEPS=keeps,
            RANKED=emits and len(state.errors) > 0,
            TRACKS=emits and len(state.uses) > 0,
            ROWS=block if builds else 1,
            WORDS=piece if builds else 1,
            TILE_TIMES=tile_times if plans else 1,
            TILE_LANES=tile_lanes if plans else 1,
        )


def write(state: State, steps: Tensor) -> None:
    """See `reference.write`; one launch for few steps, else two."""
    _Call(state, steps, 1, range(len(state.lanes)), ready_made=False, close=False).run()


def extend(
    state: State,
    columns: list[Column],
    count: int,
    lanes: range,
    staging: Tensor,  # noqa: ARG001 - only the CPU is faster with it
    *,
    ready_made: bool,
    close: bool,
) -> None:
    """See `reference.extend`; columns are tensors on the device. Takes up to four launches."""
    steps = torch.zeros(count, state.rows.shape[1], dtype=torch.uint8, device=state.rows.device)
    pack(steps, columns)
    _Call(state, steps, count // len(lanes), lanes, ready_made=ready_made, close=close).run()


def flush(state: State, lanes: range) -> None:
    """See `reference.flush`; one launch for few steps, else two."""
    _Call(state, state.pending, 0, lanes, ready_made=False, close=True).run()
