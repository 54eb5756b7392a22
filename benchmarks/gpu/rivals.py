"""Prioritized draws done otherwise, on the same rows: what ours has to be faster than.

    cumsum            prefix sums of all priorities for every batch, then a search in them
    torchrl, rebuilt  its two trees and its steps, without what its Python costs
    torchrl           its own buffer, where it is installed with its trees for CUDA

Rows lie in a tensor for each field and are gathered by `index_select`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.gpu.clock import eager_and_captured, microseconds
from benchmarks.gpu.speed import sample_and_update
from benchmarks.gpu.workload import PER, W1, Scale, errors, full, steps

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHA, BETA, EPS = 0.6, 0.4, 1e-6


class Rows:
    """A tensor for each field."""

    def __init__(self, count: int, batch: int, device: torch.device) -> None:
        rows = steps(W1, 0, count, device)
        self.fields = {name: value.view(count, -1).contiguous() for name, value in rows.items()}
        self.out = {
            name: torch.empty(batch, field.shape[1], dtype=field.dtype, device=device)
            for name, field in self.fields.items()
        }

    def gather(self, slots: Tensor) -> None:
        """One launch a field."""
        for name, field in self.fields.items():
            torch.index_select(field, 0, slots, out=self.out[name])


class Cumsum:
    """No tree: every batch sums all priorities."""

    def __init__(self, rows: Rows, priorities: Tensor, batch: int) -> None:
        self.rows, self.priorities, self.batch = rows, priorities, batch

    def step(self, values: Tensor) -> Tensor:
        """Draw, gather, weigh, update; returns the slots drawn."""
        until = torch.cumsum(self.priorities, 0, dtype=torch.float64)
        u = torch.rand(self.batch, device=until.device, dtype=torch.float64)
        slots = torch.searchsorted(until, u * until[-1], right=True)
        slots = slots.clamp_(max=len(until) - 1)
        self.rows.gather(slots)
        drawn = self.priorities.index_select(0, slots)
        self.weights = (drawn * (len(until) / until[-1])).float() ** -BETA
        self.priorities.index_copy_(0, slots, (values.abs() + EPS) ** ALPHA)
        return slots


class Rebuilt:
    """The steps of torchrl's `PrioritizedSampler` on CUDA, but for its masks, which wait."""

    def __init__(self, rows: Rows, priorities: Tensor, batch: int) -> None:
        from benchmarks.gpu.segment_tree import SegmentTree

        self.rows, self.batch, self.count = rows, batch, len(priorities)
        device = priorities.device
        self.sums, self.least = (
            SegmentTree(self.count, device, is_least=least) for least in (False, True)
        )
        for tree in (self.sums, self.least):
            tree.tree[tree.capacity : tree.capacity + self.count] = priorities
            tree.update(torch.zeros(1, dtype=torch.int64, device=device), priorities[:1])
        self.largest = torch.ones((), device=device)

    def step(self, values: Tensor) -> Tensor:
        """Draw, gather, weigh, update; returns the slots drawn."""
        ends = torch.zeros(2, dtype=torch.int64, device=values.device)
        ends[1:].fill_(self.count)
        total, least = self.sums.query(ends), self.least.query(ends)
        slots = self.sums.find(torch.rand(self.batch, device=values.device) * total)
        slots.clamp_max_(self.count - 1)
        self.weights = torch.pow(self.sums.at(slots) / least, -BETA)
        self.rows.gather(slots)
        torch.maximum(values.abs().max(), self.largest, out=self.largest)
        priorities = torch.pow(values.abs() + EPS, ALPHA)
        self.sums.update(slots, priorities)
        self.least.update(slots, priorities)
        return slots


def rivals(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Time of sample, gather and update of one batch, by each and by ours."""
    return {f"{rows:.0e}": _beside(rows, device, scale) for rows in scale.rivals}


def _beside(rows: int, device: torch.device, scale: Scale) -> dict[str, Any]:
    """Of rings of so many rows."""
    values = errors(scale.batch, device)
    buffer = full(W1, rows, PER, device, chunk=scale.chunk)
    found = {"ours": medians(sample_and_update(buffer, scale.batch, device), device, scale)}
    kinds: dict[str, Any] = {"cumsum": Cumsum}
    if device.type == "cuda":
        kinds["torchrl, rebuilt"] = Rebuilt
    for name, kind in kinds.items():
        priorities = (errors(rows, device).abs() + EPS) ** ALPHA
        rival = kind(Rows(rows, scale.batch, device), priorities, scale.batch)
        found[name] = medians(lambda step=rival.step: step(values), device, scale)
    found["torchrl"] = _torchrl(rows, device, scale)
    return found


def medians(call: Callable[[], Any], device: torch.device, scale: Scale) -> dict[str, float]:
    """One by one and captured."""
    times = eager_and_captured(call, device, scale)
    return {name: time["median"] for name, time in times.items()}


def _torchrl(rows: int, device: torch.device, scale: Scale) -> dict[str, Any]:
    """One by one only: it waits for the device. Or why it was not measured."""
    try:
        step = torchrl_step(rows, device, scale)
    except (ImportError, RuntimeError) as error:
        return {"not_measured": f"{type(error).__name__}: {error}"}
    return {"eager": microseconds(step, device, scale)["median"]}


def torchrl_step(rows: int, device: torch.device, scale: Scale) -> Callable[[], Any]:
    """A step of torchrl's prioritized buffer with rows on the device.

    Raises:
        ImportError: it is not installed, or does not load beside this torch.
        RuntimeError: it is not built for CUDA.
    """
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, ReplayBuffer

    storage = LazyTensorStorage(rows, device=device)
    sampler = PrioritizedSampler(rows, alpha=ALPHA, beta=BETA)
    buffer = ReplayBuffer(storage=storage, sampler=sampler, batch_size=scale.batch)
    for first in range(0, rows, scale.chunk):
        count = min(scale.chunk, rows - first)
        written = buffer.extend(TensorDict(steps(W1, first, count, device), batch_size=[count]))
        buffer.update_priority(written, errors(count, device, seed=first).abs())
    values = errors(scale.batch, device).abs()

    def step() -> Any:
        batch, info = buffer.sample(return_info=True)
        buffer.update_priority(info["index"], values)
        return batch

    return step
