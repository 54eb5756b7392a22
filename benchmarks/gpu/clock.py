"""Time of calls on a device: one by one, and played back as a CUDA graph."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS, CALLS = 15, 50
WARM_UP = 3  # a first call compiles; a graph wants some more


def microseconds(
    call: Callable[[], object], device: torch.device, *, rounds: int = ROUNDS, calls: int = CALLS
) -> dict[str, float]:
    """Time of a call, in rounds of `calls` calls one right after the other.

    Returns:
        "median", "least" and "most" of the rounds, by the clock of the device; "host" is the
        median of what the host spent, which is more where launching takes longer than the work.
    """
    for _ in range(WARM_UP):
        call()
    by_device, by_host = [], []
    for _ in range(rounds):
        synchronize(device)
        began = time.perf_counter()
        if device.type == "cuda":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
        for _ in range(calls):
            call()
        by_host.append((time.perf_counter() - began) / calls * 1e6)
        if device.type == "cuda":
            last.record()
            synchronize(device)
            by_device.append(first.elapsed_time(last) / calls * 1e3)
        else:
            by_device.append(by_host[-1])
    return {
        "median": median(by_device),
        "least": min(by_device),
        "most": max(by_device),
        "host": median(by_host),
    }


def eager_and_captured(
    call: Callable[[], object], device: torch.device, *, rounds: int = ROUNDS, calls: int = CALLS
) -> dict[str, dict[str, float]]:
    """Both ways; on a CPU only the first."""
    found = {"eager": microseconds(call, device, rounds=rounds, calls=calls)}
    if device.type == "cuda":
        graph = captured(call)
        found["graph"] = microseconds(graph.replay, device, rounds=rounds, calls=calls)
    return found


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A call as a graph, after a few calls on the side, as torch asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
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
