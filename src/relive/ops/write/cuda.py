"""Writing steps, in Triton: first a plan of all rows (`lanes.cuda`), then the rows (`rows.cuda`).

The plan is made by one program, which also gives the new rows their leaves; the rows are built by
as many as there are blocks of steps. Where few steps are concerned one program does all. Steps are
read where they were given (`pack.cuda`). What a launch reads no other program of it writes: steps
that begin to wait take the places of others that waited, so where there are many times they are put
there by a third launch.

n  steps folded into one row    L  lanes    T  times
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from relive.ops.enter.cuda import enter_rows
from relive.ops.lanes.cuda import plan_rows, plan_words
from relive.ops.launch import blocks, launch, power_of_two
from relive.ops.nodes.cuda import MOST_REGISTERS, constants
from relive.ops.pack.cuda import placed
from relive.ops.rows.cuda import build_rows, keep_steps

if TYPE_CHECKING:
    from relive.ops.pack.cuda import Column
    from relive.ops.state import State

FEW = 16  # steps that one program plans and writes
FEW_BYTES = 1 << 16  # of their rows
PLANNED_AT_ONCE = 512  # steps, or two times of
LANES_AT_ONCE = 1024
NUMBERED_AT_ONCE = 1024
TILE_WORDS = 1024  # that a program copies at once


@triton.jit(do_not_specialize=["times", "first_lane", "first_time"])
def write_kernel(
    words,
    columns,
    rows,
    pending,
    lanes,
    gammas,
    leaves,
    sums,
    mins,
    maxs,
    errors,
    uses,
    reuse_counts,
    plan,
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
    PRIORITIZED: tl.constexpr,
    RANKED: tl.constexpr,
    TRACKS: tl.constexpr,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    PLACES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
    TILE_TIMES: tl.constexpr,
    TILE_LANES: tl.constexpr,
    NUMBERED: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """Plan rows and give them leaves (one program), build them, or keep steps; or all of it."""
    block, piece, pieces = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    if PLANS:
        first_id, next_id = plan_rows(
            words,
            lanes,
            rows,
            plan,
            columns,
            times,
            first_lane,
            LANES,
            N_STEP,
            ROW_BYTES,
            CLOSE,
            READY_MADE,
            PLACES,
            TILE_TIMES,
            TILE_LANES,
            NUMBERED,
        )
        if PRIORITIZED:
            enter_rows(
                words,
                leaves,
                sums,
                mins,
                maxs,
                errors,
                first_id,
                next_id,
                RANKED,
                LEVELS,
                MINS,
                MAXS,
            )
        tl.debug_barrier()
    if EMITS:
        build_rows(
            words,
            columns,
            rows,
            pending,
            gammas,
            uses,
            reuse_counts,
            plan,
            times,
            first_lane,
            first_time,
            block,
            piece,
            pieces,
            LANES,
            N_STEP,
            ROW_BYTES,
            CLOSE,
            READY_MADE,
            TRACKS,
            PLACES,
            BLOCK_ROWS,
            BLOCK_WORDS,
        )
    if KEEPS:
        keep_steps(
            words,
            columns,
            pending,
            lanes,
            times,
            first_lane,
            first_time,
            block,
            piece,
            pieces,
            LANES,
            N_STEP,
            ROW_BYTES,
            PLACES,
            BLOCK_ROWS,
            BLOCK_WORDS,
        )


class _Call(NamedTuple):
    """What one call writes.

    Attributes:
        columns: Of T * L steps, those of all lanes at one time before those of the next.
    """

    state: State
    columns: list[Column]
    times: int
    lanes: range
    ready_made: bool
    close: bool

    def run(self) -> None:
        """Launch what is needed."""
        state, num_lanes = self.state, len(self.lanes)
        n_step = 1 if self.ready_made else state.pending.shape[1]
        size = plan_words(num_lanes, self.times)
        plan = torch.empty(size, dtype=torch.int64, device=state.words.device)
        oldest = 1 - n_step
        items = (self.times - oldest) * num_lanes
        keeps = n_step > 1 and not self.close
        at_once = keeps and self.times <= 1
        are_few = items <= FEW and items * state.rows.shape[1] <= FEW_BYTES
        if are_few and self.times <= 1:
            emits = items > 0
            self._launch(plan, oldest, items, plans=True, emits=emits, keeps=keeps)
            return
        self._launch(plan, oldest, 1, plans=True)
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
        state = self.state
        columns, places = placed(self.columns)
        row_words = state.rows.shape[1] // 4
        block = power_of_two(items) if plans else max(1, TILE_WORDS // power_of_two(row_words))
        piece = min(power_of_two(row_words), TILE_WORDS // block)
        grid = (1, 1) if plans else (blocks(items, block), blocks(row_words, piece))
        launch(
            write_kernel,
            grid,
            state.words,
            columns,
            state.rows,
            state.pending,
            state.lanes,
            state.gammas,
            state.leaves,
            state.sums,
            state.mins,
            state.maxs,
            state.errors,
            state.uses,
            state.reuse_counts,
            plan,
            self.times,
            self.lanes.start,
            first_time,
            LANES=len(self.lanes),
            N_STEP=state.pending.shape[1],
            ROW_BYTES=state.rows.shape[1],
            CLOSE=self.close,
            READY_MADE=self.ready_made,
            PLANS=plans,
            EMITS=emits,
            KEEPS=keeps,
            PRIORITIZED=plans and len(state.leaves) > 0,
            RANKED=len(state.errors) > 0,
            TRACKS=len(state.uses) > 0,
            **constants(state),
            PLACES=places,
            BLOCK_ROWS=block,
            BLOCK_WORDS=piece,
            **self._tiles(plans),
            maxnreg=MOST_REGISTERS,  # it may have them: no spills
        )

    def _tiles(self, plans: bool) -> dict[str, int]:
        """How many times and lanes are planned at once; few sizes, so that few are compiled."""
        if not plans:
            return {"TILE_TIMES": 1, "TILE_LANES": 1, "NUMBERED": 1}
        lanes = min(power_of_two(len(self.lanes)), LANES_AT_ONCE)
        most = max(2, PLANNED_AT_ONCE // lanes)
        times = next(k for k in (2, 32, most) if k > self.times or k >= most)
        are_few = times * lanes <= 128
        warps = 4 if are_few and len(self.state.leaves) == 0 else 8
        return {
            "warps": warps,
            "TILE_TIMES": times,
            "TILE_LANES": lanes,
            "NUMBERED": min(max(times * lanes, 32 * warps), NUMBERED_AT_ONCE),
        }


def write(state: State, steps: Tensor) -> None:
    """See `reference.write`; one launch for few steps, else two."""
    columns: list[Column] = [(0, state.rows.shape[1], steps)]
    _Call(state, columns, 1, range(len(state.lanes)), ready_made=False, close=False).run()


def extend(
    state: State,
    columns: list[Column],
    count: int,
    lanes: range,
    staging: Tensor,
    *,
    ready_made: bool,
    close: bool,
) -> None:
    """See `reference.extend`; columns are contiguous tensors on the device.

    One time of few lanes takes one launch, of many two; many times take three at most.
    """
    given, times = columns if count else [], count // len(lanes)
    _Call(state, given, times, lanes, ready_made=ready_made, close=close).run()


def flush(state: State, lanes: range) -> None:
    """See `reference.flush`; one launch for few steps, else two."""
    _Call(state, [], 0, lanes, ready_made=False, close=True).run()
