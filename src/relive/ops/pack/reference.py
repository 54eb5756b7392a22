"""Packing columns of values into rows of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = tuple[int, int, "Tensor | NDArray[np.generic]"]


def pack(rows: Tensor, columns: list[Column]) -> None:
    """Copy values into a part of every row; what lies between the parts stays as it is.

    Args:
        rows: uint8 [R, row_bytes].
        columns: (offset in a row, bytes of a value, values); values are contiguous arrays or
            tensors of R values in the order of the rows, on the device of `rows`.
    """
    for offset, nbytes, values in columns:
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
        given = tensor.reshape(len(rows), -1).view(torch.uint8)
        rows[:, offset : offset + nbytes] = given.view(len(rows), nbytes)
