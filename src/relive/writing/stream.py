"""Many steps at once, cut into pieces of bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from relive.errors import InputError
from relive.writing.packer import Packer

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
        num_rows = num_lanes or 1
        self._longest = max(1, min(self._times, CHUNK_BYTES // (num_rows * layout.row_bytes)))
        self._steps = torch.zeros(self._longest, num_rows, layout.row_bytes, dtype=torch.uint8)
        self._packer = Packer(layout, self._steps, (self._longest, *self._lanes))
        self._columns = self._packer.check(values, self._times)

    def chunks(self) -> Iterator[tuple[Tensor, bool]]:
        """Packed steps, uint8 [t, E, row_bytes], and whether they are the last.

        What is yielded is valid until the next is asked for.
        """
        for start in range(0, self._times, self._longest):
            stop = min(start + self._longest, self._times)
            steps, packer = self._steps[: stop - start], self._packer
            if stop - start < self._longest:
                packer = Packer(self._layout, steps, (stop - start, *self._lanes))
            packer.pack_columns({name: value[start:stop] for name, value in self._columns.items()})
            yield steps, stop == self._times
