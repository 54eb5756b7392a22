"""How fast it is to write, and to bring rows and batches from the memory of the host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.gpu import budget
from benchmarks.gpu.checks import CPU
from benchmarks.gpu.clock import microseconds
from benchmarks.gpu.speed import sample_and_update, timed
from benchmarks.gpu.workload import PER, UNIFORM, W1, Scale, full, one_time, steps
from relive import RankBased, ReplayBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

    from relive.sampling import Sampler


def on_host(values: dict[str, Tensor]) -> dict[str, Any]:
    """The same as arrays of the host."""
    return {name: value.cpu().numpy() for name, value in values.items()}


def ring(scale: Scale, sampler: Sampler, envs: int, device: torch.device) -> ReplayBuffer:
    """An empty one for so many environments."""
    settings: dict[str, Any] = {"num_envs": envs, "autoreset": "next_step"} if envs > 1 else {}
    return ReplayBuffer(max(scale.rows, envs), W1, sampler=sampler, device=device, **settings)


def adds(device: torch.device, scale: Scale) -> dict[str, Any]:
    """A step of 1, 64 and 4096 environments, from device tensors and from arrays of the host."""
    found: dict[str, Any] = {}
    for envs in scale.envs:
        step = one_time(W1, 0, envs, device)
        host = on_host(step)
        for sampler in (UNIFORM, PER):
            buffer = ring(scale, sampler, envs, device)
            prioritized = buffer.prioritized
            floor = budget.add(W1, scale.rows, envs, prioritized=prioritized, on_device=True)
            found[floor.name] = timed(lambda b=buffer, s=step: b.add(**s), device, scale, floor)
            packed = budget.add(W1, scale.rows, envs, prioritized=prioritized)
            found[f"{packed.name}, from the host"] = one_by_one(
                lambda b=buffer, s=host: b.add(**s), device, scale
            )
    return found


def extends(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Many steps in one call, of one stream, from device tensors and from arrays of the host."""
    stream = steps(W1, 0, scale.stream, device)
    host = on_host(stream)
    few = replace(scale, calls=max(1, scale.calls // 10))
    buffer = ring(scale, PER, 1, device)
    return {
        "steps": scale.stream,
        "from tensors": one_by_one(lambda: buffer.extend(**stream), device, few),
        "from the host": one_by_one(lambda: buffer.extend(**host), device, few),
    }


def one_by_one(call: Callable[[], Any], device: torch.device, scale: Scale) -> dict[str, float]:
    """Median of a call that cannot be captured, and what its host takes."""
    times = microseconds(call, device, scale)
    return {"eager": times["median"], "host": times["host"]}


def rows_on_host(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Sample and update with rows in pinned memory of the host, which a GPU reads by itself."""
    settings = {"rows_on": "host"} if device.type == "cuda" else {}
    buffer = full(W1, scale.rows, PER, device, chunk=scale.chunk, **settings)
    nbytes = scale.batch * buffer.memory().row_bytes
    times = timed(sample_and_update(buffer, scale.batch, device), device, scale)
    return {"rows": scale.rows, "batch": scale.batch, "bytes_over_the_bus": nbytes, "us": times}


def from_ram(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Batches of a buffer in RAM, sent when they are asked for, or ahead of that."""
    buffer = full(W1, scale.rows, PER, CPU, chunk=scale.chunk)
    size, batches = scale.batch, buffer.batches(scale.batch, ahead=1, device=device)
    return {
        "sample, device": one_by_one(lambda: buffer.sample(size, device=device), device, scale),
        "one batch ahead": one_by_one(lambda: next(batches), device, scale),
    }


def sorts(device: torch.device, scale: Scale) -> dict[str, Any]:
    """A sort of all rows by rank, and the batches in between."""
    sampler = RankBased(resort_every=1 << 30)
    buffer = full(W1, scale.rows, sampler, device, chunk=scale.chunk)
    few = replace(scale, calls=max(1, scale.calls // 10))
    return {
        "rows": scale.rows,
        "sort": one_by_one(buffer.resort, device, few),
        "sample and update": timed(sample_and_update(buffer, scale.batch, device), device, scale),
    }


TRAFFIC: dict[str, Callable[[torch.device, Scale], dict[str, Any]]] = {
    "add": adds,
    "extend": extends,
    "rows on the host": rows_on_host,
    "from RAM": from_ram,
    "sort": sorts,
}
