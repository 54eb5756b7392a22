"""Tensors of the pretended device, and how torch comes to make them.

A tensor is a view of memory of the processor that says it lies on `cuda:0`, to C++ too: what torch
does by itself with a device (indexing, type promotion, versions, views) it does as it would. Its
operations all arrive in `Device.run`.

torch built without CUDA lacks one thing, a guard that makes a device the current one. While the
device is pretended the processor's, which does nothing, stands in its place.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.triton.pretended.device import Device

CUDA = torch.device("cuda", 0)
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"  # one pointer for each type of device
CPU_GUARD, CUDA_GUARD = 0, 1


class DeviceTensor(Tensor):
    """A tensor that lies on the device."""

    owner: ClassVar[Device | None] = None
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def of(cls, memory: Tensor) -> Tensor:
        """The tensor on the device that these bytes of the processor's stand for."""
        return Tensor._make_subclass(
            cls, memory, dispatch_device=True, device_for_backend_keys=CUDA
        )

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if operation is torch.ops.prim.device.default:
            return CUDA
        if cls.owner is None:
            raise RuntimeError("the device that was pretended is gone")
        return cls.owner.run(operation, args, kwargs or {})

    # Where torch's own look at the class.

    def record_stream(self, stream: Any) -> None:
        if not isinstance(stream, torch.cuda.Stream):
            raise TypeError(f"record_stream takes a stream; given {stream!r}")
        assert self.owner is not None
        self.owner.memory.record(self.untyped_storage().data_ptr(), stream)

    def __repr__(self) -> str:
        return f"{self.detach().cpu()!r}".removesuffix(")") + f", device='{CUDA}')"

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.dim() == 0 else repr(self), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return memo.setdefault(id(self), self.detach().clone().requires_grad_(self.requires_grad))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _to_device, (self.detach().cpu(), self.requires_grad)


def _to_device(tensor: Tensor, requires_grad: bool) -> Tensor:
    return tensor.to(CUDA).requires_grad_(requires_grad)


def memory_of(tensor: Tensor) -> Tensor:
    """What a tensor of the device stands for: an ordinary one in the same memory."""
    with _disable_current_modes(), torch.inference_mode(False):  # it may be filled later
        return torch.empty(0, dtype=tensor.dtype).set_(
            tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        )


def _cuda(tensor: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    return tensor.to(CUDA if device is None else device, non_blocking=non_blocking)


def _tolist(tensor: Tensor) -> Any:
    return (tensor.cpu() if isinstance(tensor, DeviceTensor) else tensor).tolist()


def _numpy(tensor: Tensor, *, force: bool = False) -> Any:
    if isinstance(tensor, DeviceTensor) and not force:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )
    return (tensor.detach().cpu() if force else tensor).numpy()


# What torch does for its own class of tensors only, or for devices that it has.
REPLACED = {
    Tensor.cuda: _cuda,
    Tensor.tolist: _tolist,
    Tensor.numpy: _numpy,
    Tensor.__array__: lambda tensor, dtype=None: np.asarray(_numpy(tensor), dtype),
}


class _Calls(TorchFunctionMode):
    """Replaces a few calls, and gives "cuda" its number, which torch asks the guard for.

    Not where a device is only named: "cuda" is not equal to "cuda:0". Here generators are still
    those that were given.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.device:
            return function(*args, **(kwargs or {}))
        if getattr((kwargs or {}).get("generator"), "is_captured", False):
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        numbered = {name: _numbered(value) for name, value in (kwargs or {}).items()}
        return REPLACED.get(function, function)(*map(_numbered, args), **numbered)


def _numbered(value: Any) -> Any:
    is_cuda = isinstance(value, str | torch.device) and str(value) == "cuda"
    return CUDA if is_cuda else value


class _Operations(TorchDispatchMode):
    """Below all other modes, where a device is, and where torch does not ask CUDA to start."""

    _mode_key = torch._C._TorchDispatchModeKey.FAKE

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if operation is torch.ops.prim.device.default:
            return CUDA
        if torch.is_inference_mode_enabled() and _is_made_of_others(operation):
            with self:
                return operation.decompose(*args, **(kwargs or {}))
        return self.device.run(operation, args, kwargs or {})


def _is_made_of_others(operation: Any) -> bool:
    """Whether torch takes it apart before it comes here, but in inference mode."""
    kind = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(operation.has_kernel_for_dispatch_key(kind))


@contextmanager
def seen_by(device: Device) -> Iterator[None]:
    """What this thread does with tensors goes to the device, if it is about it."""
    lifts = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor makes its copy where modes see it
    try:
        with _Operations(device), _Calls():
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lifts)


@contextmanager
def device_guard() -> Iterator[None]:
    """A guard for CUDA that needs no device."""
    library = ctypes.CDLL(str(next(Path(torch.__file__).parent.glob("lib/libc10.*"))))
    guards = (ctypes.c_void_p * (CUDA_GUARD + 1)).in_dll(library, GUARDS)
    before, guards[CUDA_GUARD] = guards[CUDA_GUARD], guards[CPU_GUARD]
    try:
        yield
    finally:
        guards[CUDA_GUARD] = before


@contextmanager
def tensors_of(device: Device) -> Iterator[None]:
    """Tensors may lie on the device."""
    if DeviceTensor.owner is not None:
        raise RuntimeError("a device is pretended already")
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    with device_guard(), seen_by(device):
        DeviceTensor.owner = device
        torch.__future__.set_swap_module_params_on_conversion(True)  # one class for another
        try:
            yield
        finally:
            torch.__future__.set_swap_module_params_on_conversion(swaps)
            DeviceTensor.owner = None
