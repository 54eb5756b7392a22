"""Whether values fit the fields of a row, and what they are stored as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from relive.arrays import NUMPY_DTYPES, as_array, as_tensor
from relive.errors import InputError
from relive.fields import NO_CONVERSION
from relive.ops.convert.reference import encode

if TYPE_CHECKING:
    from relive.fields import Column, RowLayout


def walk(tree: Any, value: Any, path: str) -> Iterator[tuple[Any, Any]]:
    """The leaves of a tree of dicts, each with its part of a value that is nested alike.

    Raises:
        InputError: another nesting, or other keys.
    """
    if not isinstance(tree, dict):
        yield tree, value
        return
    if not isinstance(value, Mapping) or value.keys() != tree.keys():
        given = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise InputError(f"{path}: given {given}, expected a mapping with the keys {sorted(tree)}")
    for key, branch in tree.items():
        if isinstance(branch, dict):
            yield from walk(branch, value[key], f"{path}.{key}")
        else:
            yield branch, value[key]


def check_columns(
    layout: RowLayout, values: Mapping[str, Any], leading: tuple[int, ...]
) -> list[tuple[Column, Any]]:
    """Every column of some fields, and its values as an array or tensor that fits it.

    Raises:
        InputError: a shape, dtype or key that does not fit.
    """
    found = []
    for field, value in values.items():
        tree = layout.tree[field]
        parts = ((tree, value),) if isinstance(tree, str) else walk(tree, value, field)
        for name, part in parts:
            column = layout.columns[name]
            found.append((column, check(column, part, leading + column.field.shape)))
    return found


def check(column: Column, value: Any, shape: tuple[int, ...]) -> Any:
    """The value as an array or tensor, if its shape and dtype fit a column.

    Raises:
        InputError: says what was given and what the field is.
    """
    if type(value) is np.ndarray and value.shape == shape and value.dtype is column.array_dtype:
        return value
    try:
        value = as_array(value)
    except TypeError as error:
        raise InputError(f"{column.name}: not an array of real numbers: {error}") from None
    given_dtype: Any = value.dtype
    if isinstance(value, Tensor):
        fits = _torch_fits(value.dtype, column.field.dtype)
    else:
        fits = _numpy_fits(value, column.array_dtype)
    if tuple(value.shape) != shape:
        given = tuple(value.shape)
        raise InputError(
            f"{column.name}: given shape {given}, expected {shape}{_hint(column, given, shape)}"
        )
    if column.conversion != NO_CONVERSION:
        if not (is_float(value) or is_stored(column, value)):
            raise InputError(
                f"{column.name}: given {given_dtype}, expected floats, or what is stored, "
                f"{column.field.stored_dtype}"
            )
    elif not fits:
        way = "convert it first, or give the field another dtype"
        if column.field.dtype == torch.bool:
            way = f"pass {_as_bool(column.name, value)}"
        raise InputError(
            f"{column.name}: given {given_dtype}, expected {column.field.dtype} or what converts "
            f"to it without changing its kind; {way}"
        )
    return value.detach() if isinstance(value, Tensor) and value.requires_grad else value


def _hint(column: Column, given: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """What to do about a shape that is a step beside the right one."""
    if given == (*shape, 1):
        return f"; pass {column.name}.squeeze(-1)"
    if shape and given == shape[1:] and column.name != "reward":
        return "; it has no leading axis, as the reward has"
    if given[1:] == shape and given[:1] == (1,):
        return "; it has a leading axis, and the reward has none"
    return ""


def _as_bool(name: str, value: Any) -> str:
    """What to write for the truth values of numbers."""
    if isinstance(value, Tensor):
        return f"{name}.bool()"
    return f"{name}.astype(bool)" if value.ndim else f"bool({name})"


def _numpy_fits(value: np.ndarray[Any, Any], target: np.dtype[Any] | None) -> bool:
    if target is None:  # bfloat16 and the like: any real number
        return value.dtype.kind in "fiub" and value.dtype.itemsize <= 8
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


def is_float(value: Any) -> bool:
    """Whether an array or tensor holds floats."""
    return value.is_floating_point() if isinstance(value, Tensor) else value.dtype.kind == "f"


def is_stored(column: Column, value: Any) -> bool:
    """Whether a value has the dtype that its column is stored in."""
    if isinstance(value, Tensor):
        return value.dtype == column.field.stored_dtype
    return column.array_dtype is not None and value.dtype == column.array_dtype


def stored_form(column: Column, value: Any) -> tuple[Any, int | Tensor]:
    """A checked value as it is stored, or what converts to it; and how much is out of range.

    That is a number, or of a tensor on another device than the CPU one there, so that none waits.
    """
    if column.conversion == NO_CONVERSION or is_stored(column, value):
        return _narrowed(column, value) if _may_overflow(column, value) else (value, 0)
    stored, outside = encode(as_tensor(value), column.field.stored_dtype)
    return stored, int(outside) if outside.is_cpu else outside


def _may_overflow(column: Column, value: Any) -> bool:
    """Whether a number may be too large for the floats of its column."""
    dtype, itemsize = column.field.stored_dtype, value.dtype.itemsize
    if is_float(value):
        return bool(itemsize > dtype.itemsize)
    return bool(dtype.is_floating_point and itemsize > 1 and torch.finfo(dtype).max < 2**16)


def _narrowed(column: Column, value: Any) -> tuple[Any, int | Tensor]:
    """Numbers in the narrower floats of their column, and how many become infinite by it."""
    dtype = column.field.stored_dtype
    if isinstance(value, Tensor) and value.is_cpu and value.dtype in NUMPY_DTYPES:
        value = value.numpy()  # fewer calls
    if isinstance(value, Tensor) or column.array_dtype is None:
        given = as_tensor(value)
        narrow = given.to(dtype)
        # torch does not ask numbers of 8 bits whether they are finite
        known = narrow.float() if dtype.itemsize == 1 else narrow
        outside = (given.isfinite() & ~known.isfinite()).sum()
        return narrow, int(outside) if outside.is_cpu else outside
    value = value if is_float(value) else value.astype(np.float64)
    try:
        with np.errstate(all="ignore", over="raise"):
            return value.astype(column.array_dtype), 0
    except FloatingPointError:
        with np.errstate(all="ignore"):
            stored = value.astype(column.array_dtype)
        return stored, int((np.isfinite(value) & ~np.isfinite(stored)).sum())


def packed_form(column: Column, value: Any, *, on_host: bool) -> tuple[Any, int | Tensor]:
    """A checked value as contiguous memory of the stored dtype; and as above.

    Args:
        on_host: bring it to host memory (waits for a GPU); else it stays where it is.
    """
    if type(value) is np.ndarray and value.dtype is column.array_dtype and value.flags.c_contiguous:
        return value, 0
    value, outside = stored_form(column, value)
    if isinstance(value, Tensor) or column.array_dtype is None:
        stored = as_tensor(value).to(column.field.stored_dtype).contiguous()
        return (stored.cpu(), int(outside)) if on_host else (stored, outside)
    return np.ascontiguousarray(value, column.array_dtype), outside
