"""Prioritized draws done otherwise, on the same rows: what ours has to be faster than.

    cumsum        prefix sums of all priorities for every batch, then a search in them
    whole tree    a binary tree of float32 sums; an update writes leaves, then computes every level
                  of the whole tree again, which is what torchrl's tree does on CUDA
    torchrl       its own buffer, where it is installed

Rows lie in a tensor for each field and are gathered by `index_select`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.gpu.clock import eager_and_captured
from benchmarks.gpu.workload import W1, Scale, errors, steps

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


class WholeTree:
    """A binary tree in one tensor: the root at 1, leaf i at `size` + i."""

    def __init__(self, rows: Rows, priorities: Tensor, batch: int) -> None:
        self.rows, self.batch = rows, batch
        self.size = 1 << (len(priorities) - 1).bit_length()
        self.tree = torch.zeros(2 * self.size, device=priorities.device)
        self.tree[self.size : self.size + len(priorities)] = priorities
        self.count = len(priorities)
        self.sum_up()

    def sum_up(self) -> None:
        """A launch a level."""
        half = self.size // 2
        while half:
            pairs = self.tree[2 * half : 4 * half].view(half, 2)
            torch.sum(pairs, 1, out=self.tree[half : 2 * half])
            half //= 2

    def step(self, values: Tensor) -> Tensor:
        """Draw, gather, weigh, update; returns the slots drawn."""
        total = self.tree[1:2]
        left_over = torch.rand(self.batch, device=total.device) * total
        node = torch.ones(self.batch, dtype=torch.int64, device=total.device)
        for _ in range(self.size.bit_length() - 1):
            left = self.tree.index_select(0, 2 * node)
            right = left_over >= left
            left_over = torch.where(right, left_over - left, left_over)
            node = 2 * node + right
        slots = (node - self.size).clamp_(max=self.count - 1)
        self.rows.gather(slots)
        drawn = self.tree.index_select(0, node)
        self.weights = (drawn * (self.count / total)) ** -BETA
        self.tree.index_copy_(0, slots + self.size, (values.abs() + EPS) ** ALPHA)
        self.sum_up()
        return slots


def rivals(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Time of sample, gather and update of one batch, by each."""
    found: dict[str, Any] = {"rows": scale.rows, "batch": scale.batch}
    values = errors(scale.batch, device)
    for name, kind in {"cumsum": Cumsum, "whole tree": WholeTree}.items():
        priorities = (errors(scale.rows, device).abs() + EPS) ** ALPHA
        rival = kind(Rows(scale.rows, scale.batch, device), priorities, scale.batch)
        found[name] = medians(lambda step=rival.step: step(values), device, scale)
    try:
        found["torchrl"] = medians(torchrl_step(device, scale), device, scale, capture=False)
    except ImportError as error:
        found["torchrl"] = f"not measured: {error}"
    return found


def torchrl_step(device: torch.device, scale: Scale) -> Callable[[], Any]:
    """A step of torchrl's prioritized buffer with rows on the device.

    Raises:
        ImportError: it is not installed, or does not load beside this torch.
    """
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, ReplayBuffer

    storage = LazyTensorStorage(scale.rows, device=device)
    sampler = PrioritizedSampler(scale.rows, alpha=ALPHA, beta=BETA)
    buffer = ReplayBuffer(storage=storage, sampler=sampler, batch_size=scale.batch)
    for first in range(0, scale.rows, scale.chunk):
        count = min(scale.chunk, scale.rows - first)
        rows = TensorDict(steps(W1, first, count, device), batch_size=[count])
        written = buffer.extend(rows)
        buffer.update_priority(written, errors(count, device, seed=first).abs())
    values = errors(scale.batch, device).abs()

    def step() -> Any:
        batch, info = buffer.sample(return_info=True)
        buffer.update_priority(info["index"], values)
        return batch

    return step


def medians(
    call: Callable[[], Any], device: torch.device, scale: Scale, *, capture: bool = True
) -> dict[str, float]:
    """Eager and captured medians; captured or not at all if that is refused."""
    from benchmarks.gpu.clock import microseconds

    if capture:
        times = eager_and_captured(call, device, rounds=scale.rounds, calls=scale.calls)
        return {name: time["median"] for name, time in times.items()}
    return {"eager": microseconds(call, device, rounds=scale.rounds, calls=scale.calls)["median"]}
