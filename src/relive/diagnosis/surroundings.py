"""What there is: devices and their kernels, packages, threads, memory, the cache of kernels."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from relive.buffer import ReplayBuffer
from relive.errors import UnsupportedError
from relive.fields import Field
from relive.ops.dispatch import operations
from relive.sampling import Proportional
from relive.storage.memory import free_memory, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUIRED = ("relive", "torch", "numpy", "numba")
EXTRA_OF = {
    "gymnasium": "gym",
    "tyro": "train",
    "rich": "train",
    "safetensors": "train",
    "tensorboard": "tensorboard",
    "matplotlib": "report",
    "triton": "triton",
}
STANDARD_ROW = {"obs": Field((17,)), "action": Field((6,))}
NAMES = {"cpu": "Numba, compiled for this processor", "cuda": "Triton", "reference": "plain torch"}
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device, the kernels that a buffer on it runs, and why not others.

    Attributes:
        device: As PyTorch calls it.
        name: Of the processor, or graphics card.
        kernels: What runs; None if a buffer cannot live there.
        why: Why these, or why none.
    """

    device: str
    name: str
    kernels: str | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Where compiled kernels are kept.

    Attributes:
        folder: None if there is nowhere to write.
        loaded: Kernels that were there.
        compiled: Kernels that had to be compiled now.
        seconds: How long either took.
    """

    folder: str | None
    loaded: int
    compiled: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What can be had.

    Attributes:
        free: Bytes; None if the system does not say.
        row_bytes: Of a standard row, 17 + 17 + 6 floats.
        most_rows: How many of them fit, with priorities.
        huge_pages: Whether the ring of a buffer lay in huge pages just now; None if not known.
        huge_pages_why: What the system says about them.
    """

    free: int | None
    row_bytes: int
    most_rows: int | None
    huge_pages: bool | None
    huge_pages_why: str


def devices() -> list[Device]:
    """The CPU, and the CUDA devices that this PyTorch can use."""
    known = [_device("cpu", processor())]
    if torch.cuda.is_available():
        names = (torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
        return known + [_device(f"cuda:{number}", name) for number, name in enumerate(names)]
    why = (
        "this PyTorch was built without CUDA"
        if torch.version.cuda is None
        else f"PyTorch has CUDA {torch.version.cuda}, but finds no device or driver"
    )
    return [*known, Device(device="cuda", name="none", kernels=None, why=why)]


def _device(name: str, known_as: str) -> Device:
    device = torch.device(name)
    try:
        kernels = operations(device).sample.__module__.rpartition(".")[2]
    except UnsupportedError as error:
        return Device(device=name, name=known_as, kernels=None, why=str(error))
    triton = "" if found("triton") else "; Triton is not installed"
    why = f"the fastest for {device.type}" + (triton if device.type == "cuda" else "")
    return Device(device=name, name=known_as, kernels=NAMES.get(kernels, kernels), why=why)


def versions() -> dict[str, str | None]:
    """Version of each package, None for one that is not installed; Python's first."""
    packages = (*REQUIRED, *EXTRA_OF)
    return {"python": platform.python_version(), **{name: found(name) for name in packages}}


def found(package: str) -> str | None:
    """The version of a package, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def missing() -> dict[str, str]:
    """Package that is not installed, and of use here, to the command that installs it."""
    unneeded = set() if torch.cuda.is_available() else {"triton"}
    return {
        name: f"pip install 'relive[{extra}]'"
        for name, extra in EXTRA_OF.items()
        if found(name) is None and name not in unneeded
    }


def threads() -> dict[str, int | float | None]:
    """Cores of the machine, those this process may use, and threads of PyTorch."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "cores": os.cpu_count(),
        "allowed": allowed,
        "quota": _quota(),
        "torch_threads": torch.get_num_threads(),
    }


def memory() -> Memory:
    """Free memory, how many standard rows fit, and whether a ring lies in huge pages."""
    free = free_memory("cpu")
    needed = plan(1_000_000, STANDARD_ROW, sampler=Proportional())
    huge, why = _huge_pages()
    return Memory(
        free=free,
        row_bytes=needed.row_bytes,
        most_rows=None if free is None else needed.largest_capacity(free),
        huge_pages=huge,
        huge_pages_why=why,
    )


def cache(seconds: float) -> Cache:
    """The cache of kernels, once they have been compiled or loaded in `seconds`."""
    stats = list(_cached_kernels())
    folders = [one.cache_path for one in stats]
    return Cache(
        folder=os.path.commonpath(folders) if folders else None,
        loaded=sum(sum(one.cache_hits.values()) for one in stats),
        compiled=sum(sum(one.cache_misses.values()) for one in stats),
        seconds=seconds,
    )


def processor() -> str:
    """What the processor is called."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _cached_kernels() -> Iterator[Any]:
    """The statistics that Numba keeps of each kernel with a cache on disk."""
    seen = set()
    for name, module in list(sys.modules.items()):
        if name.startswith("relive.ops.") and name.endswith(".cpu"):
            for kernel in vars(module).values():
                stats = getattr(kernel, "stats", None)
                if getattr(stats, "cache_path", None) and id(kernel) not in seen:
                    seen.add(id(kernel))
                    yield stats


def _quota() -> float | None:
    """Cores that the control group of this process allows; None if it does not limit them."""
    try:
        most, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
        return int(most) / int(period)
    except (OSError, ValueError):  # no group, or "max"
        return None


def _huge_pages() -> tuple[bool | None, str]:
    """Whether a ring that is made now lies in huge pages, and what the system says about them."""
    try:
        words = HUGE_PAGES.read_text(encoding="utf-8")
        setting = words[words.index("[") + 1 : words.index("]")]
    except (OSError, ValueError):
        return None, f"the system does not say ({HUGE_PAGES})"
    before = _bytes_in_huge_pages()
    buffer = ReplayBuffer(100_000, STANDARD_ROW, kernels="reference")
    after = _bytes_in_huge_pages()
    if before is None or after is None:
        return None, f"the system's setting is {setting}"
    used = after - before > buffer.memory().rows / 2
    return used, f"the system's setting is {setting}"


def _bytes_in_huge_pages() -> int | None:
    try:
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
        line = next(line for line in lines if line.startswith("AnonHugePages"))
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, StopIteration):
        return None
