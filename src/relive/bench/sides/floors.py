"""What no replay buffer does without: memory copied, rows taken, sums searched."""

from __future__ import annotations

import timeit
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from relive.bench.rows import Task
    from relive.bench.worker import Operation

CALLS = 2**18  # rows drawn beforehand


class Side:
    """One array of packed rows: observation, next observation and action, reward, two flags."""

    PACKAGES = ("torch", "numpy")

    packed: NDArray[Any]
    leaves: NDArray[np.float32]

    def setup(self, task: Task, sampler: str) -> None:
        """Make the array of rows, and one of priorities."""
        torch.set_num_threads(1)
        self.task = task
        self.rng = np.random.default_rng(1)
        if sampler == "per":
            self.leaves = np.abs(task.errors(task.capacity))
        size = int(np.prod(task.obs_shape))
        numbers = int(np.prod(task.action_shape)) + 2  # reward and flags
        if task.obs_dtype == np.float32:
            width = 2 * size + numbers
        else:
            width = -(-(2 * size + 4 * numbers) // 16) * 16
        self.packed = np.ones((task.capacity, width), dtype=task.obs_dtype)

    def close(self) -> None:
        """Drop the arrays."""
        self.packed = np.empty((0, 0), dtype=np.uint8)
        self.leaves = np.empty(0, dtype=np.float32)

    def copy(self, operation: Operation) -> Callable[[], Any]:
        """The bytes of a batch, from random rows that were drawn before, into the same memory.

        By `torch.index_select` or `np.take`, whichever is faster here.
        """
        count, rows = operation.rows, self.packed
        out = np.empty((count, rows.shape[1]), dtype=rows.dtype)
        draws = self.rng.integers(0, len(rows), (max(2, CALLS // count), count))
        tensor, into = torch.from_numpy(rows), torch.from_numpy(out)
        arrays = self.task.endless(list(draws))
        tensors = self.task.endless(list(torch.from_numpy(draws)))
        ways: tuple[Callable[[], Any], ...] = (
            lambda: torch.index_select(tensor, 0, next(tensors), out=into),
            lambda: np.take(rows, next(arrays), axis=0, out=out, mode="clip"),
        )
        return min(ways, key=lambda way: min(timeit.repeat(way, number=max(1, 2**12 // count))))

    def convert(self, operation: Operation) -> Callable[[], Any]:
        """The bytes of a batch, copied as above, then k/255 of all of them as float32."""
        count = operation.rows
        rows = torch.from_numpy(self.packed)
        draws = self.rng.integers(0, len(rows), (max(2, CALLS // count), count))
        tensors = self.task.endless(list(torch.from_numpy(draws)))
        out = torch.empty((count, rows.shape[1]), dtype=rows.dtype)
        floats = torch.empty(out.shape)

        def call() -> Any:
            torch.index_select(rows, 0, next(tensors), out=out)
            return torch.mul(out, 1 / 255, out=floats)

        return call

    def take(self, operation: Operation) -> Callable[[], Any]:
        """Draw rows, one `np.take`."""
        count, rows, draw = operation.rows, self.packed, self.rng.integers
        out = np.empty((count, rows.shape[1]), dtype=rows.dtype)
        capacity = len(rows)
        return lambda: np.take(rows, draw(0, capacity, count), axis=0, out=out, mode="clip")

    def search(self, operation: Operation) -> Callable[[], Any]:
        """Sum all priorities, search: prioritized draws without a tree."""
        count, leaves, random = operation.rows, self.leaves, self.rng.random
        out = np.empty(len(leaves), dtype=np.float64)

        def call() -> Any:
            sums = np.cumsum(leaves, dtype=np.float64, out=out)
            return np.searchsorted(sums, random(count) * sums[-1], side="right")

        return call
