"""Classic control as batched tensor code: every environment in one call, on any device."""

from relive.envs.torch_native.env import TorchEnv
from relive.envs.torch_native.make import TORCH_ENVS, make_torch_env

__all__ = ["TORCH_ENVS", "TorchEnv", "make_torch_env"]
