"""Time of calls on a device: one by one, and played back as a CUDA graph."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.gpu.workload import Scale


def microseconds(
    call: Callable[[], object], device: torch.device, scale: Scale
) -> dict[str, float]:
    """Time of a call, in `scale.rounds` rounds of `scale.calls` calls one right after the other.

    Returns:
        "median", "least" and "most" of the rounds, by the clock of the device; "host" is the
        median of what the host spent, which is more where launching takes longer than the work.
    """
    for _ in range(scale.warm_up):
        call()
    by_device, by_host = [], []
    for _ in range(scale.rounds):
        synchronize(device)
        began = time.perf_counter()
        if device.type == "cuda":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
        for _ in range(scale.calls):
            call()
        by_host.append((time.perf_counter() - began) / scale.calls * 1e6)
        if device.type == "cuda":
            last.record()
            synchronize(device)
            by_device.append(first.elapsed_time(last) / scale.calls * 1e3)
        else:
            by_device.append(by_host[-1])
    return {
        "median": median(by_device),
        "least": min(by_device),
        "most": max(by_device),
        "host": median(by_host),
    }


def eager_and_captured(
    call: Callable[[], object], device: torch.device, scale: Scale
) -> dict[str, dict[str, float]]:
    """Both ways; on a CPU only the first."""
    found = {"eager": microseconds(call, device, scale)}
    if device.type == "cuda":
        found["graph"] = microseconds(captured(call, scale).replay, device, scale)
    return found


def captured(call: Callable[[], object], scale: Scale) -> torch.cuda.CUDAGraph:
    """A call as a graph, after `scale.warm_up` calls on the side, as torch asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(scale.warm_up):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
