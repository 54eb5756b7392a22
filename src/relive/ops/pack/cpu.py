"""Packing columns of values into rows of bytes, in Numba."""

from __future__ import annotations

from array import array
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

from torch import Tensor

from relive.ops.compiled import copy_value, helper

if TYPE_CHECKING:
    from relive.ops.pack.reference import Column


@helper
def pack_row(columns: Any, index: Any, row: Any) -> None:
    """Copy one value of every column into a row."""
    for c in range(columns.shape[0]):
        nbytes = columns[c, 1]
        copy_value(row + columns[c, 0], columns[c, 2] + index * nbytes, nbytes)


def table_of(columns: list[Column]) -> array[int]:
    """Offset, bytes and address of every column: what a kernel is told of them."""
    numbers: list[int] = []
    for offset, nbytes, values in columns:
        numbers += offset, nbytes, address_of(values)
    return array("q", numbers)


def address_of(values: Any) -> int:
    """Where the first value lies."""
    if isinstance(values, Tensor):
        return values.data_ptr()
    try:
        return addressof(c_char.from_buffer(values))
    except TypeError:  # read-only: three times slower
        address: int = values.__array_interface__["data"][0]
        return address
