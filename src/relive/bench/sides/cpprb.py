"""cpprb: C++ and Cython; a batch is a dict of NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cpprb
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.bench.rows import Rows, Task
    from relive.bench.worker import Operation

ALPHA, BETA = 0.6, 0.4
NAMES = {"act": "action", "rew": "reward", "done": "terminated"}


class Side:
    """`ReplayBuffer` and `PrioritizedReplayBuffer`; several rows are added in one call."""

    PACKAGES = ("cpprb", "numpy")

    def setup(self, task: Task, sampler: str) -> None:
        """Make the buffer and fill it."""
        fields = {
            "obs": {"shape": task.obs_shape, "dtype": task.obs_dtype},
            "act": {"shape": task.action_shape},
            "rew": {},
            "next_obs": {"shape": task.obs_shape, "dtype": task.obs_dtype},
            "done": {},
        }
        self.task = task
        self.prioritized = sampler == "per"
        if self.prioritized:
            self.buffer = cpprb.PrioritizedReplayBuffer(task.capacity, fields, alpha=ALPHA)
        else:
            self.buffer = cpprb.ReplayBuffer(task.capacity, fields)
        start = 0
        for rows in task.chunks():
            self.buffer.add(**named(rows))
            count = len(rows["reward"])
            if self.prioritized:
                self.buffer.update_priorities(
                    np.arange(start, start + count), np.abs(task.errors(count))
                )
            start += count

    def close(self) -> None:
        """Drop the buffer."""
        self.buffer = None

    def add(self, operation: Operation) -> Callable[[], Any]:
        """Write rows."""
        add, rows = self.buffer.add, self.task.steps(operation.rows, named)
        return lambda: add(**next(rows))

    def sample(self, operation: Operation) -> Callable[[], Any]:
        """Draw rows."""
        sample, count = self.buffer.sample, operation.rows
        if self.prioritized:
            return lambda: sample(count, beta=BETA)
        return lambda: sample(count)

    def update(self, operation: Operation) -> Callable[[], Any]:
        """Set priorities."""

        def draw() -> Any:
            return self.buffer.sample(operation.rows)["indexes"]

        def form(drawn: Any, errors: Any) -> tuple[Any, Any]:
            return drawn, np.abs(errors)

        update = self.buffer.update_priorities
        updates = self.task.updates(operation.rows, form, draw)
        return lambda: update(*next(updates))

    def step(self, operation: Operation) -> Callable[[], Any]:
        """Add 1, sample, update."""
        add, sample, update = self.buffer.add, self.buffer.sample, self.buffer.update_priorities
        count, rows = operation.rows, self.task.steps(1, named)
        errors = self.task.updates(count, lambda _, errors: np.abs(errors), lambda: None)

        def call() -> Any:
            add(**next(rows))
            batch = sample(count, beta=BETA)
            update(batch["indexes"], next(errors))
            return batch

        return call

    def read_sample(self, batch: Any) -> Rows:
        """A batch by our names."""
        return {NAMES.get(name, name): batch[name] for name in batch if name != "indexes"}

    read_step = read_sample


def named(rows: dict[str, Any]) -> dict[str, Any]:
    """Rows as arguments of `add`."""
    return {
        "obs": rows["obs"],
        "act": rows["action"],
        "rew": rows["reward"],
        "next_obs": rows["next_obs"],
        "done": rows["terminated"],
    }
