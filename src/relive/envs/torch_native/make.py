"""Environments as tensors, by Gymnasium's ids."""

from __future__ import annotations

import torch

from relive.declared import is_whole, plain
from relive.devices import known_device
from relive.envs.torch_native import acrobot, cartpole, mountain_car, pendulum
from relive.envs.torch_native.env import TorchEnv
from relive.errors import ConfigError

TORCH_ENVS = {
    module.TASK.env_id: module.TASK for module in (cartpole, pendulum, acrobot, mountain_car)
}
PREFIX = "torch/"


def torch_id(env_id: str) -> str | None:
    """Gymnasium's name behind `torch/`, where an environment is asked for as tensor code.

    >>> torch_id("torch/CartPole-v1"), torch_id("CartPole-v1")
    ('CartPole-v1', None)

    Raises:
        ConfigError: There is no such tensor code.
    """
    if not env_id.startswith(PREFIX):
        return None
    name = env_id.removeprefix(PREFIX)
    _require_known(name, f"{name} is Gymnasium's, if there is one: leave out {PREFIX}")
    return name


def make_torch_env(
    env_id: str,
    num_envs: int = 1,
    *,
    device: str | torch.device = "cpu",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> TorchEnv:
    """`num_envs` copies of an environment, stepped together in torch operations on `device`.

    Worth it for many copies, or where learning happens on the GPU: a step costs about as much for
    64 copies as for one.

    Args:
        env_id: `CartPole-v1`, `Pendulum-v1`, `Acrobot-v1` or `MountainCarContinuous-v0`.
        num_envs: how many.
        device: "cpu", "cuda" or "cuda:1".
        seed: of the random starts, any 64-bit integer; the same on every device.
        dtype: of state and reward. float64 gives Gymnasium's numbers but for the last bits of a
            sine or cosine; float32 is faster, and a trajectory drifts away from Gymnasium's by its
            rounding. Observations are float32 either way.

    Raises:
        ConfigError: No such environment here, no such dtype, a bad number of copies or seed.
        UnsupportedError: The machine has no such device.
    """
    _require_known(env_id, "make_vector_env makes any environment of Gymnasium")
    num_envs = plain(num_envs)
    if not is_whole(num_envs, 1):
        raise ConfigError(f"num_envs is a whole number >= 1; given {num_envs!r}")
    if dtype not in (torch.float32, torch.float64):
        raise ConfigError(f"dtype is torch.float32 or torch.float64; given {dtype!r}")
    return TorchEnv(
        TORCH_ENVS[env_id], num_envs, device=known_device(device), seed=seed, dtype=dtype
    )


def _require_known(env_id: str, else_: str) -> None:
    if env_id not in TORCH_ENVS:
        raise ConfigError(
            f"{env_id!r} does not exist as tensor code; these do: {', '.join(TORCH_ENVS)}. {else_}"
        )
