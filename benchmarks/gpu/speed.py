"""How fast it is, each figure beside what the memory alone would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu import budget
from benchmarks.gpu.checks import one_step
from benchmarks.gpu.clock import eager_and_captured, microseconds
from benchmarks.gpu.rivals import rivals
from benchmarks.gpu.workload import (
    ONE_BYTE,
    PER,
    STATES,
    UNIFORM,
    W1,
    Scale,
    errors,
    full,
    steps,
)
from relive import ReplayBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.gpu.budget import Budget


def timed(
    call: Callable[[], Any], device: torch.device, scale: Scale, floor: Budget | None = None
) -> dict[str, float]:
    """Medians of a call, what its host takes, and the floor; in microseconds."""
    times = eager_and_captured(call, device, rounds=scale.rounds, calls=scale.calls)
    found = {name: time["median"] for name, time in times.items()}
    found["host"] = times["eager"]["host"]
    if floor is not None:
        found["memory_alone"] = floor.microseconds()
    return found


def prioritized_step(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Sample with gather, update, both, and a whole step with an add, of one batch."""
    buffer = full(W1, scale.rows, PER, device, chunk=scale.chunk)
    size, values = scale.batch, errors(scale.batch, device)
    batch = buffer.sample(size, out=buffer.empty_batch(size))
    ids = batch.ids.clone()

    def sample_and_update() -> None:
        buffer.sample(size, out=batch)
        buffer.update_priorities(batch.ids, values)

    sampled = budget.sample(W1, scale.rows, size, prioritized=True)
    updated = budget.update(scale.rows, size)
    calls: dict[str, tuple[Callable[[], Any], Budget | None]] = {
        "sample": (lambda: buffer.sample(size, out=batch), sampled),
        "update": (lambda: buffer.update_priorities(ids, values), updated),
        "sample and update": (sample_and_update, None),
        "add, sample and update": (one_step(buffer, batch, values, device), None),
    }
    found: dict[str, Any] = {"rows": scale.rows, "batch": size}
    for name, (call, floor) in calls.items():
        found[name] = timed(call, device, scale, floor)
    found["sample into a new batch"] = microseconds(
        lambda: buffer.sample(size), device, rounds=scale.rounds, calls=scale.calls
    )["median"]
    return found


def adds(device: torch.device, scale: Scale) -> dict[str, Any]:
    """A step of 1 and of 64 environments, from device tensors and from arrays of the host."""
    found: dict[str, Any] = {}
    for envs in (1, 64):
        for sampler in (UNIFORM, PER):
            settings = {"autoreset": "next_step"} if envs > 1 else {}
            buffer = ReplayBuffer(
                scale.rows, W1, sampler=sampler, num_envs=envs, device=device, **settings
            )
            step = steps(W1, 0, envs, device)
            step["truncated"] = step["terminated"] & False
            host = {name: value.cpu().numpy() for name, value in step.items()}
            prioritized = buffer.prioritized
            floor = budget.add(W1, scale.rows, envs, prioritized=prioritized, on_device=True)
            found[floor.name] = timed(lambda b=buffer, s=step: b.add(**s), device, scale, floor)
            packed = budget.add(W1, scale.rows, envs, prioritized=prioritized)
            found[f"{packed.name}, from the host"] = microseconds(
                lambda b=buffer, s=host: b.add(**s), device, rounds=scale.rounds, calls=scale.calls
            )["median"]
    return found


def flatness(device: torch.device, scale: Scale) -> dict[str, Any]:
    """The same batch from rings of very different sizes, of rows of one byte."""
    found: dict[str, Any] = {}
    for leaves in scale.leaves:
        buffer = full(ONE_BYTE, leaves, PER, device, chunk=1 << 22)
        batch, values = buffer.empty_batch(scale.batch), errors(scale.batch, device)

        def step(buffer=buffer, batch=batch, values=values) -> None:  # type: ignore[no-untyped-def]
            buffer.sample(scale.batch, out=batch)
            buffer.update_priorities(batch.ids, values)

        found[f"{leaves:.0e}"] = timed(step, device, scale)
        del buffer, batch, step
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return found


def gather(device: torch.device, scale: Scale) -> dict[str, Any]:
    """A batch of very many rows: what it reads and writes a second, beside a plain copy."""
    count = scale.gathered
    buffer = full(W1, scale.rows, UNIFORM, device, chunk=scale.chunk)
    batch = buffer.empty_batch(count)
    floor = budget.sample(W1, scale.rows, count, prioritized=False)
    source = torch.zeros(floor.bytes // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    few = {"rounds": scale.rounds, "calls": max(2, scale.calls // 10)}
    copied = microseconds(lambda: target.copy_(source), device, **few)["median"]
    drawn = microseconds(lambda: buffer.sample(count, out=batch), device, **few)["median"]
    return {
        "rows": count,
        "bytes": floor.bytes,
        "us": {"sample": drawn, "copy of as many bytes": copied},
        "gb_per_s": {"sample": floor.bytes / drawn / 1e3, "copy": floor.bytes / copied / 1e3},
        "share_of_copy": copied / drawn,
    }


def memory(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Bytes of buffers of states of 51 floats, as planned and as the allocator says."""
    found: dict[str, Any] = {}
    for rows in (scale.rows // 10, scale.rows):
        before = allocated(device)
        buffer = ReplayBuffer(rows, STATES, sampler=PER, device=device)
        planned = buffer.memory()
        found[str(rows)] = {
            "planned": planned.total,
            "row_bytes": planned.row_bytes,
            "allocated": allocated(device) - before,
        }
        del buffer
    return found


def allocated(device: torch.device) -> int:
    """Bytes that torch has handed out; 0 on a CPU, which does not count them."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


TIMES: dict[str, Callable[[torch.device, Scale], dict[str, Any]]] = {
    "prioritized step": prioritized_step,
    "add": adds,
    "gather": gather,
    "rivals": rivals,
    "memory": memory,
    "flatness": flatness,
}
