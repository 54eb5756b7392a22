"""torchrl: tensors a field and a tree in C++; a batch is a `TensorDict`.

The C++ part of the wheels up to 0.14.1 needs a symbol that torch 2.13 no longer has, but the tree
does not use it. So symbols are looked up when they are first called, not when it is loaded.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import torch

sys.setdlopenflags(os.RTLD_LAZY)
from tensordict import TensorDict  # noqa: E402 - the flag comes first
from torchrl.data import (  # noqa: E402
    LazyTensorStorage,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.bench.rows import Rows, Task
    from relive.bench.worker import Operation

ALPHA, BETA = 0.6, 0.4


class Side:
    """`ReplayBuffer` on `LazyTensorStorage`; rows come as a `TensorDict` made beforehand."""

    PACKAGES = ("torchrl", "tensordict", "torch")

    def setup(self, task: Task, sampler: str) -> None:
        """Make the buffer and fill it."""
        torch.set_num_threads(1)
        self.task = task
        self.prioritized = sampler == "per"
        weighting: Any = RandomSampler()
        if self.prioritized:
            weighting = PrioritizedSampler(task.capacity, alpha=ALPHA, beta=BETA)
        self.buffer = ReplayBuffer(storage=LazyTensorStorage(task.capacity), sampler=weighting)
        start = 0
        for rows in task.chunks():
            count = len(rows["reward"])
            self.buffer.extend(steps(rows))
            if self.prioritized:
                errors = torch.from_numpy(task.errors(count)).abs()
                self.buffer.update_priority(torch.arange(start, start + count), errors)
            start += count

    def close(self) -> None:
        """Drop the buffer."""
        self.buffer = None

    def add(self, operation: Operation) -> Callable[[], Any]:
        """Write rows."""
        rows = self.task.steps(operation.rows, steps)
        write = self.buffer.add if operation.rows == 1 else self.buffer.extend
        return lambda: write(next(rows))

    def sample(self, operation: Operation) -> Callable[[], Any]:
        """Draw rows."""
        sample, count = self.buffer.sample, operation.rows
        return lambda: sample(count, return_info=True)

    def update(self, operation: Operation) -> Callable[[], Any]:
        """Set priorities."""
        update, count, sample = self.buffer.update_priority, operation.rows, self.buffer.sample
        updates = self.task.updates(
            count,
            lambda drawn, errors: (drawn, torch.from_numpy(errors).abs()),
            lambda: sample(count, return_info=True)[1]["index"],
        )
        return lambda: update(*next(updates))

    def step(self, operation: Operation) -> Callable[[], Any]:
        """Add 1, sample, update."""
        add, sample, update = self.buffer.add, self.buffer.sample, self.buffer.update_priority
        count, rows = operation.rows, self.task.steps(1, steps)
        errors = self.task.updates(count, lambda _, e: torch.from_numpy(e).abs(), lambda: None)

        def call() -> Any:
            add(next(rows))
            batch, info = sample(count, return_info=True)
            update(info["index"], next(errors))
            return batch, info

        return call

    def read_sample(self, result: Any) -> Rows:
        """A batch by our names."""
        batch, info = result
        read = {
            "obs": batch["observation"],
            "action": batch["action"],
            "reward": batch["next", "reward"],
            "next_obs": batch["next", "observation"],
            "terminated": batch["next", "terminated"],
        }
        if self.prioritized:
            read["weights"] = info["priority_weight"]
        return {name: tensor.numpy() for name, tensor in read.items()}

    read_step = read_sample


def steps(rows: dict[str, Any]) -> Any:
    """Rows, or one row, as the environments of torchrl give them."""
    tensors = {name: torch.as_tensor(value) for name, value in rows.items()}
    size = tensors["reward"].shape
    return TensorDict(
        {
            "observation": tensors["obs"],
            "action": tensors["action"],
            "next": {
                "observation": tensors["next_obs"],
                "reward": tensors["reward"].unsqueeze(-1),
                "terminated": tensors["terminated"].unsqueeze(-1),
                "done": tensors["terminated"].unsqueeze(-1),
            },
        },
        size,
    )
