"""Packing columns of values into rows of bytes, in Numba."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray
from torch import Tensor

from relive.ops.compiled import copy_value, int64_pointer, kernel

if TYPE_CHECKING:
    from relive.ops.pack.reference import Column


@kernel
def _pack(rows: Any, row_bytes: Any, count: Any, table: Any, num_columns: Any) -> None:
    columns = carray(int64_pointer(table), (num_columns, 3))
    for c in range(num_columns):
        target = rows + columns[c, 0]
        nbytes = columns[c, 1]
        source = columns[c, 2]
        for i in range(count):
            copy_value(target + i * row_bytes, source + i * nbytes, nbytes)


def pack(steps: Tensor, columns: list[Column]) -> None:
    """See `reference.pack`."""
    table = np.array(
        [(offset, nbytes, address_of(values)) for offset, nbytes, values in columns], np.int64
    )
    times, lanes, row_bytes = steps.shape
    _pack(steps.data_ptr(), row_bytes, times * lanes, address_of(table), len(columns))


def address_of(values: Any) -> int:
    """Where the first value lies."""
    if isinstance(values, Tensor):
        return values.data_ptr()
    address: int = values.__array_interface__["data"][0]
    return address
