"""Whatever would make the host wait for a GPU, or cannot be captured, raises; no GPU is needed.

    with no_waits(state):
        update(state, ids, errors, as_leaves=False)

Two modes watch, since tensors on the CPU show neither alone: calls of Python's (`int(tensor)`,
`tolist()`, masks and lists as indices, numbers copied to the device) and operations that torch's
own code uses underneath. Kernels run as ever; what Triton's interpreter does with their arguments
is its own affair. On a machine with CUDA, torch's own check is on as well.

Not seen on the CPU: a copy between devices by `to` or `copy_`. With tensors on "meta" it is.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from relive.ops.launch import Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relive.ops.state import State

aten = torch.ops.aten

READS = {"item", "tolist", "numpy", "cpu", "storage", "pin_memory"} | {
    f"__{name}__"
    for name in ("bool", "int", "float", "index", "array", "contains", "repr", "format")
}
COPIES = {"tensor", "as_tensor", "asarray"}
TAKE_NUMBERS = {"arange", "linspace", "logspace", "full", "randint"}
READ_BY_HOST = "its result, or how long it is, is read by the host"
OPERATIONS = {
    aten._local_scalar_dense: READ_BY_HOST,
    aten.item: READ_BY_HOST,
    aten.is_nonzero: READ_BY_HOST,
    aten.equal: READ_BY_HOST,
    aten.allclose: READ_BY_HOST,
    aten.nonzero: READ_BY_HOST,
    aten.nonzero_numpy: READ_BY_HOST,
    aten.argwhere: READ_BY_HOST,
    aten.bincount: READ_BY_HOST,
    aten.masked_select: READ_BY_HOST,
    aten._unique: READ_BY_HOST,
    aten._unique2: READ_BY_HOST,
    aten.unique_dim: READ_BY_HOST,
    aten.unique_consecutive: READ_BY_HOST,
    aten.unique_dim_consecutive: READ_BY_HOST,
    aten._pin_memory: "pinned memory cannot be had during capture",
    aten.multinomial: "it costs a pass over all rows",
    aten.randperm: "it sorts; use the buffer's own random numbers",
}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
MASKS = (torch.bool, torch.uint8)


class WaitError(AssertionError):
    """The host would wait for the device, or the call could not be captured."""


@contextmanager
def no_waits(*states: State) -> Iterator[None]:
    """Raises `WaitError` at what makes the host wait.

    Args:
        states: Of which the host must not read words either; on the CPU it usually can.
    """
    with ExitStack() as stack:
        for state in states:
            stack.enter_context(_unreadable(state))
        if torch.cuda.is_available():
            stack.enter_context(_torch_checks())
        stack.enter_context(launches_unseen())
        stack.enter_context(_Operations())
        stack.enter_context(_Calls())
        yield


@contextmanager
def launches_unseen() -> Iterator[None]:
    """No mode sees what a launch does with its arguments."""
    start = Launcher.__call__

    def unseen(launcher: Launcher, *args: Any, **constants: Any) -> None:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            start(launcher, *args, **constants)

    Launcher.__call__ = unseen
    try:
        yield
    finally:
        Launcher.__call__ = start


@contextmanager
def _unreadable(state: State) -> Iterator[None]:
    """On the CPU the host has the words as an array; here it has a tensor, as it has on CUDA."""
    host = state.host
    object.__setattr__(state, "host", state.words)
    try:
        yield
    finally:
        object.__setattr__(state, "host", host)


@contextmanager
def _torch_checks() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


class _Calls(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        reason = _wait_of_call(getattr(function, "__name__", ""), args, kwargs)
        if reason:
            raise WaitError(reason)
        return function(*args, **kwargs)


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        reason = _wait_of_operation(operation.overloadpacket, args, kwargs)
        if reason:
            raise WaitError(f"{operation}: {reason}")
        return operation(*args, **kwargs)


def _wait_of_call(name: str, args: Any, kwargs: dict[str, Any]) -> str | None:
    """Why a call of Python's would wait."""
    if name in READS:
        return f"{name}: the host reads a tensor"
    if name in COPIES:
        return f"torch.{name}: a copy from the host to the device"
    if name in TAKE_NUMBERS and any(isinstance(a, Tensor) for a in (*args, *kwargs.values())):
        return f"torch.{name}: the host reads a tensor to know a number"
    if name == "to" and "cpu" in (*args, *kwargs.values()):
        return "to: a copy from the device to the host"
    if name in ("__getitem__", "__setitem__"):
        keys = args[1] if isinstance(args[1], tuple) else (args[1],)
        return next(filter(None, map(_wait_of_index, keys)), None)
    return None


def _wait_of_index(key: Any) -> str | None:
    if isinstance(key, list):
        return "a list as an index is copied from the host to the device"
    if isinstance(key, Tensor) and key.dtype in MASKS:
        return "a mask as an index: the host reads how many it has"
    if isinstance(key, Tensor) and key.dim() == 0:
        return "a tensor without axes as an index is read by the host"
    if isinstance(key, slice) and any(
        isinstance(k, Tensor) for k in (key.start, key.stop, key.step)
    ):
        return "a tensor as the bound of a slice is read by the host"
    return None


def _wait_of_operation(operation: Any, args: Any, kwargs: dict[str, Any]) -> str | None:
    """Why an operation of torch's would wait, or could not be captured."""
    if operation in OPERATIONS:
        return OPERATIONS[operation]
    if operation is aten.repeat_interleave and kwargs.get("output_size") is None:
        return "the host reads how long the result is; say output_size="
    if operation in INDEXING and any(k is not None and k.dtype in MASKS for k in args[1]):
        return "a mask as an index: the host reads how many it has"
    if operation in (aten._to_copy, aten.copy_):
        source = args[1] if operation is aten.copy_ else args[0]
        target = args[0].device if operation is aten.copy_ else kwargs.get("device")
        target = source.device if target is None else torch.device(target)
        if source.device.type != target.type:
            return f"a copy from {source.device.type} to {target.type}"
    return None
