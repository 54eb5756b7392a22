"""A pretended device that fails: memory that is not there, kernels that do not start, its death."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from tests.triton.pretended.call import Call
from tests.triton.pretended.device import Device
from tests.triton.pretended.streams import Event, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class CompilationError(Exception):
    """As Triton's: it is no RuntimeError."""

    __module__ = "triton.compiler.errors"


def no_memory() -> Exception:
    """What torch says."""
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def no_start() -> Exception:
    """What Triton says of a kernel that asks for more than there is."""
    return RuntimeError("Triton Error [CUDA]: out of resource: shared memory, Required: 300000")


def no_kernel() -> Exception:
    """What Triton says of a kernel that does not compile."""
    return CompilationError("at 3:4: unsupported on this device")


def dead() -> Exception:
    """What CUDA says of everything after an access to memory that is not its own."""
    return torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nCompile..")


class Countdown:
    """Fails once, at the `at`-th event.

    Attributes:
        left: Events until then; 0 or less once it has failed.
    """

    def __init__(self, at: int, error: Callable[[], Exception]) -> None:
        self.left, self._error = at, error

    def event(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self._error()


@contextmanager
def failing_memory(at: int = 1) -> Iterator[Countdown]:
    """The `at`-th piece of memory that is asked of the device is not to be had."""
    countdown, run = Countdown(at, no_memory), Device.run

    def run_there(self: Device, operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        call = Call(operation, args, kwargs)
        if call.gives_ours and not operation.is_view and not call.written:
            countdown.event()
        return run(self, operation, args, kwargs)

    with patch.object(Device, "run", run_there):
        yield countdown


@contextmanager
def no_more_memory() -> Iterator[None]:
    """Whatever is asked of the device's memory is not to be had."""
    run = Device.run

    def run_there(self: Device, operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        call = Call(operation, args, kwargs)
        if call.gives_ours and not operation.is_view and not call.written:
            raise no_memory()
        return run(self, operation, args, kwargs)

    with patch.object(Device, "run", run_there):
        yield


@contextmanager
def failing_launch(at: int = 1, error: Callable[[], Exception] = no_start) -> Iterator[Countdown]:
    """The `at`-th kernel does not start."""
    countdown, launch = Countdown(at, error), Device.launch

    def launch_there(self: Device, *args: Any) -> None:
        countdown.event()
        launch(self, *args)

    with patch.object(Device, "launch", launch_there):
        yield countdown


@contextmanager
def dead_device() -> Iterator[None]:
    """Whatever is asked of the device fails."""

    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise dead()

    run = Device.run

    def run_there(self: Device, operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        call = Call(operation, args, kwargs)
        if call.has_ours or call.gives_ours or call.pins:
            raise dead()
        return run(self, operation, args, kwargs)

    events = {"record": fail, "query": fail, "synchronize": fail}
    with (
        patch.object(Device, "run", run_there),
        patch.multiple(Device, launch=fail, wait=fail),
        patch.multiple(Event, **events),
        patch.multiple(Stream, wait_event=fail, query=fail, synchronize=fail),
    ):
        yield
