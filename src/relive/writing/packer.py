"""Packing what is given into rows, and checking arguments of calls.

E  lanes (environments)
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from relive.arrays import as_tensor
from relive.declared import plain
from relive.errors import InputError, shown
from relive.gpu.transfer import moved
from relive.writing.values import check, stored_form, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from relive.fields import Column, RowLayout

# What may be stored in a number without looking at it: it is in range whatever its value.
FLOATS, BOOLS = (float, np.float64, np.float32), (bool, np.bool_)
SAFE_SCALARS: dict[torch.dtype, tuple[type, ...]] = {
    torch.bool: BOOLS,
    torch.int64: (np.int64, np.int32),
    torch.float32: FLOATS,
    torch.float64: FLOATS,
}


class Packer:
    """Packs one step of every environment into `steps`, uint8 [E, row_bytes].

    Values are copied; floats are rounded to the dtype of the field, integers fit it or are refused.
    Nothing in `steps` means anything until `pack` has returned.

    Attributes:
        out_of_range: values of the last step that their stored dtype cannot hold.

    Args:
        layout: of the rows.
        steps: written into; may be shared by several packers at will.
        leading: the axis that values have in front of those of their field: (E,), or () for one
            environment.
    """

    def __init__(self, layout: RowLayout, steps: Tensor, leading: tuple[int, ...]) -> None:
        columns = {name: _Target(column, steps, leading) for name, column in layout.columns.items()}
        self._targets = {
            name: columns[tree]
            if isinstance(tree, str)
            else _Targets(name, _with_leaves(tree, columns))
            for name, tree in layout.tree.items()
        }
        self._arrays = tuple(self._targets[name] for name in ("obs", "action", "next_obs"))
        self._numbers = tuple(self._targets[name] for name in ("reward", "terminated", "truncated"))
        self._is_nested = any(isinstance(target, _Targets) for target in self._targets.values())
        self._bare = not leading
        self._memory = steps.numpy().data.cast("B")
        self._offset = layout.columns["reward"].offset
        self.out_of_range = 0

    def pack(
        self,
        obs: Any,
        action: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        own: Mapping[str, Any],
    ) -> None:
        """Copy values of fields, each [*leading, *shape of the field] or nested as the field is.

        Raises:
            InputError: a shape, dtype or key that does not fit.
        """
        self.out_of_range = 0
        # Nearly all come as arrays or numbers that are stored, or as floats that become float32:
        # these are told here.
        first, second, third = self._arrays
        given: Any = ((first, obs), (second, action), (third, next_obs))
        if (
            self._bare
            and type(reward) in FLOATS
            and type(terminated) in BOOLS
            and type(truncated) in BOOLS
            and -LARGE < reward < LARGE
        ):
            NUMBERS.pack_into(self._memory, self._offset, reward, 0.0, terminated, truncated)
        else:
            first, second, third = self._numbers
            given += ((first, reward), (second, terminated), (third, truncated))
        if own:
            given += tuple((self._targets[name], value) for name, value in own.items())
        if self._is_nested:
            given = [leaf for target, value in given for leaf in target.walk(value)]
        for target, value in given:
            kind = type(value)
            if (
                kind is np.ndarray
                and value.shape == target.shape
                and (
                    (dtype := value.dtype) is target.dtype
                    or (
                        dtype is FLOAT64 and target.narrows and np.vdot(value, value) < LARGE_SQUARE
                    )
                )
            ) or (kind in target.scalars and -LARGE < value < LARGE):
                try:
                    target.array[...] = value
                except FloatingPointError:  # NumPy was told to raise it where a number becomes 0
                    self.out_of_range += target.store(value)
            else:
                self.out_of_range += target.store(value)

    def pack_lanes(self, name: str, value: Any, lanes: list[int]) -> int:
        """Copy a field's value for some environments: [len(lanes), *shape of the field].

        Returns:
            How many numbers of it are out of range.
        """
        out_of_range = 0
        for leaf, part in self._targets[name].walk(value):
            given = check(leaf.column, part, (len(lanes), *leaf.column.field.shape))
            given, outside = stored_form(leaf.column, given)
            out_of_range += int(outside)
            if leaf.dtype is None:
                leaf.lanes[lanes] = as_tensor(given).to(leaf.lanes)
            else:  # torch cannot index every unsigned type
                given = given.cpu() if isinstance(given, Tensor) else given
                leaf.lanes.numpy()[lanes] = np.asarray(given)
        return out_of_range


NUMBERS = struct.Struct("=ff??")  # reward, discount, terminated, truncated: as they lie in a row
LARGE = 2.0**127  # `struct` refuses what float32 cannot hold
LARGE_SQUARE = LARGE**2  # a sum of squares below tells of each number that it is below, and no NaN
LARGE_ARRAY = 1 << 13  # numbers; beyond, that sum is left to several threads
FLOAT64 = np.dtype(np.float64)


class _Target:
    """One column of the steps, as NumPy and as torch see it."""

    __slots__ = ("array", "column", "dtype", "lanes", "narrows", "scalars", "shape", "tensor")

    def __init__(self, column: Column, steps: Tensor, leading: tuple[int, ...]) -> None:
        field = column.field
        dtype = field.stored_dtype
        size = dtype.itemsize
        lanes, row_bytes = steps.shape
        inner = torch.empty(field.shape, device="meta").stride()
        self.lanes = (
            steps.view(-1)
            .view(dtype)
            .as_strided((lanes, *field.shape), (row_bytes // size, *inner), column.offset // size)
        )
        self.column = column
        self.shape = (*leading, *field.shape)
        self.tensor = self.lanes if leading else self.lanes[0]
        self.dtype = column.array_dtype
        self.array: Any = None if self.dtype is None else self.tensor.numpy()
        self.scalars = () if self.shape else SAFE_SCALARS.get(dtype, ())
        self.narrows = dtype == torch.float32 and math.prod(self.shape) <= LARGE_ARRAY

    def store(self, value: Any) -> int:
        """Copy a value that fits; returns how many numbers of it are out of range."""
        if (
            type(value) is Tensor
            and value.dtype is self.tensor.dtype
            and not value.is_nested
            and value.shape == self.shape
            and value.layout is torch.strided
            and value.is_cpu
        ):
            self.tensor.copy_(value.detach())
            return 0
        given, outside = stored_form(self.column, check(self.column, value, self.shape))
        if self.array is None or isinstance(given, Tensor):
            self.tensor.copy_(as_tensor(given))
        else:
            self.array[...] = given
        return int(outside)

    def walk(self, value: Any) -> Iterator[tuple[_Target, Any]]:
        """Itself, with the value."""
        yield self, value


class _Targets:
    """The columns of a dict of fields."""

    def __init__(self, name: str, tree: dict[str, Any]) -> None:
        self._name, self._tree = name, tree

    def walk(self, value: Any) -> Iterator[tuple[_Target, Any]]:
        """Every column, with its part of the value."""
        return walk(self._tree, value, self._name)


def _with_leaves(tree: Any, columns: Mapping[str, _Target]) -> Any:
    if isinstance(tree, str):
        return columns[tree]
    return {key: _with_leaves(branch, columns) for key, branch in tree.items()}


def ndim(value: Any) -> int:
    """Number of axes of an array, tensor, list or number."""
    if isinstance(value, float | int):
        return 0
    axes = getattr(value, "ndim", None)
    if isinstance(axes, int):
        return axes
    try:
        return np.ndim(value)
    except (ValueError, TypeError, RuntimeError):
        return 1  # whatever it is, it is no number


def is_vector(value: Any, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a kernel can take a value as it is: what a batch and a loss give can be."""
    return (
        type(value) is Tensor
        and value.dtype is dtype
        and value.ndim == 1
        and not value.requires_grad
        and value.device == device
        and value.is_contiguous()
    )


def vector(name: str, value: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A value as a contiguous vector of `dtype` on a device; a kernel sees nothing else.

    Raises:
        InputError: not a vector of numbers of the right kind.
    """
    if is_vector(value, dtype, device):
        tensor: Tensor = value
        return tensor
    try:
        value = as_tensor(value)
    except TypeError as error:
        raise InputError(f"{name}: not a vector of numbers: {error}") from None
    if value.ndim != 1:
        hint = f"; pass {name}.squeeze(-1)" if value.ndim == 2 and value.shape[1] == 1 else ""
        raise InputError(f"{name}: given shape {tuple(value.shape)}, expected [B]{hint}")
    integers = not (value.is_floating_point() or value.dtype == torch.bool)
    if dtype == torch.int64 and not integers and len(value):
        raise InputError(f"{name}: given {value.dtype}, expected {dtype}")
    given: Tensor = value.detach()
    return moved(given.to(dtype).contiguous(), device)


def whole_batch(batch_size: Any) -> int:
    """A batch size as a Python integer.

    Raises:
        InputError: not a whole number of at least 1.
    """
    size = batch_size if type(batch_size) is int else plain(batch_size)
    if type(size) is not int or not 1 <= size < 2**63:
        raise InputError(f"batch_size is a whole number >= 1; given {shown(batch_size)}")
    return size


def truth(name: str, value: Any) -> bool:
    """Whether a value is true.

    Raises:
        InputError: it is neither true nor false.
    """
    try:
        return bool(value)
    except (ValueError, TypeError, RuntimeError):
        raise InputError(f"{name} is True or False; given {shown(value)}") from None
