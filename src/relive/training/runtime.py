"""The machine a run is on: device, threads, versions."""

from __future__ import annotations

import platform
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import numpy as np
import torch

from relive.devices import known_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relive.training.config import TrainConfig


def buffer_device(config: TrainConfig) -> torch.device:
    """Where the buffer of a run lives."""
    device = config.replay.device
    return resolve_device(config.device if device == "same" else device)


def resolve_device(device: str) -> torch.device:
    """The device of a word; auto is CUDA where there is one, else the CPU.

    Raises:
        UnsupportedError: There is none of that name.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return known_device(device)


@contextmanager
def cpu_settings(threads: int | None) -> Iterator[None]:
    """Threads of PyTorch, and numbers below 1e-38 taken as 0, until the end of the block.

    The moments that Adam keeps for the weights of a silent unit decay into such numbers within a
    thousand updates. A CPU handles them in microcode, and the step of Adam takes three times as
    long.

    Args:
        threads: How many; None leaves the number alone.
    """
    np.finfo(np.float32), np.finfo(np.float64)  # NumPy 1 warns where it is asked first after this
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def versions() -> dict[str, str]:
    """Versions of what the numbers of a run depend on."""
    found = {"python": platform.python_version()}
    for package in ("relive", "torch", "numpy", "numba", "gymnasium"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    found["torch"] = str(torch.__version__)  # with its kind, as +cpu
    return found
