"""One operation on its way to the device: what it is given and gives there and in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from tests.triton.pretended.tensors import DeviceTensor, memory_of

aten = torch.ops.aten

CPU = torch.device("cpu")
ALLOCATIONS = {aten.empty, aten.empty_like, aten.empty_strided}
ALLOCATIONS |= {aten.new_empty, aten.new_empty_strided}
COPIES = {aten.copy_, aten._to_copy}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
# Of the host, a tensor without axes may take part here; on CUDA it goes by value.
TAKE_NUMBERS = {aten.fill, aten.fill_, aten.masked_fill, aten.masked_fill_, aten.index_put}
TAKE_NUMBERS |= {aten.index_put_, aten._index_put_impl_}


class Call:
    """An operation with its arguments.

    Attributes:
        is_instant: Whether it does nothing with numbers: a view, or memory as it comes.
        tensors: Those it is given.
        written: Those of them that it changes.
        has_ours, gives_ours: Whether any of them lies on the device, and whether its results do.
        pins: Whether its results lie in pinned memory, if not on the device.
    """

    def __init__(self, operation: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self.operation, self.packet = operation, operation.overloadpacket
        self.is_instant = operation.is_view or self.packet in ALLOCATIONS
        self.tensors = _tensors((args, kwargs))
        self.written = [
            tensor
            for k, argument in enumerate(operation._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
            for tensor in _tensors(args[k] if k < len(args) else kwargs.get(argument.name))
        ]
        place = kwargs.get("device")
        self.has_ours = any(isinstance(tensor, DeviceTensor) for tensor in self.tensors)
        self.gives_ours = self.has_ours if place is None else place.type == "cuda"
        # What torch copies to the host without waiting, it pins.
        is_async = self.packet is aten._to_copy and kwargs.get("non_blocking", False)
        self.pins = is_async or bool(kwargs.get("pin_memory"))
        self.given = args, kwargs
        self._known: dict[int, Tensor] = {}  # what was given, by what stands for it in memory

    def require_possible(self) -> None:
        """Raise what torch does on CUDA if tensors are on different devices.

        Raises:
            RuntimeError: they are.
            NotImplementedError: it would give a tensor on the device another shape or memory.
        """
        if torch.Tag.inplace_view in self.operation.tags:
            raise NotImplementedError(f"{self.operation} of a tensor on the pretended device")
        place = self.given[1].get("device")
        if place is not None and place.type == "cuda" and place.index not in (None, 0):
            raise torch.AcceleratorError("CUDA error: invalid device ordinal")
        if self.gives_ours and self.given[1].get("pin_memory"):
            raise RuntimeError("only dense CPU tensors can be pinned")
        if self.has_ours and self.packet not in COPIES and any(map(self._is_alien, self.tensors)):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:0 and cpu! (in {self.operation})"
            )

    def _is_alien(self, tensor: Tensor) -> bool:
        """Whether it lies on the host and must not."""
        if isinstance(tensor, DeviceTensor):
            return False
        if any(tensor is changed for changed in self.written):
            return True
        args = self.given[0]
        if self.packet in INDEXING and any(tensor is key for key in args[1]):
            return False
        is_arithmetic = torch.Tag.pointwise in self.operation.tags or self.packet in TAKE_NUMBERS
        return tensor.dim() > 0 or not is_arithmetic

    def enter_memory(self) -> None:
        """From here on the call is one about ordinary tensors."""
        args, kwargs = tree_map(self._to_memory, self.given)
        self.args, self.kwargs = args, {k: v for k, v in kwargs.items() if k != "pin_memory"}

    def _to_memory(self, value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "cuda":
            return CPU
        if not isinstance(value, Tensor):
            return value
        memory = value
        if isinstance(value, DeviceTensor):
            memory = memory_of(value)
        elif value.dim() == 0 and self.packet not in COPIES:
            memory = value.clone()  # by value: the host may change it
        self._known[id(memory)] = value
        return memory

    def do(self) -> Any:
        """Its results, in memory."""
        results = self.operation(*self.args, **self.kwargs)
        self._require_shapes(_tensors((self.args, self.kwargs)))
        return spoil(results) if self.packet in ALLOCATIONS else results

    def _require_shapes(self, tensors: list[Tensor]) -> None:
        """Raise NotImplementedError if `out=` got another shape."""
        for tensor, given in zip(tensors, _tensors(self.given), strict=True):
            if tensor.shape != given.shape:
                raise NotImplementedError(f"{self.operation} resizes what it writes to")

    def promised(self) -> Any:
        """Its results, without doing it: arguments that it returns, and spoilt memory."""
        arguments: dict[int, Tensor] = {}

        def to_meta(value: Any) -> Any:
            if isinstance(value, torch.device) or not isinstance(value, Tensor):
                return torch.device("meta") if isinstance(value, torch.device) else value
            meta = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="meta"
            )
            arguments[id(meta)] = value
            return meta

        def to_memory(meta: Any) -> Any:
            if not isinstance(meta, Tensor) or id(meta) in arguments:
                return arguments.get(id(meta), meta)
            with torch.inference_mode(False):
                return spoil(torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype))

        args, kwargs = tree_map(to_meta, (self.args, {**self.kwargs, "generator": None}))
        if "generator" not in self.kwargs:
            del kwargs["generator"]
        results = self.operation(*args, **kwargs)
        self._require_shapes(_tensors((args, kwargs)))
        return tree_map(to_memory, results)

    def keep(self, promised: Any) -> None:
        """Does it, and puts the results where they were promised."""
        for place, result in zip(_tensors(promised), _tensors(self.do()), strict=True):
            place.copy_(result)

    def new(self, results: Any) -> list[Tensor]:
        """Of results in memory, those in memory of their own."""
        if self.operation.is_view:
            return []
        return [memory for memory in _tensors(results) if id(memory) not in self._known]

    def leave_memory(self, results: Any) -> Any:
        """What the caller gets."""

        def to_caller(value: Any) -> Any:
            if id(value) in self._known:
                return self._known[id(value)]
            ours = isinstance(value, Tensor) and self.gives_ours
            return DeviceTensor.of(value) if ours else value

        return tree_map(to_caller, results)


def spoil(memory: Tensor) -> Tensor:
    """Memory as it comes: not a number, to whoever reads it too early.

    As it really comes it may hold what is expected of it, from a time before.
    """
    memory.untyped_storage().fill_(0xFF)
    return memory


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]
