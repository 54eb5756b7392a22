"""What `torch.cuda` is while a device is pretended."""

from __future__ import annotations

import gc
import threading
import warnings
from contextlib import ExitStack, contextmanager
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from relive.ops.launch import Launcher
from tests.triton.pretended.device import ERROR, WARN, Device
from tests.triton.pretended.graphs import CUDAGraph, graph
from tests.triton.pretended.streams import Event, Stream
from tests.triton.pretended.tensors import CUDA, seen_by, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "Pretended GPU"
CAPABILITY = (9, 0)
SYNC_DEBUG_MODES = {"default": 0, "warn": WARN, "error": ERROR}


class Generator(torch.Generator):
    """One of the device draws what one of the processor does, when it comes to it.

    Attributes:
        is_captured: By a capture that CUDA has broken off; it refuses to draw.
    """

    def __new__(cls, device: Any = "cpu") -> Generator:
        generator = super().__new__(cls, "cpu")
        generator.place, generator.is_captured = torch.device(device), False
        return generator

    @property
    def device(self) -> torch.device:
        """Where it is asked for."""
        return self.place

    def clone_state(self) -> Generator:
        """Another one that draws the same."""
        return Generator(self.place).set_state(self.get_state())

    def graphsafe_set_state(self, other: Generator) -> None:
        """Draw as another one does."""
        self.set_state(other.get_state())
        self.is_captured = other.is_captured


@contextmanager
def pretended() -> Iterator[Device]:
    """There is one CUDA device, `cuda:0`, inside; for all threads that start there."""
    device = Device()
    with ExitStack() as stack:
        stack.enter_context(tensors_of(device))
        stack.enter_context(patch.multiple(torch.cuda, **_names(device)))
        stack.enter_context(
            patch.object(torch._C, "_cuda_endAllocateToPool", device.end_allocations, create=True)
        )
        stack.enter_context(patch.object(Launcher, "__call__", _launches(device)))
        stack.enter_context(patch.object(torch, "Generator", Generator))
        stack.enter_context(patch.object(threading.Thread, "run", _threads(device)))
        yield device
        if device.registered:  # it is unpinned here, not where there is no device
            gc.collect()


def _names(device: Device) -> dict[str, Any]:
    """What stands in `torch.cuda`, by name."""
    streams = type("Stream", (Stream,), {"owner": device})
    default = streams()
    pools = count(1)

    def set_sync_debug_mode(mode: int | str) -> None:
        if not device.sync_debug_mode_was_set:  # torch sets the mode, and then tells this once
            device.sync_debug_mode_was_set = True
            device.sync_debug_mode = SYNC_DEBUG_MODES.get(mode, mode)
            told = "Synchronization debug mode is a prototype feature and does not yet detect all"
            warnings.warn(f"{told} synchronizing operations", UserWarning, stacklevel=2)
        device.sync_debug_mode = SYNC_DEBUG_MODES.get(mode, mode)

    def set_stream(stream: Stream) -> None:
        device.stream = stream

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _require_ours,
        "device": _selected,
        "get_device_name": lambda _=None: NAME,
        "get_device_capability": lambda _=None: CAPABILITY,
        "get_device_properties": lambda _=None: SimpleNamespace(
            name=NAME,
            major=CAPABILITY[0],
            minor=CAPABILITY[1],
            total_memory=device.total,
            multi_processor_count=132,
        ),
        "mem_get_info": lambda _=None: (device.free, device.total),
        "empty_cache": device.empty_cache,
        "synchronize": lambda _=None: device.wait("torch.cuda.synchronize", everywhere=True),
        "set_sync_debug_mode": set_sync_debug_mode,
        "get_sync_debug_mode": lambda: device.sync_debug_mode,
        "Stream": streams,
        "Event": type("Event", (Event,), {"owner": device}),
        "current_stream": lambda _=None: device.stream,
        "default_stream": lambda _=None: default,
        "set_stream": set_stream,
        "stream": lambda stream: _current(device, stream),
        "CUDAGraph": type("CUDAGraph", (CUDAGraph,), {"owner": device}),
        "graph": graph,
        "graph_pool_handle": lambda: (0, next(pools)),
        "is_current_stream_capturing": lambda: device.stream.graph is not None,
        "cudart": lambda: _Runtime(device),
    }


class _Runtime:
    """What is used of CUDA's own functions."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def cudaHostRegister(self, address: int, nbytes: int, _: int) -> int:
        if address in self._device.registered or nbytes > self._device.most_registered:
            self._device.has_failed = True
            return 1
        self._device.registered[address] = nbytes
        return 0

    def cudaGetErrorString(self, error: int) -> str:
        return f"error {error}"

    def cudaHostUnregister(self, address: int) -> int:
        if self._device.registered.pop(address, None) is None:
            return 1  # it was pinned for a device that is gone
        if not self._device.is_idle():
            self._device.memory.fault(f"memory of the host at {address:#x} is unpinned too early")
        return 0


@contextmanager
def _current(device: Device, stream: Stream | None) -> Iterator[None]:
    """A stream is the current one of this thread inside."""
    before = device.stream
    device.stream = stream or before
    try:
        yield
    finally:
        device.stream = before


def _require_ours(device: Any) -> None:
    number = device if isinstance(device, int) else torch.device(device).index
    if number not in (None, CUDA.index):
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")


@contextmanager
def _selected(device: Any) -> Iterator[None]:
    _require_ours(device)
    yield


def _launches(device: Device) -> Any:
    """A start of kernels that tells listeners as ever, and gives the kernel to the device."""
    start = Launcher.__call__

    def start_there(launcher: Launcher, kernel: Any, *args: Any, **constants: Any) -> None:
        start(launcher, _Kernel(kernel, device), *args, **constants)

    return start_there


class _Kernel:
    """Stands for a kernel."""

    def __init__(self, kernel: Any, device: Device) -> None:
        self._kernel, self._device = kernel, device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *args, **constants: self._device.launch(self._kernel, grid, args, constants)


def _threads(device: Device) -> Any:
    """What a thread does, with its tensors seen by the device."""
    run = threading.Thread.run

    def run_there(thread: threading.Thread) -> None:
        with seen_by(device):
            run(thread)

    return run_there
