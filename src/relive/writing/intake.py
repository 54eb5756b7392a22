"""What a buffer is given to write, on its way to the kernels.

E  environments (lanes)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from relive.errors import InputError
from relive.ops import words as w
from relive.ops.window.reference import num_rows
from relive.storage import memory
from relive.writing import autoreset as resets
from relive.writing.packer import Packer, ndim
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
        layout: of the rows.
        resets: how environments reset, see `autoreset.MODES`.
    """

    def __init__(
        self, state: State, operations: Operations, layout: RowLayout, resets: str
    ) -> None:
        num_envs = len(state.lanes)
        self._state, self._ops, self._layout, self._resets = state, operations, layout, resets
        self.staging = memory.allocate_staging(layout, num_envs)
        self.steps = self.staging[:num_envs]
        self._packer = Packer(layout, self.steps, (num_envs,))
        self._bare_packer = Packer(layout, self.steps, ()) if num_envs == 1 else self._packer
        ends = slice(layout.columns["terminated"].offset, layout.columns["truncated"].offset + 1)
        self._ends = self.steps[:, ends].numpy()  # they lie side by side
        self._one_env = num_envs == 1
        self._out_of_range: int | Tensor = 0

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
        bare = self._one_env and (type(reward) is float or ndim(reward) == 0)
        packer = self._bare_packer if bare else self._packer
        packer.pack(obs, action, reward, next_obs, terminated, truncated, own)
        self._out_of_range = packer.out_of_range
        if self._resets == "same_step":
            self._out_of_range += self._pack_final(final_obs)
        elif final_obs is not None:
            self.refuse_final()

    def write(self) -> None:
        """Write the step that was taken."""
        self._ops.write(self._state, self.steps)
        self._count_out_of_range(self._out_of_range)

    def stream(self, values: Mapping[str, Any], num_lanes: int | None, *, on_host: bool) -> Stream:  # noqa: ARG002 - here all is
        """Many steps, checked, in host memory; see `Stream`."""
        return Stream(self._layout, values, num_lanes)

    def extend(self, piece: Piece, lanes: range, *, ready_made: bool) -> None:
        """Write a piece of a stream; close the lanes after the last, unless rows are ready-made."""
        self._ops.extend(
            self._state,
            piece.columns,
            piece.steps,
            lanes,
            self.staging,
            ready_made=ready_made,
            close=piece.is_last and not ready_made,
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

    def refuse_final(self) -> None:
        """Raise InputError for final observations that have no place here."""
        raise InputError(
            f"final_obs belongs to autoreset='same_step'; this buffer has {self._resets!r}"
        )

    def _count_out_of_range(self, number: int | Tensor) -> None:
        if isinstance(number, Tensor) or number:
            self._state.words[w.OUT_OF_RANGE : w.OUT_OF_RANGE + 1] += number

    def _pack_final(self, final_obs: Any) -> int:
        if not self._ends.any():
            return 0
        lanes = np.flatnonzero(self._ends.any(1)).tolist()
        value = resets.final_of(self._layout.tree["obs"], final_obs, lanes)
        return self._packer.pack_lanes("next_obs", value, lanes)
