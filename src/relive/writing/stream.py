"""Many steps at once, packed in pieces that fit the staging memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from relive.errors import InputError
from relive.writing.packer import check_columns, packed_form

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from relive.fields import RowLayout
    from relive.ops.dispatch import Operations


class Stream:
    """Checked values of many steps.

    Args:
        layout: of the rows.
        values: field -> [T, *shape] of one stream, or [T, E, *shape] where `num_lanes` is E.
        num_lanes: None for one stream without an axis of lanes.

    Raises:
        InputError: a shape or dtype that does not fit, before anything is packed.
    """

    def __init__(self, layout: RowLayout, values: Mapping[str, Any], num_lanes: int | None) -> None:
        lanes = () if num_lanes is None else (num_lanes,)
        reward = values["reward"]
        given = tuple(reward.shape) if isinstance(reward, Tensor) else np.shape(reward)
        if len(given) != 1 + len(lanes) or given[1:] != lanes:
            wanted = "[T]" if num_lanes is None else f"[T, {num_lanes}]"
            raise InputError(f"reward: given shape {given}, expected {wanted}")
        values = {"truncated": np.zeros(given, bool), **values}
        self._times = given[0]
        self._lanes = num_lanes or 1
        self._columns = [
            (layout.columns[name], value)
            for name, value in check_columns(layout, values, given).items()
        ]

    def chunks(self, staging: Tensor, operations: Operations) -> Iterator[tuple[Tensor, bool]]:
        """Packed steps, uint8 [t, E, row_bytes], and whether they are the last.

        Args:
            staging: uint8 [at least E, row_bytes]; what is yielded lies there, until the next.
        """
        longest = len(staging) // self._lanes
        for start in range(0, self._times, longest):
            stop = min(start + longest, self._times)
            rows = staging[: (stop - start) * self._lanes]
            steps = rows.view(stop - start, self._lanes, staging.shape[1])
            columns = [
                (column.offset, column.field.nbytes, packed_form(column, value[start:stop]))
                for column, value in self._columns
            ]
            operations.pack(steps, columns)
            yield steps, stop == self._times
