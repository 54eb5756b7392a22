"""Calls that have no place in a CUDA graph.

While a step is captured nothing runs: what is launched is taken down, to be played back later. A
call for which the host reads device memory, or leaves a number of its own in a launch, would
break the capture or be frozen with it; it says so before anything has changed.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar, cast

import torch

from relive.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class NotNowError(UnsupportedError):
    """A call that can be captured at another moment, but not at this one."""


class OnDevice(Protocol):
    """Something that lives on a device."""

    @property
    def device(self) -> torch.device:
        """Where."""
        ...


Owner = TypeVar("Owner", bound=OnDevice)


def is_captured(device: torch.device) -> bool:
    """Whether what is launched on a device now is taken down for a CUDA graph.

    That is told by the stream which is current there, whichever device is.
    """
    if device.type != "cuda":
        return False
    if device.index in (None, torch.cuda.current_device()):
        return torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(device):  # torch asks about the current one only
        return torch.cuda.is_current_stream_capturing()


def refuse_capture(device: torch.device) -> None:
    """Raise UnsupportedError if what is launched on a device now is captured in a CUDA graph."""
    if is_captured(device):
        raise UnsupportedError(
            "what goes through the host cannot be captured in a CUDA graph, since a replay would "
            "move the same memory again; pass tensors that are on the device, or make this call "
            "before the capture"
        )


def require_no_capture(device: torch.device, name: str) -> None:
    """Raise UnsupportedError while a CUDA graph is captured on a device; `name` is of the call."""
    if is_captured(device):
        raise UnsupportedError(
            f"{name} cannot be captured in a CUDA graph; call it before or after the capture"
        )


def outside_capture(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """A method that raises UnsupportedError while a CUDA graph is captured on its device."""
    name = method.__name__

    @wraps(method)
    def checked(self: Owner, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        require_no_capture(self.device, name)
        return method(self, *args, **kwargs)

    return cast("Callable[Concatenate[Owner, Arguments], Result]", checked)
