"""Many steps at once, in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relive.arrays import as_array
from relive.errors import InputError
from relive.writing.values import check_columns, packed_form

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from relive.fields import RowLayout
    from relive.ops.pack.reference import Column as PackedColumn

PIECE_BYTES = 1 << 26  # what conversion to the stored dtype may need beside the values


class Piece(NamedTuple):
    """Some steps: their columns, how many they are, values their stored dtype cannot hold."""

    columns: list[PackedColumn]
    steps: int
    out_of_range: int
    is_last: bool


class Stream:
    """Checked values of many steps.

    Args:
        layout: of the rows.
        values: field -> [T, *shape] of one stream, or [T, E, *shape] where `num_lanes` is E.
        num_lanes: None for one stream without an axis of lanes.

    Raises:
        InputError: a shape or dtype that does not fit.
    """

    def __init__(self, layout: RowLayout, values: Mapping[str, Any], num_lanes: int | None) -> None:
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
            values = {"truncated": np.zeros(given, bool), **values}
        self._times = given[0]
        self._lanes = num_lanes or 1
        self._longest = max(1, PIECE_BYTES // (self._lanes * layout.row_bytes))
        self._columns = check_columns(layout, values, given)

    def pieces(self) -> Iterator[Piece]:
        """The steps, in memory that a kernel can read."""
        for start in range(0, self._times, self._longest):
            stop = min(start + self._longest, self._times)
            whole = stop - start == self._times
            columns: list[PackedColumn] = []
            out_of_range = 0
            for column, value in self._columns:
                packed, outside = packed_form(column, value if whole else value[start:stop])
                columns.append((column.offset, column.nbytes, packed))
                out_of_range += outside
            yield Piece(columns, (stop - start) * self._lanes, out_of_range, stop == self._times)
