"""Stable-Baselines3: NumPy arrays a field; a batch is a tuple of tensors. Draws uniformly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Box
from stable_baselines3.common.buffers import ReplayBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.bench.rows import Rows, Task
    from relive.bench.worker import Operation


class Side:
    """`ReplayBuffer`; n rows in one call are a step of n environments."""

    PACKAGES = ("stable-baselines3", "torch", "numpy")
    SAMPLERS = ("uniform",)

    def setup(self, task: Task, _sampler: str) -> None:
        """Make the buffer and fill it."""
        torch.set_num_threads(1)
        self.task = task
        self.buffer = self._filled(1)

    def close(self) -> None:
        """Drop the buffer."""
        self.buffer = None

    def add(self, operation: Operation) -> Callable[[], Any]:
        """Write one step of as many environments as rows are asked for."""
        count = operation.rows
        buffer = self.buffer if count == 1 else self._filled(count)
        infos: list[dict[str, Any]] = [{}] * count

        def form(rows: dict[str, Any]) -> tuple[Any, ...]:
            if count == 1:
                rows = {name: np.asarray(value)[None] for name, value in rows.items()}
            names = ("obs", "next_obs", "action", "reward", "terminated")
            return (*(rows[name] for name in names), infos)

        add, steps = buffer.add, self.task.steps(count, form)
        return lambda: add(*next(steps))

    def sample(self, operation: Operation) -> Callable[[], Any]:
        """Draw rows."""
        sample, count = self.buffer.sample, operation.rows
        return lambda: sample(count)

    def read_sample(self, batch: Any) -> Rows:
        """A batch by our names."""
        return {
            "obs": batch.observations.numpy(),
            "action": batch.actions.numpy(),
            "reward": batch.rewards.numpy(),
            "next_obs": batch.next_observations.numpy(),
            "terminated": batch.dones.numpy() > 0,
        }

    def _filled(self, num_envs: int) -> Any:
        task = self.task
        high = 255 if task.obs_dtype == np.uint8 else np.inf
        buffer = ReplayBuffer(
            task.capacity,
            Box(0 if high == 255 else -np.inf, high, task.obs_shape, task.obs_dtype.type),
            Box(-np.inf, np.inf, task.action_shape, np.float32),
            device="cpu",
            n_envs=num_envs,
        )
        flat = {
            "obs": buffer.observations,
            "next_obs": buffer.next_observations,
            "action": buffer.actions,
            "reward": buffer.rewards,
            "terminated": buffer.dones,
        }
        start = 0
        size = len(buffer.rewards) * num_envs
        for rows in task.chunks():
            stop = min(start + len(rows["reward"]), size)
            for name, array in flat.items():
                target = array.reshape(size, *array.shape[2:])
                target[start:stop] = rows[name][: stop - start].reshape(
                    stop - start, *target.shape[1:]
                )
            start = stop
        buffer.full = True
        return buffer
