"""Packing columns of values into rows of bytes, in Numba."""

from __future__ import annotations

from array import array
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

from torch import Tensor

from relive.ops.compiled import copy_value, helper

if TYPE_CHECKING:
    from collections.abc import Sequence


@helper
def pack_row(columns: Any, index: Any, row: Any) -> None:
    """Copy one value of every column into a row."""
    for c in range(columns.shape[0]):
        nbytes = columns[c, 1]
        copy_value(row + columns[c, 0], columns[c, 2] + index * nbytes, nbytes)


def table_of(columns: Sequence[tuple[int, int, Any]]) -> array[int]:
    """Offset, bytes and address of every column: what a kernel is told of them."""
    numbers: list[int] = []
    try:
        for offset, nbytes, values in columns:
            numbers += offset, nbytes, addressof(c_char.from_buffer(values))
    except TypeError:  # tensors, or arrays that are read-only: slower
        numbers = [n for offset, nbytes, v in columns for n in (offset, nbytes, address_of(v))]
    return array("q", numbers)


def address_of(values: Any) -> int:
    """Where the first value lies."""
    if isinstance(values, Tensor):
        return values.data_ptr()
    address: int = values.__array_interface__["data"][0]
    return address
