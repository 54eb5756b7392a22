"""What a buffer is given to write, on its way to the kernels.

E  environments (lanes)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from relive.frames import at_once
from relive.ops import words as w
from relive.ops.pack.reference import pack
from relive.ops.window.reference import num_rows
from relive.storage import memory
from relive.writing.step import StepPacker
from relive.writing.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relive.fields import RowLayout
    from relive.gpu.pinned import Slots
    from relive.ops.dispatch import Operations
    from relive.ops.state import State
    from relive.writing.stream import Piece


class Intake:
    """Checks and packs steps in host memory and writes them into a buffer there.

    Attributes:
        staging: uint8 [at least E, row_bytes], where steps are packed.
        steps: uint8 [E, row_bytes] of it, the step of every environment that was taken last.

    Args:
        layout: of packed steps.
        resets: how environments reset, see `autoreset.MODES`.
    """

    def __init__(
        self, state: State, operations: Operations, layout: RowLayout, resets: str
    ) -> None:
        num_envs = len(state.lanes)
        self._state, self._ops, self._layout, self._resets = state, operations, layout, resets
        self.staging = memory.allocate_staging(layout, num_envs)
        self.steps = self.staging[:num_envs]
        self._together = self.staging  # where steps are packed whose frames are looked at
        self._packer = StepPacker(layout, self.steps, resets)
        self._lanes = range(num_envs)
        self._out_of_range: int | Tensor = 0
        self._rows = memory.allocate_rows(state) if state.keeps_frames else None

    def take(
        self,
        obs: Any,
        action: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        final_obs: Any,
        own: Mapping[str, Any],
        *,
        on_host: bool = False,  # noqa: ARG002 - here all is
    ) -> None:
        """Pack one step of every environment.

        Args:
            on_host: it must be packed in host memory, for others to read (on a GPU that waits).

        Raises:
            InputError: a shape, dtype or key that does not fit, or a missing final observation.
        """
        self._packer.pack(obs, action, reward, next_obs, terminated, truncated, final_obs, own)
        self._out_of_range = self._packer.out_of_range

    def write(self) -> None:
        """Write the step that was taken."""
        rows = self.steps if self._rows is None else self._as_rows(self.steps, self._lanes)
        self._ops.write(self._state, rows)
        self._count_out_of_range(self._out_of_range)

    def stream(self, values: Mapping[str, Any], num_lanes: int | None, *, on_host: bool) -> Stream:  # noqa: ARG002 - here all is
        """Many steps, checked, in host memory; see `Stream`."""
        return Stream(self._layout, values, num_lanes)

    def extend(self, piece: Piece, lanes: range, *, ready_made: bool) -> None:
        """Write a piece of a stream; close the lanes after the last, unless rows are ready-made."""
        close = piece.is_last and not ready_made
        if self._rows is not None:
            self._part(lanes, ready_made=ready_made)
            self._extend_frames(piece, lanes, ready_made=ready_made, close=close)
        else:
            self._ops.extend(
                self._state,
                piece.columns,
                piece.steps,
                lanes,
                self.staging,
                ready_made=ready_made,
                close=close,
            )
        self._count_out_of_range(piece.out_of_range)

    def end_episode(self, lanes: range) -> None:
        """Close lanes, as truncated."""
        self._ops.flush(self._state, lanes)

    @property
    def next_id(self) -> int | None:
        """The id that the next row gets."""
        return self._state.word(w.NEXT_ID)

    @property
    def rows(self) -> int:
        """Rows held."""
        return num_rows(self._state)

    def ready(self, batch_size: int) -> bool:
        """Whether `batch_size` rows are held and something can be drawn."""
        return self.rows >= batch_size and bool(self._ops.can_draw(self._state))

    @property
    def pinned(self) -> Slots | None:
        """Where steps are on their way to a GPU; None on the CPU."""
        return None

    def memory(self) -> list[Tensor]:
        """What it keeps on a GPU, besides the state."""
        return []

    def refresh(self) -> None:
        """The state has been replaced."""

    def forget(self) -> None:
        """The state has been cleared."""

    def _as_rows(self, steps: Tensor, lanes: range) -> Tensor:
        """Packed steps as rows; that is something else where frames are kept once."""
        if self._rows is None:
            return steps
        rows = self._rows[: len(steps)]
        self._ops.intern(self._state, steps, rows, lanes)
        return rows

    def _part(self, lanes: range, *, ready_made: bool) -> None:
        """Lanes that are given nothing meanwhile let go of frames, which are not kept for ever.

        Their episodes end here, as truncated, if steps of theirs wait; ready-made rows pass by what
        waits in their own lanes.
        """
        every = self._lanes
        others = [some for some in (every[: lanes.start], every[lanes.stop :]) if some]
        if self._state.pending.shape[1] > 1:
            for some in [every] if ready_made else others:
                self._cut(some)
        for some in others:
            self._state.stacks[some.start : some.stop].fill_(-1)

    def _cut(self, lanes: range) -> None:
        """As `end_episode`, but that a fake step which is due stays due."""
        due = self._state.lanes[lanes.start : lanes.stop, w.LANE_RESET]
        before = due.clone()
        self._ops.flush(self._state, lanes)
        due.copy_(before)

    def _extend_frames(self, piece: Piece, lanes: range, *, ready_made: bool, close: bool) -> None:
        """As `extend`, some steps at a time: they are packed, and their frames looked at."""
        together = at_once(len(lanes))
        for first in range(0, piece.steps, together):
            stop = min(first + together, piece.steps)
            steps = self._packed_steps(piece, first, stop)
            rows = self._as_rows(steps, lanes)
            self._ops.extend(
                self._state,
                [(0, rows.shape[1], rows)],
                stop - first,
                lanes,
                rows,  # where they are packed already
                ready_made=ready_made,
                close=close and stop == piece.steps,
            )
        if ready_made:  # steps that come next have no discount yet
            discount = self._layout.columns["discount"]
            self._together[:, discount.offset : discount.offset + discount.nbytes] = 0

    def _packed_steps(self, piece: Piece, first: int, stop: int) -> Tensor:
        """Steps first...stop - 1 of a piece, packed."""
        steps = self._together[: stop - first]
        pack(
            steps,
            [(o, size, v.reshape(piece.steps, -1)[first:stop]) for o, size, v in piece.columns],
        )
        return steps

    def _count_out_of_range(self, number: int | Tensor) -> None:
        if isinstance(number, Tensor) or number:
            self._state.words[w.OUT_OF_RANGE : w.OUT_OF_RANGE + 1] += number
