"""Many steps at once, in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from relive.arrays import as_array
from relive.errors import InputError
from relive.writing.values import check_columns, packed_form

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from relive.fields import Column, RowLayout
    from relive.ops.pack.reference import Column as PackedColumn

PIECE_BYTES = 1 << 26  # what conversion to the stored dtype may need beside the values


class Piece(NamedTuple):
    """Some of the steps.

    Attributes:
        columns: what they are made of, see `ops.pack`.
        steps: how many they are.
        out_of_range: values that their stored dtype cannot hold.
        ended: bool [T, lanes], which end an episode; None if that is not in host memory.
        is_last: whether no more come.
    """

    columns: list[PackedColumn]
    steps: int
    out_of_range: int | Tensor
    ended: NDArray[np.bool_] | None
    is_last: bool

    def in_host_memory(self) -> Piece:
        """The same, with what is on a GPU brought to host memory (waits)."""
        columns = [(o, n, v.cpu() if isinstance(v, Tensor) else v) for o, n, v in self.columns]
        return self._replace(columns=columns, out_of_range=int(self.out_of_range))


class Stream:
    """Checked values of many steps.

    Args:
        layout: of the rows.
        values: field -> [T, *shape] of one stream, or [T, E, *shape] where `num_lanes` is E.
        num_lanes: None for one stream without an axis of lanes.
        on_host: bring what is on a GPU to host memory (waits); else it stays there.

    Raises:
        InputError: a shape or dtype that does not fit, or a discount that no steps have.
    """

    def __init__(
        self,
        layout: RowLayout,
        values: Mapping[str, Any],
        num_lanes: int | None,
        *,
        on_host: bool = True,
    ) -> None:
        lanes = () if num_lanes is None else (num_lanes,)
        reward = values["reward"]
        try:
            given = tuple(as_array(reward).shape)
        except TypeError as error:
            raise InputError(f"reward: not an array of real numbers: {error}") from None
        if len(given) != 1 + len(lanes) or given[1:] != lanes:
            wanted = "[T]" if num_lanes is None else f"[T, {num_lanes}]"
            raise InputError(f"reward: given shape {given}, expected {wanted}")
        if "truncated" not in values:
            values = {"truncated": _never(reward, given), **values}
        self._times = given[0]
        self._lanes = num_lanes or 1
        self._on_host = on_host
        step_bytes = layout.next_offset + layout.next_bytes  # without padding: on all devices alike
        self._longest = max(1, PIECE_BYTES // (self._lanes * step_bytes))
        self._columns = check_columns(layout, values, given)
        if "discount" in values:
            _require_discounts(self._columns)

    def pieces(self) -> Iterator[Piece]:
        """The steps, in memory that a kernel can read."""
        for start in range(0, self._times, self._longest):
            stop = min(start + self._longest, self._times)
            whole = stop - start == self._times
            columns: list[PackedColumn] = []
            out_of_range: int | Tensor = 0
            for column, value in self._columns:
                part = value if whole else value[start:stop]
                packed, outside = packed_form(column, part, on_host=self._on_host)
                columns.append((column.offset, column.nbytes, packed))
                out_of_range += outside
            steps, is_last = (stop - start) * self._lanes, stop == self._times
            yield Piece(columns, steps, out_of_range, self._ended(start, stop), is_last)

    def _ended(self, start: int, stop: int) -> NDArray[np.bool_] | None:
        if self._on_host:
            return None  # nobody asks
        values = [(column, value[start:stop]) for column, value in self._columns]
        return host_flags(values, (stop - start, self._lanes))


def host_flags(
    columns: list[tuple[Column, Any]], shape: tuple[int, ...]
) -> NDArray[np.bool_] | None:
    """Which of some checked steps end an episode; None if that is not in host memory."""
    ended = np.zeros(shape, bool)
    for column, value in columns:
        if column.name in ("terminated", "truncated"):
            if _is_elsewhere(value):
                return None
            ended |= np.asarray(value).reshape(shape) != 0
    return ended


def _require_discounts(columns: list[tuple[Column, Any]]) -> None:
    """Refuse discounts outside of [0, 1], or above 0 behind a terminal state, as they are stored.

    What is on a GPU is not looked at: the host would wait for it.
    """
    given = {column.name: (column, value) for column, value in columns}
    stored, _ = packed_form(*given["discount"], on_host=False)
    _, terminated = given["terminated"]
    if _is_elsewhere(stored):
        return
    discount = np.asarray(stored)
    most = np.ones(discount.shape, bool) if _is_elsewhere(terminated) else ~np.asarray(terminated)
    right = (discount >= 0) & (discount <= most)
    if not right.all():
        at = tuple(np.argwhere(~right)[0].tolist())
        expected = "a number in [0, 1]" if most[at] else "0 where terminated: nothing comes after"
        place = ", ".join(map(str, at))
        raise InputError(f"discount[{place}] is {discount[at]!s}, expected {expected}")


def _is_elsewhere(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_cpu


def _never(like: Any, shape: tuple[int, ...]) -> Any:
    """False everywhere, where `like` is."""
    if isinstance(like, Tensor):
        return torch.zeros(shape, dtype=torch.bool, device=like.device)
    return np.zeros(shape, bool)
