"""Arrays of any kind as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Numbers that torch can copy and convert.
NUMPY_DTYPES = {
    dtype: np.dtype(str(dtype).removeprefix("torch."))
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.float32,
        torch.float64,
    )
}
OTHER_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
REAL_DTYPES = frozenset({*NUMPY_DTYPES, *(getattr(torch, name) for name in OTHER_FLOATS)})


def as_array(value: Any) -> Any:
    """A value as a tensor of real numbers, or as an array.

    Raises:
        TypeError: it is none; says why.
    """
    if isinstance(value, Tensor):
        return plain(value)
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise TypeError(str(error)) from None


def as_learned(values: NDArray[Any]) -> NDArray[Any]:
    """Floats as float32, as which they are learned from; what is not wider is given back."""
    if values.dtype.kind != "f" or values.dtype.itemsize <= 4:
        return values
    with np.errstate(all="ignore"):
        return values.astype(np.float32)


def is_finite(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether numbers are finite as float32, as which they are learned from; of their shape."""
    if values.dtype.kind != "f":
        return np.ones(values.shape, bool)
    return np.asarray(np.isfinite(as_learned(values)))


def plain(tensor: Tensor) -> Tensor:
    """A tensor whose memory holds its values.

    Raises:
        TypeError: it has none, or not of real numbers.
    """
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_nested:
        raise TypeError(f"given a {tensor.layout} tensor on {tensor.device}, expected plain memory")
    if tensor.dtype not in REAL_DTYPES:
        raise TypeError(f"given {tensor.dtype}, expected real numbers")
    return tensor.resolve_neg()


def as_tensor(value: Any) -> Tensor:
    """A value as a tensor: an array's own memory where torch can take it, else a copy.

    It cannot where a stride is negative, the order of bytes is foreign or the array is read-only.

    Raises:
        TypeError: it is no array of real numbers; says why.
    """
    array = as_array(value)
    if isinstance(array, Tensor):
        return array
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"given {array.dtype}, expected real numbers")
    if min(array.strides, default=0) < 0 or not array.dtype.isnative or not array.flags.writeable:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # a second type of the same size, or odd strides
        return torch.from_numpy(array.astype(f"={array.dtype.kind}{array.dtype.itemsize}"))
