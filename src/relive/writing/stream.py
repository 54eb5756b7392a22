"""Many steps at once, cut into pieces of bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from relive.errors import InputError
from relive.writing.packer import Packer, check, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from relive.fields import RowLayout

CHUNK_BYTES = 1 << 22  # of packed rows


class Stream:
    """Checked values of many steps, to be written piece by piece.

    Args:
        values: field -> [T, *shape] of one stream, or [T, E, *shape] where `num_lanes` is E.

    Raises:
        InputError: a shape or dtype that does not fit, before anything is packed.
    """

    def __init__(self, layout: RowLayout, values: Mapping[str, Any], num_lanes: int | None) -> None:
        self._layout = layout
        self._lanes = () if num_lanes is None else (num_lanes,)
        reward = values["reward"]
        given = tuple(reward.shape) if isinstance(reward, Tensor) else np.shape(reward)
        if len(given) != 1 + len(self._lanes) or given[1:] != self._lanes:
            wanted = "[T]" if num_lanes is None else f"[T, {num_lanes}]"
            raise InputError(f"reward: given shape {given}, expected {wanted}")
        self._times = given[0]
        self._columns = {
            column: check(
                layout.columns[column], part, (*given, *layout.columns[column].field.shape)
            )
            for name, value in values.items()
            for column, part in columns_of(layout, name, value)
        }

    def chunks(self) -> Iterator[tuple[Tensor, bool]]:
        """Packed steps, uint8 [t, E, row_bytes], and whether they are the last.

        What is yielded is valid until the next is asked for.
        """
        num_lanes = self._lanes[0] if self._lanes else 1
        longest = max(1, min(self._times, CHUNK_BYTES // (num_lanes * self._layout.row_bytes)))
        steps = torch.zeros(longest, num_lanes, self._layout.row_bytes, dtype=torch.uint8)
        packer = Packer(self._layout, steps)
        for start in range(0, self._times, longest):
            stop = min(start + longest, self._times)
            if stop - start < longest:
                steps = steps[: stop - start]
                packer = Packer(self._layout, steps)
            for column, value in self._columns.items():
                packer.pack(column, value[start:stop], leading=(stop - start, *self._lanes))
            yield steps, stop == self._times
