"""What fails on a GPU: memory, compilation and launches, which leave it usable, or the GPU itself.

CUDA tells some errors at once, of the call that fails: there was no memory, a kernel could not be
compiled or started. Nothing else is touched by them. All others (an illegal address, an assertion
in a kernel, broken memory) are told by whatever is called next, and from then on every call fails:
what is on the device can't be read any more.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from relive.errors import DeviceLostError

if TYPE_CHECKING:
    from collections.abc import Iterator

# What CUDA's messages say where the device can be used afterwards.
USABLE_AFTER = (
    "out of memory",
    "too many resources requested for launch",
    "out of resource",
    "invalid argument",
    "invalid configuration argument",
    "invalid device function",
    "no kernel image",
    "kernel image is invalid",
    "named symbol not found",
    "ptx",
    "status_alloc_failed",  # of cuBLAS and cuDNN
    "status_not_initialized",  # for want of memory too
    "unable to find an engine",  # of cuDNN, all of which want memory
    "captur",  # all that is told of a capture: what was taken down has not been done
)
TOLD_BY_CUDA = (
    "CUDA error",
    "Triton Error [CUDA]",
    "CUDA driver error",
    "CUBLAS",
    "cuBLAS",
    "cuDNN",
    "unable to find an engine",
)
LAUNCH_NOTE = "relive: this kernel was not started: "
LONGEST = 200  # characters of an error that are shown


class DeviceFailure(NamedTuple):
    """What became of a buffer whose GPU failed.

    Attributes:
        device: that failed.
        reason: what CUDA, torch or Triton said, in a line.
        rows: that were kept.
        nbytes: of them.
        prioritized: whether they have priorities, which were kept too.
    """

    device: str
    reason: str
    rows: int
    nbytes: int
    prioritized: bool

    @property
    def kept(self) -> str:
        """What was kept, in words."""
        if not self.rows:
            return "it held no rows yet"
        of_them = " and their priorities" if self.prioritized else ""
        return f"kept are {self.rows:,} rows ({self.nbytes / 1e6:,.1f} MB){of_them}"


def spares_the_device(error: BaseException) -> bool:
    """Whether an error is one of memory, compilation or launch, after which a GPU can be read."""
    if any(isinstance(one, torch.OutOfMemoryError) for one in _chain(error)):
        return True
    if loses_the_device(error):
        return False
    return any(_is_of_a_launch(one) or _is_of_cuda(one) for one in _chain(error))


def loses_the_device(error: BaseException) -> bool:
    """Whether an error is of CUDA, and not one of those after which a GPU can be read."""
    return any(
        _is_of_cuda(one) and not any(words in _told(one).lower() for words in USABLE_AFTER)
        for one in _chain(error)
        if not isinstance(one, torch.OutOfMemoryError)
    )


def is_of_gpu(error: BaseException) -> bool:
    """Whether an error is one of either kind, or says that what was on a GPU is lost."""
    return isinstance(error, DeviceLostError) or loses_the_device(error) or spares_the_device(error)


def keep(*what: Any) -> None:
    """Never let go of what a lost GPU may have used, not even at the end of the process.

    Where memory is let go of that several streams or a copy have used, torch records an event, and
    an error of CUDA there ends the process at once.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(what))


def reason(error: BaseException) -> str:
    """The error in a line."""
    *_, first = _chain(error)
    return in_a_line(first)


def in_a_line(error: BaseException) -> str:
    """An error itself, its first line."""
    text = str(error).strip().partition("\n")[0] or "no message"
    return f"{type(error).__name__}: {text[:LONGEST]}"


def _is_of_cuda(error: BaseException) -> bool:
    is_torchs = isinstance(error, torch.AcceleratorError)
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in TOLD_BY_CUDA)
    return is_torchs or said


def _told(error: BaseException) -> str:
    """The line in which CUDA tells it; others are of help, and with frames of torch's code."""
    lines = str(error).splitlines() or [""]
    return next((line for line in lines if any(words in line for words in TOLD_BY_CUDA)), lines[0])


def _is_of_a_launch(error: BaseException) -> bool:
    return any(note.startswith(LAUNCH_NOTE) for note in getattr(error, "__notes__", ()))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__
