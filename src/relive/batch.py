"""What `ReplayBuffer.sample` returns: every field of the drawn rows, in one piece of memory.

B  rows of the batch
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relive.closest import unknown
from relive.devices import numbered
from relive.errors import InputError, UnsupportedError, shown
from relive.fields import Field, RowLayout

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHE_LINE = 64  # bytes; every field of a batch starts on one

BY_NAME = (
    "a batch is read by the names of its fields: batch.obs or batch['obs'], those of batch.keys(); "
    "of a field some rows: batch.obs[:3]"
)

Observation = Tensor | dict[str, Any]


class BatchLayout:
    """Where the fields of a batch of B rows lie in its arena.

    Ids, weights, then the columns of the row, each on a cache line of its
    own. The offset of a column is the sum of the rounded-up sizes before it, so kernels compute it
    from B alone.

    Attributes:
        columns: name -> field, in arena order.
        strides: name -> strides of the field's view, in values.
        tree: nesting of the public fields, leaves are names of columns.
    """

    def __init__(self, row: RowLayout) -> None:
        self.columns: dict[str, Field] = {"ids": Field((), torch.int64), "weights": Field()}
        hidden = {"lane", "prev", "next"}
        self.gathered = [column for name, column in row.columns.items() if name not in hidden]
        self.columns.update((column.name, column.field) for column in self.gathered)
        self.strides = {name: _strides(field.shape) for name, field in self.columns.items()}
        self.tree: dict[str, Any] = {**row.tree, "ids": "ids", "weights": "weights"}

    def offsets(self, batch_size: int) -> dict[str, int]:
        """Byte offset of every column in the arena of a batch of B rows."""
        offsets, end = {}, 0
        for name, field in self.columns.items():
            offsets[name] = end
            end += _lines(batch_size * field.nbytes)
        return offsets

    def arena_bytes(self, batch_size: int) -> int:
        """Bytes of the arena of a batch of B rows."""
        return sum(_lines(batch_size * field.nbytes) for field in self.columns.values())


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a contiguous batch of values of this shape."""
    return tuple(math.prod(shape[axis:]) for axis in range(len(shape) + 1))


def _lines(nbytes: int) -> int:
    return -(-nbytes // CACHE_LINE) * CACHE_LINE


class Batch:
    """Transitions drawn from a buffer. The caller owns it.

    Every field is a view of one arena (`uint8`), made when it is first asked for. The user's own
    fields are attributes too: `batch.log_prob`. `len` is the number of rows. A copy by `copy.copy`
    has the same memory, one by `copy.deepcopy` and a pickle have their own.
    """

    __slots__ = ("_arena", "_layout", "_nested", "_offsets", "_size", "_typed", "_views")

    def __init__(
        self, layout: BatchLayout, arena: Tensor, batch_size: int, offsets: dict[str, int]
    ) -> None:
        self._layout = layout
        self._arena = arena
        self._size = batch_size
        self._offsets = offsets
        self._views: dict[str, Tensor] = {}  # column -> field
        self._nested: dict[str, Any] = {}  # dicts of them
        self._typed: dict[torch.dtype, Tensor] = {}

    @property
    def obs(self) -> Any:
        """Observation: `[B, *shape]`, or a dict of such tensors."""
        return self._field("obs")

    @property
    def action(self) -> Any:
        """Action: `[B, *shape]`, or a dict of such tensors."""
        return self._field("action")

    @property
    def reward(self) -> Tensor:
        """Return of the k-step window that starts here: sum of gamma^j r_{t+j}. float32 `[B]`."""
        return self._tensor("reward")

    @property
    def next_obs(self) -> Any:
        """Observation after the k steps of the window: as `obs`."""
        return self._field("next_obs")

    @property
    def terminated(self) -> Tensor:
        """Whether the window ended in a terminal state. bool `[B]`."""
        return self._tensor("terminated")

    @property
    def truncated(self) -> Tensor:
        """Whether the window was cut by a time limit; the bootstrap still counts. bool `[B]`."""
        return self._tensor("truncated")

    @property
    def discount(self) -> Tensor:
        """gamma^k, 0 where terminated: target = reward + discount * bootstrap. float32 `[B]`."""
        return self._tensor("discount")

    @property
    def weights(self) -> Tensor:
        """Importance weights, 1 for uniform draws. float32 `[B]`."""
        return self._tensor("weights")

    @property
    def ids(self) -> Tensor:
        """Ids of the rows, for `update_priorities`. int64 `[B]`."""
        return self._tensor("ids")

    @property
    def device(self) -> torch.device:
        """Device of every field."""
        return self._arena.device

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The batch on `device`: itself if it is there, else a copy made in one transfer.

        Raises:
            UnsupportedError: no device that this machine has.
            OutOfMemoryError, AcceleratorError: as torch says, of one that is there.
        """
        try:
            target = numbered(device)
            if target == self._arena.device:
                return self
            arena = self._arena.to(target, non_blocking=non_blocking)
        except (TypeError, ValueError, RuntimeError, AssertionError) as error:
            fails = isinstance(error, torch.OutOfMemoryError | torch.AcceleratorError)
            if fails and "invalid device ordinal" not in str(error):
                raise
            raise UnsupportedError(
                f"device is one that torch has; given {shown(device)}"
            ) from error
        return Batch(self._layout, arena, self._size, self._offsets)

    def keys(self) -> list[str]:
        """Names of the fields."""
        return list(self._layout.tree)

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise InputError(f"{BY_NAME}; given {shown(name)}")
        if name not in self._layout.tree:
            raise KeyError(self._no_field(name))
        return self._field(name)

    def __contains__(self, name: object) -> bool:
        return name in self._layout.tree

    def __iter__(self) -> Iterator[Any]:
        raise InputError(BY_NAME)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._layout.tree:
            raise AttributeError(self._no_field(name))
        return self._field(name)

    def __len__(self) -> int:
        return self._size

    def __copy__(self) -> Batch:
        """Another batch of the same memory, which is not written into while either is held."""
        return Batch(self._layout, self._arena.detach(), self._size, self._offsets)

    def __deepcopy__(self, _: Any) -> Batch:
        return Batch(self._layout, self._arena.detach().clone(), self._size, self._offsets)

    def __reduce__(self) -> Any:
        return Batch, (self._layout, self._arena.detach(), self._size, self._offsets)

    def __repr__(self) -> str:
        return f"Batch({self._size} rows: {', '.join(self.keys())}; {self.device})"

    def _no_field(self, name: str) -> str:
        names = self.keys()
        return f"in a batch {unknown('field', name, names, most=len(names))}"

    def _field(self, name: str) -> Any:
        view = self._views.get(name)
        if view is not None:
            return view
        tree = self._layout.tree[name]
        if tree == name:
            return self._view(name)
        if name not in self._nested:
            self._nested[name] = self._dict_of(tree)
        return self._nested[name]

    def _take(self, other: Batch, rows: slice) -> None:
        """Copy some rows of a batch of the same columns, from another device (waits)."""
        for name in self._layout.columns:
            self._view(name)[rows] = other._view(name)[rows].to(self.device)

    def _tensor(self, name: str) -> Tensor:
        view: Tensor = self._field(name)
        return view

    def _dict_of(self, tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: self._dict_of(branch) for key, branch in tree.items()}
        return self._view(tree)

    def _view(self, column: str) -> Tensor:
        view = self._views.get(column)
        if view is None:
            if torch.is_inference_mode_enabled() and not self._arena.is_inference():
                with torch.inference_mode(False):  # the view is used outside of it too
                    return self._view(column)
            field, start = self._layout.columns[column], self._offsets[column]
            shape = (self._size, *field.shape)
            with torch.enable_grad():  # else what is made of it in place could not be trained on
                typed = self._typed.get(field.dtype)  # two operations less for every further view
                if typed is None:
                    typed = self._typed[field.dtype] = self._arena.view(field.dtype)
                view = typed.as_strided(
                    shape, self._layout.strides[column], start // field.dtype.itemsize
                )
            self._views[column] = view
        return view
