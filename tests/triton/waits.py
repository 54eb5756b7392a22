"""Whatever would make the host wait for a GPU, or cannot be captured, raises; no GPU is needed.

    with no_waits(state):
        update(state, ids, errors, as_leaves=False)

Two modes watch, since tensors on the CPU show neither alone: calls of Python's (`int(tensor)`,
`tolist()`, masks and lists as indices, numbers copied to the device) and operations that torch's
own code uses underneath. Kernels run as ever; what Triton's interpreter does with their arguments
is its own affair. On a machine with CUDA, torch's own check is on as well.

Not seen on the CPU: a copy between devices by `to` or `copy_`. With tensors on "meta" it is, and on
a pretended device, which asks the same questions.
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
    from collections.abc import Callable, Iterator

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
}
UNFIT = {  # for a step, though the host does not wait
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

    def start_unseen(launcher: Launcher, *args: Any, **constants: Any) -> None:
        with unseen():
            start(launcher, *args, **constants)

    Launcher.__call__ = start_unseen
    try:
        yield
    finally:
        Launcher.__call__ = start


@contextmanager
def unseen() -> Iterator[None]:
    """No mode sees what is done inside."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


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
    try:
        torch.cuda.set_sync_debug_mode("error")
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
        packet = operation.overloadpacket
        reason = UNFIT.get(packet) or wait_of_operation(packet, args, kwargs)
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
        reason = next(filter(None, map(_wait_of_index, keys)), None)
        is_number = name == "__setitem__" and not isinstance(args[2], Tensor)
        return reason or (_wait_of_number(args[0], keys) if is_number else None)
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


def _wait_of_number(target: Tensor, keys: tuple[Any, ...]) -> str | None:
    """Why a number waits on its way to some places; into a slice it goes by value."""
    if all(isinstance(key, int) for key in keys) and len(keys) == target.dim():
        return "a number is copied to one place of a tensor; use a slice of one, x[3:4] = number"
    if any(isinstance(key, Tensor) for key in keys):
        return "a number is copied to places by index; use index_fill_"
    return None


def wait_of_operation(
    operation: Any,
    args: Any,
    kwargs: dict[str, Any],
    is_pinned: Callable[[Tensor], bool] = Tensor.is_pinned,
) -> str | None:
    """Why an operation of torch's would make the host wait.

    Args:
        operation: Without its overload, `torch.ops.aten.add`.
        is_pinned: Whether a tensor of the host lies in pinned memory.
    """
    if operation in OPERATIONS:
        return OPERATIONS[operation]
    if operation is aten.repeat_interleave and kwargs.get("output_size") is None:
        return "the host reads how long the result is; say output_size="
    if operation in (aten.linspace, aten.logspace) and any(isinstance(a, Tensor) for a in args):
        return READ_BY_HOST
    if operation in INDEXING:
        return _wait_of_indices(args)
    if operation is aten.copy_:
        return _wait_of_copy(args[1], args[0].device, args[0], _third(args, kwargs), is_pinned)
    if operation is aten._to_copy:
        target, is_async = kwargs.get("device"), kwargs.get("non_blocking", False)
        target = args[0].device if target is None else torch.device(target)
        return _wait_of_copy(args[0], target, None, is_async, is_pinned)
    return None


def _wait_of_indices(args: Any) -> str | None:
    """Of indexing, to read or to write `args[2]`."""
    device, keys = args[0].device, [key for key in args[1] if key is not None]
    comes_from_host = len(args) > 2 and args[2].device != device
    if any(key.dtype in MASKS for key in keys):
        is_fill = comes_from_host and len(keys) == 1 and not any(args[3:4])
        return None if is_fill else "a mask as an index: the host reads how many it has"
    if comes_from_host:
        return "a number of the host is copied to the device"
    if any(key.device != device for key in keys):
        return "indices of the host are copied to the device"
    return None


def _third(args: Any, kwargs: dict[str, Any]) -> bool:
    return args[2] if len(args) > 2 else kwargs.get("non_blocking", False)


def _wait_of_copy(
    source: Tensor,
    device: torch.device,
    target: Tensor | None,
    is_async: bool,
    is_pinned: Callable[[Tensor], bool],
) -> str | None:
    """Why a copy waits; `target` is None if it is made by the copy: torch pins it, if it can."""
    if source.device.type == device.type or source.numel() == 0:
        return None
    what = f"a copy from {source.device.type} to {device.type}"
    if not is_async:
        return f"{what} without non_blocking=True"
    host = target if device.type == "cpu" else source
    if host is not None and not is_pinned(host):
        return f"{what}: the memory of the host is not pinned"
    is_plain = host is None or host.is_contiguous()
    if target is not None and device.type != "cpu":
        is_plain &= (source.dtype, source.shape) == (target.dtype, target.shape)
    return None if is_plain else f"{what} of another form goes through memory that is not pinned"
