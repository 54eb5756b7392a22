"""Arrays of any kind as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def as_tensor(value: Any) -> Tensor:
    """A value as a tensor: an array's own memory where torch can take it, else a copy.

    It cannot where a stride is negative, the order of bytes is foreign or the array is read-only.
    """
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_meta:
            raise TypeError(
                f"given a {value.layout} tensor on {value.device}, expected plain memory"
            )
        return value
    array = np.asarray(value)
    if min(array.strides, default=0) < 0 or not array.dtype.isnative or not array.flags.writeable:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)
