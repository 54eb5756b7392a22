"""How fast it is to draw and to update, each figure beside what the memory alone would take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu import budget
from benchmarks.gpu.checks import one_step
from benchmarks.gpu.clock import eager_and_captured, microseconds
from benchmarks.gpu.workload import ONE_BYTE, PER, STATES, UNIFORM, W1, Scale, errors, full
from relive import ReplayBuffer, plan
from relive.storage.memory import free_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.gpu.budget import Budget


def timed(
    call: Callable[[], Any], device: torch.device, scale: Scale, floor: Budget | None = None
) -> dict[str, float]:
    """Medians of a call, what its host takes, and the floor; in microseconds."""
    times = eager_and_captured(call, device, scale)
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
    sampled = budget.sample(W1, scale.rows, size, prioritized=True)
    updated = budget.update(scale.rows, size)
    calls: dict[str, tuple[Callable[[], Any], Budget | None]] = {
        "sample": (lambda: buffer.sample(size, out=batch), sampled),
        "update": (lambda: buffer.update_priorities(ids, values), updated),
        "sample and update": (sample_and_update(buffer, size, device), None),
        "add, sample and update": (one_step(buffer, batch, values, device), None),
    }
    found: dict[str, Any] = {"rows": scale.rows, "batch": size}
    for name, (call, floor) in calls.items():
        found[name] = timed(call, device, scale, floor)
    found["sample into a new batch"] = microseconds(lambda: buffer.sample(size), device, scale)[
        "median"
    ]
    return found


def sample_and_update(
    buffer: ReplayBuffer, size: int, device: torch.device
) -> Callable[[], object]:
    """Draw a batch into memory that is used again, and give its rows new priorities."""
    batch, values = buffer.empty_batch(size), errors(size, device)

    def step() -> None:
        buffer.sample(size, out=batch)
        buffer.update_priorities(batch.ids, values)

    return step


def flatness(device: torch.device, scale: Scale) -> dict[str, Any]:
    """The same batch from rings of very different sizes, of rows of one byte."""
    found: dict[str, Any] = {"us": {}, "left_out": {}}
    for leaves in scale.leaves:
        name = f"{leaves:.0e}"
        reason = no_room(leaves, device)
        if reason:
            found["left_out"][name] = reason
            continue
        buffer = full(ONE_BYTE, leaves, PER, device, chunk=1 << 22)
        found["us"][name] = timed(sample_and_update(buffer, scale.batch, device), device, scale)
        del buffer
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return found


def no_room(leaves: int, device: torch.device) -> str | None:
    """Why a ring of so many rows is left out: it would take more than half of what is free."""
    needed = plan(leaves, ONE_BYTE, sampler=PER, device=device.type).on_device
    free = free_memory(device)
    if free is None or 2 * needed <= free:
        return None
    return f"needs {needed / 1e9:.1f} GB; {free / 1e9:.1f} GB are free"


def gather(device: torch.device, scale: Scale) -> dict[str, Any]:
    """A batch of very many rows: what it reads and writes a second, beside a plain copy."""
    count = scale.gathered
    buffer = full(W1, scale.rows, UNIFORM, device, chunk=scale.chunk)
    batch = buffer.empty_batch(count)
    floor = budget.sample(W1, scale.rows, count, prioritized=False)
    source = torch.zeros(floor.bytes // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    few = replace(scale, calls=max(1, scale.calls // 10))
    copied = microseconds(lambda: target.copy_(source), device, few)["median"]
    drawn = microseconds(lambda: buffer.sample(count, out=batch), device, few)["median"]
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
            "planned": planned.on_device,
            "row_bytes": planned.row_bytes,
            "allocated": allocated(device) - before,
        }
        del buffer
    return found


def allocated(device: torch.device) -> int:
    """Bytes that torch has handed out; 0 on a CPU, which does not count them."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


SPEED: dict[str, Callable[[torch.device, Scale], dict[str, Any]]] = {
    "prioritized step": prioritized_step,
    "gather": gather,
    "memory": memory,
    "flatness": flatness,
}
