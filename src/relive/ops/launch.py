"""Every Triton kernel starts here, so that a test can see, count and replace launches.

What varies from step to step is read by kernels from device memory: an argument by value would be
frozen when a step is captured in a CUDA graph. Fused multiply-adds are off, so that floating-point
results have the bits of the CPU's.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from relive.gpu.failures import LAUNCH_NOTE

if TYPE_CHECKING:
    from torch import Tensor


class Listener(Protocol):
    """Is told of a launch before it happens."""

    def __call__(
        self, kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], constants: dict[str, Any]
    ) -> None:
        """Notes the launch."""
        ...


class Address(int):
    """Where a tensor begins, for a kernel that is compiled once for all addresses: twice that + 1.

    For a tensor Triton compiles anew if it begins at a multiple of 16, and for a number if it is
    one; this never is. A captured launch keeps it, as it does that of a tensor.

    Attributes:
        tensor: Lives until the launch has happened.
    """

    tensor: Tensor

    @classmethod
    def of(cls, tensor: Tensor) -> Address:
        """Of a tensor."""
        address = cls(2 * tensor.data_ptr() + 1)
        address.tensor = tensor
        return address


def layout_digest() -> int:
    """Of the words: Triton's cache on disk does not see numbers that a kernel takes from there."""
    sources = (Path(__file__).parent / "words.py", Path(__file__).parent.parent / "fields.py")
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    return int.from_bytes(digest.digest()[:4], "big") >> 1


LAYOUT = layout_digest()


class Started(threading.local):
    """How many kernels this thread has started."""

    count = 0


class Launcher:
    """Starts kernels.

    Attributes:
        listeners: Are told of every launch.
        started: Counts launches.
    """

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.started = Started()

    def __call__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        *args: Any,
        warps: int = 4,
        **constants: Any,
    ) -> None:
        """Start `kernel` on a grid of programs; returns at once.

        Args:
            args: Tensors, addresses, and numbers that never change while a buffer lives.
            warps: Of 32 lanes, a program.
            constants: Compiled in.
        """
        for listener in self.listeners:
            listener(kernel, grid, args, constants)
        try:
            kernel[grid](*args, **constants, LAYOUT=LAYOUT, num_warps=warps, enable_fp_fusion=False)
        except Exception as error:  # told apart by this from errors of all else
            error.add_note(LAUNCH_NOTE + getattr(kernel, "__name__", "?"))
            raise
        self.started.count += 1


launch = Launcher()


def blocks(count: int, size: int) -> int:
    """How many blocks of a size cover `count`, at least 1."""
    return max(1, -(-count // size))


def power_of_two(count: int) -> int:
    """The smallest power of two that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()
