"""What a buffer on a GPU is given to write: from host memory, or there already.

The host never waits. A step in host memory is packed as on the CPU and sent in one copy; where
anything of it is on the device already, each field goes by itself and is packed there.

E  environments (lanes)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relive.arrays import as_tensor
from relive.errors import InputError
from relive.frames import most_at_once
from relive.gpu.capture import is_captured, refuse_capture
from relive.gpu.pinned import Slots
from relive.gpu.transfer import moved
from relive.ops.dispatch import prepare
from relive.ops.pack.reference import pack
from relive.writing import autoreset as resets
from relive.writing.arrivals import Arrivals
from relive.writing.intake import Intake
from relive.writing.packer import ndim
from relive.writing.stream import Stream, host_flags
from relive.writing.values import check_columns, packed_form

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from relive.fields import Column, RowLayout
    from relive.ops.dispatch import Operations
    from relive.ops.pack.reference import Column as PackedColumn
    from relive.ops.state import State
    from relive.writing.stream import Piece


STEPS_SENT = 64  # under way: so many steps may the environments be ahead of the GPU


class DeviceIntake(Intake):
    """As `Intake`, for a buffer on a GPU."""

    def __init__(
        self, state: State, operations: Operations, layout: RowLayout, resets: str
    ) -> None:
        super().__init__(state, operations, layout, resets)
        self._device = state.words.device
        self.refresh()
        self._slots = Slots(self.steps.nbytes, self._device, STEPS_SENT)
        num_envs = len(self.steps)
        steps = most_at_once(num_envs) if state.keeps_frames else num_envs
        shape = steps, layout.row_bytes
        self._together = torch.zeros(shape, dtype=torch.uint8, device=self._device)
        self._sent = self._together[:num_envs]
        self._columns: list[PackedColumn] | None = None  # of a step that is on the device
        self._ended: NDArray[np.bool_] | None = None
        self._was_captured = False

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
        on_host: bool = False,
    ) -> None:
        """As `Intake.take`."""
        values = {
            "obs": obs,
            "action": action,
            "reward": reward,
            "next_obs": next_obs,
            "terminated": terminated,
            "truncated": truncated,
            **own,
        }
        if on_host or not _any_on_device([values, final_obs]):
            refuse_capture(self._device)
            super().take(obs, action, reward, next_obs, terminated, truncated, final_obs, own)
            self._columns = None
            self._ended = self._packer.ends.max(1) != 0
            return
        leading = () if len(self.steps) == 1 and ndim(reward) == 0 else (len(self.steps),)
        checked = check_columns(self._layout, values, leading)
        ended = host_flags(checked, (len(self.steps),))
        columns, out_of_range = self._packed(checked)
        if self._resets == "same_step":
            out_of_range += self._put_final(columns, final_obs, ended)
        elif final_obs is not None:
            self._packer.refuse_final()
        self._columns = [(c.offset, c.nbytes, columns[c.name]) for c, _ in checked]
        self._ended, self._out_of_range = ended, out_of_range

    def write(self) -> None:
        """Write the step that was taken; in a captured graph, those of its replays."""
        if self._columns is None:
            self._ops.write(self._state, self._as_rows(self._send(), self._lanes))
        elif self._rows is not None:
            pack(self._sent, self._columns)
            self._ops.write(self._state, self._as_rows(self._sent, self._lanes))
        else:
            self._ops.extend(
                self._state,
                self._columns,
                len(self._lanes),
                self._lanes,
                self.staging,
                ready_made=False,
                close=False,
            )
        self._columns = None
        self._count_out_of_range(self._out_of_range)
        self._out_of_range = 0  # its memory is let go of
        if not self._is_captured():
            self._arrivals.add(self._ended)

    def stream(self, values: Mapping[str, Any], num_lanes: int | None, *, on_host: bool) -> Stream:
        """As `Intake.stream`; what is on the device stays there unless it is wanted on the host."""
        if on_host:
            refuse_capture(self._device)
        return Stream(self._layout, values, num_lanes, on_host=on_host)

    def extend(self, piece: Piece, lanes: range, *, ready_made: bool) -> None:
        """As `Intake.extend`."""
        columns: list[PackedColumn] = [
            (offset, size, self._here(value)) for offset, size, value in piece.columns
        ]
        super().extend(piece._replace(columns=columns), lanes, ready_made=ready_made)
        if not self._is_captured():
            times = piece.steps // len(lanes)
            if ready_made:
                self._arrivals.add_rows(piece.steps)
            else:
                self._arrivals.extend(times, lanes, piece.ended, close=piece.is_last)

    def end_episode(self, lanes: range) -> None:
        """As `Intake.end_episode`."""
        super().end_episode(lanes)
        self._arrivals.flush(lanes)

    @property
    def next_id(self) -> int | None:
        """At most the id that the next row gets; None if graphs write rows that are not counted."""
        return None if self._was_captured else self._arrivals.next_id

    @property
    def rows(self) -> int:
        """Rows held, at least."""
        return self._arrivals.rows

    def ready(self, batch_size: int) -> bool:
        """Whether `batch_size` rows are held for sure; their priorities are not known."""
        return self.rows >= batch_size

    @property
    def pinned(self) -> Slots:
        """As `Intake.pinned`."""
        return self._slots

    def memory(self) -> list[Tensor]:
        """As `Intake.memory`."""
        return [self._together, *([] if self._rows is None else [self._rows])]

    def refresh(self) -> None:
        """The state is new, or has been replaced: look at it (waits)."""
        self._arrivals = Arrivals(self._state)
        if self._ops.can_draw is None:
            prepare(self._state)

    def forget(self) -> None:
        """The state has been cleared."""
        self._arrivals.clear()

    def _cut(self, lanes: range) -> None:
        super()._cut(lanes)
        if not self._is_captured():
            self._arrivals.cut(lanes)

    def _is_captured(self) -> bool:
        captured = is_captured(self._device)
        self._was_captured |= captured
        return captured

    def _send(self) -> Tensor:
        """The packed step on the device."""
        slot = self._slots.take()
        slot.memory.copy_(self.steps.view(-1))
        self._sent.view(-1).copy_(slot.memory, non_blocking=True)
        self._slots.sent(slot, torch.cuda.current_stream(self._device))
        return self._sent

    def _here(self, value: Any) -> Tensor:
        return moved(as_tensor(value), self._device)

    def _packed(self, checked: list[tuple[Column, Any]]) -> tuple[dict[str, Tensor], Any]:
        """Values in their stored form on the device, by column; and how many are out of range."""
        found: dict[str, Tensor] = {}
        out_of_range: int | Tensor = 0
        for column, value in checked:
            stored, outside = packed_form(column, value, on_host=False)
            found[column.name] = self._here(stored)
            out_of_range += outside
        return found, out_of_range

    def _put_final(
        self, columns: dict[str, Tensor], final_obs: Any, ended: NDArray[np.bool_] | None
    ) -> Any:
        """Replace next observations by final ones where an episode has ended."""
        num_envs = len(self.steps)
        if ended is not None and not ended.any():
            return 0
        if ended is None or _any_on_device([final_obs]):
            if final_obs is None:
                raise InputError(
                    "final_obs is missing: where flags are on the device the host cannot know "
                    "whether an episode has ended; pass final_obs [num_envs, *shape] at every step"
                )
            try:
                checked = check_columns(self._layout, {"next_obs": final_obs}, (num_envs,))
            except InputError as error:
                raise InputError(
                    "final_obs: where it or the flags are on the device it is [num_envs, *shape], "
                    f"with a row for each environment at every step; {error}"
                ) from None
            final, out_of_range = self._packed(checked)
            over = columns["terminated"] | columns["truncated"]
            for name, value in final.items():
                given = columns[name].view(value.shape)
                where = over.view(num_envs, *[1] * (value.ndim - 1))
                columns[name] = torch.where(where, value, given)
            return out_of_range
        lanes = ended.nonzero()[0]
        value = resets.final_of(self._layout.tree["obs"], final_obs, lanes.tolist())
        checked = check_columns(self._layout, {"next_obs": value}, (len(lanes),))
        final, out_of_range = self._packed(checked)
        rows = self._here(lanes)
        for name, value in final.items():
            given = columns[name].view(num_envs, *value.shape[1:])
            # as bytes: torch copies rows of few dtypes
            put = _bytes(given).index_copy(0, rows, _bytes(value))
            columns[name] = put.view(value.dtype).view(given.shape)
        return out_of_range


def _bytes(values: Tensor) -> Tensor:
    """The bytes of each row, uint8 `[E, bytes]`."""
    return values.reshape(len(values), values[0].numel()).view(torch.uint8)


def _any_on_device(values: Any) -> bool:
    """Whether any tensor in nested mappings and lists is on a GPU."""
    if isinstance(values, Tensor):
        return not values.is_cpu
    if isinstance(values, Mapping):
        return any(map(_any_on_device, values.values()))
    return isinstance(values, list) and any(map(_any_on_device, values))
