"""Checking what is given and packing it into rows.

T  times   E  lanes (environments)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from relive.errors import InputError

if TYPE_CHECKING:
    from relive.fields import Column, RowLayout

NUMPY_DTYPES = {
    dtype: np.dtype(str(dtype).removeprefix("torch."))
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.float32,
        torch.float64,
    )
}


class Packer:
    """Packs values of named fields into `steps`, uint8 [T, E, row_bytes], through one view a field.

    Values are copied; floats are rounded to the dtype of the field, integers fit it or are refused.
    Nothing in `steps` means anything until `pack` has returned.
    """

    def __init__(self, layout: RowLayout, steps: Tensor) -> None:
        self.steps = steps
        self._columns = {name: _View(column, steps) for name, column in layout.columns.items()}

    def pack(self, name: str, value: Any, *, leading: tuple[int, ...]) -> None:
        """Copy one column's value: [*leading, *shape of the field]; leading is [T, E] less ones."""
        self._columns[name].store(value, leading)

    def pack_lanes(self, name: str, value: Any, lanes: list[int]) -> None:
        """Copy one column's value for some lanes of the first time: [len(lanes), *shape]."""
        view = self._columns[name]
        given = check(view.column, value, (len(lanes), *view.column.field.shape))
        view.tensor[0, lanes] = torch.as_tensor(given).to(view.tensor)

    def read(self, name: str) -> Tensor:
        """One column of what was packed: [T, E, *shape of the field], a view."""
        return self._columns[name].tensor


class _View:
    """One column of the steps, as NumPy and as torch see it."""

    def __init__(self, column: Column, steps: Tensor) -> None:
        self.column = column
        field = column.field
        size = field.dtype.itemsize
        times, lanes, row_bytes = steps.shape
        strides = (
            lanes * row_bytes // size,
            row_bytes // size,
            *torch.empty(field.shape, device="meta").stride(),
        )
        words = steps.view(-1).view(field.dtype)
        self.tensor = words.as_strided((times, lanes, *field.shape), strides, column.offset // size)
        self.array: np.ndarray[Any, Any] | None = None
        if field.dtype in NUMPY_DTYPES:
            self.array = self.tensor.numpy()
        self.by_leading: dict[tuple[int, ...], tuple[Tensor, Any]] = {}

    def store(self, value: Any, leading: tuple[int, ...]) -> None:
        shaped = self.by_leading.get(leading)
        if shaped is None:
            shape = (*leading, *self.column.field.shape)
            tensor = self.tensor.view(shape) if leading else self.tensor[0, 0]
            shaped = self.by_leading[leading] = (
                tensor,
                None if self.array is None else tensor.numpy(),
            )
        tensor, array = shaped
        given = check(self.column, value, tuple(tensor.shape))
        if array is None or isinstance(given, Tensor):
            tensor.copy_(torch.as_tensor(given))
        else:
            array[...] = given


def check(column: Column, value: Any, shape: tuple[int, ...]) -> Any:
    """The value as an array or tensor, if its shape and dtype fit a column.

    Raises:
        InputError: says what was given and what the field is.
    """
    if isinstance(value, Tensor):
        given_dtype: Any = value.dtype
        fits = _torch_fits(value.dtype, column.field.dtype)
    else:
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise InputError(f"{column.name}: not an array: {error}") from None
        given_dtype = value.dtype
        fits = _numpy_fits(value, column.field.dtype)
    if tuple(value.shape) != shape:
        raise InputError(f"{column.name}: given shape {tuple(value.shape)}, expected {shape}")
    if not fits:
        raise InputError(
            f"{column.name}: given {given_dtype}, expected {column.field.dtype} or what converts to "
            "it without changing its kind; convert it first, or give the field another dtype"
        )
    return value.detach() if isinstance(value, Tensor) and value.requires_grad else value


def _numpy_fits(value: np.ndarray[Any, Any], dtype: torch.dtype) -> bool:
    target = NUMPY_DTYPES.get(dtype)
    if target is None:  # bfloat16 and the like: any real number
        return value.dtype.kind in "fiub"
    if value.dtype == target:
        return True
    if value.dtype.kind == "O":
        return False
    if value.dtype.kind in "iu" and target.kind in "iu":
        info = np.iinfo(target)  # a Python int is an int64 by accident: what matters is the value
        return value.size == 0 or bool(value.min() >= info.min and value.max() <= info.max)
    return bool(np.can_cast(value.dtype, target, "same_kind"))


def _torch_fits(given: torch.dtype, dtype: torch.dtype) -> bool:
    return given == dtype or (torch.can_cast(given, dtype) and _width_fits(given, dtype))


def _width_fits(given: torch.dtype, dtype: torch.dtype) -> bool:
    """Integers may only grow: the values of a tensor are not looked at."""
    if given.is_floating_point or dtype.is_floating_point or given == torch.bool:
        return True
    return (
        torch.iinfo(given).min >= torch.iinfo(dtype).min
        and torch.iinfo(given).max <= torch.iinfo(dtype).max
    )


def columns_of(layout: RowLayout, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The stored columns below a top-level field, each with its part of the value.

    Raises:
        InputError: a mapping with other keys than the field's.
    """
    return _walk(layout.tree[name], value, name)


def _walk(tree: Any, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, str):
        yield tree, value
        return
    if not isinstance(value, Mapping) or set(value) != set(tree):
        given = sorted(value) if isinstance(value, Mapping) else type(value).__name__
        raise InputError(f"{path}: given {given}, expected a mapping with the keys {sorted(tree)}")
    for key, branch in tree.items():
        yield from _walk(branch, value[key], f"{path}.{key}")


def ndim(value: Any) -> int:
    """Number of axes of an array, tensor, list or number."""
    axes = getattr(value, "ndim", None)
    return np.ndim(value) if axes is None else int(axes)


def vector(name: str, value: Any, dtype: torch.dtype) -> Tensor:
    """A value as a contiguous CPU vector of `dtype`; a kernel sees nothing else.

    Raises:
        InputError: not a vector of numbers of the right kind.
    """
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(np.asarray(value))
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}: not a vector of numbers: {error}") from None
    if value.ndim != 1:
        hint = f"; pass {name}.squeeze(-1)" if value.ndim == 2 and value.shape[1] == 1 else ""
        raise InputError(f"{name}: given shape {tuple(value.shape)}, expected [B]{hint}")
    integers = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
    if value.is_complex() or (dtype == torch.int64 and not integers and len(value)):
        raise InputError(f"{name}: given {value.dtype}, expected {dtype}")
    given: Tensor = value.detach()
    return given.to("cpu", dtype).contiguous()
