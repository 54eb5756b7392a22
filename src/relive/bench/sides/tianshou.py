"""tianshou: NumPy arrays a field and a tree in Numba; a batch is a `Batch` of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tianshou.data import (
    Batch,
    PrioritizedReplayBuffer,
    PrioritizedVectorReplayBuffer,
    ReplayBuffer,
    VectorReplayBuffer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.bench.rows import Rows, Task
    from relive.bench.worker import Operation

ALPHA, BETA = 0.6, 0.4
NAMES = {"obs": "obs", "act": "action", "rew": "reward", "obs_next": "next_obs"}
NAMES |= {"terminated": "terminated", "truncated": "truncated", "weight": "weights"}


class Side:
    """`ReplayBuffer` and `PrioritizedReplayBuffer`; n rows a call: n lanes of a vector buffer."""

    PACKAGES = ("tianshou", "torch", "numpy", "numba")

    def setup(self, task: Task, sampler: str) -> None:
        """Make the buffer and fill it."""
        torch.set_num_threads(1)
        self.task = task
        self.prioritized = sampler == "per"
        if self.prioritized:
            self.buffer = PrioritizedReplayBuffer(task.capacity, alpha=ALPHA, beta=BETA)
        else:
            self.buffer = ReplayBuffer(task.capacity)
        self.buffer.add(step(next(task.steps(1, dict))))  # makes its arrays
        start = 0
        for rows in task.chunks():
            count = len(rows["reward"])
            for theirs, ours in NAMES.items():
                if ours in rows:
                    self.buffer._meta[theirs][start : start + count] = rows[ours]
            self.buffer._meta["done"][start : start + count] = rows["terminated"]
            if self.prioritized:
                self.buffer.update_weight(np.arange(start, start + count), task.errors(count))
            start += count
        self.buffer._size = task.capacity

    def close(self) -> None:
        """Drop the buffer."""
        self.buffer = None

    def add(self, operation: Operation) -> Callable[[], Any]:
        """Write one step of as many environments as rows are asked for."""
        count, buffer, steps = operation.rows, self.buffer, self.task.steps(operation.rows, step)
        if count == 1:
            return lambda: buffer.add(next(steps))
        lanes = np.arange(count)
        if self.prioritized:
            many = PrioritizedVectorReplayBuffer(self.task.capacity, count, alpha=ALPHA, beta=BETA)
        else:
            many = VectorReplayBuffer(self.task.capacity, count)
        many.add(next(steps), buffer_ids=lanes)  # makes its arrays
        for array in many._meta.values():
            if isinstance(array, np.ndarray) and array.dtype != object:
                array.fill(1)  # touches them
        return lambda: many.add(next(steps), buffer_ids=lanes)

    def sample(self, operation: Operation) -> Callable[[], Any]:
        """Draw rows."""
        sample, count = self.buffer.sample, operation.rows
        return lambda: sample(count)

    def update(self, operation: Operation) -> Callable[[], Any]:
        """Set priorities."""
        update = self.buffer.update_weight
        updates = self.task.updates(
            operation.rows,
            lambda drawn, errors: (drawn, errors),
            lambda: self.buffer.sample_indices(operation.rows),
        )
        return lambda: update(*next(updates))

    def step(self, operation: Operation) -> Callable[[], Any]:
        """Add 1, sample, update."""
        add, sample, update = self.buffer.add, self.buffer.sample, self.buffer.update_weight
        count, steps = operation.rows, self.task.steps(1, step)
        errors = self.task.updates(count, lambda _, errors: errors, lambda: None)

        def call() -> Any:
            add(next(steps))
            batch, drawn = sample(count)
            update(drawn, next(errors))
            return batch, drawn

        return call

    def read_sample(self, result: Any) -> Rows:
        """A batch by our names."""
        batch, _ = result
        return {ours: batch[name] for name, ours in NAMES.items() if name in batch.get_keys()}

    read_step = read_sample


def step(row: dict[str, Any]) -> Any:
    """One row as `add` takes it."""
    named = {theirs: row[ours] for theirs, ours in NAMES.items() if ours in row}
    info: Any = {} if np.ndim(row["reward"]) == 0 else np.array([{}] * len(row["reward"]))
    return Batch(**named, info=info)
