"""Environments to act in: Gymnasium's, and some of them as tensor code that runs on any device.

Importing this needs nothing; making one of Gymnasium's needs Gymnasium.
"""

from relive.envs.make import action_scale, make_env, make_vector_env, num_actions
from relive.envs.torch_native import TORCH_ENVS, TorchEnv, make_torch_env

__all__ = [
    "make_env",
    "make_vector_env",
    "num_actions",
    "action_scale",
    "make_torch_env",
    "TorchEnv",
    "TORCH_ENVS",
]
