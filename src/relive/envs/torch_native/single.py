"""One environment of tensor code as Gymnasium's are: arrays, numbers, no reset by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from relive.envs.torch_native.env import TorchEnv


class SingleTorchEnv:
    """For greedy episodes where Gymnasium is not installed.

    Args:
        env: One copy, on the CPU.

    Attributes:
        task: What it is a copy of.
        metadata: Empty: it shows nothing.
    """

    def __init__(self, env: TorchEnv) -> None:
        self._env = env
        self.task = env.task
        self.metadata: dict[str, Any] = {}

    @property
    def fields(self) -> dict[str, Any]:
        """As `TorchEnv.fields`."""
        return self._env.fields

    def reset(self, *, seed: int | None = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A new episode, by the seed where one is given: its first observation `[O]`."""
        obs, _ = self._env.reset(seed=seed)
        return obs[0].numpy(), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """A step; where it ends the episode, `reset` comes next."""
        field = self.task.action_field
        given = torch.as_tensor(action, dtype=field.dtype).reshape(1, *field.shape)
        _, reward, terminated, truncated, info = self._env.step(given)
        obs: NDArray[np.float32] = info["final_obs"][0].numpy()
        return obs, reward.item(), bool(terminated), bool(truncated), {}

    def close(self) -> None:
        """Nothing to close; here because other environments have it."""
