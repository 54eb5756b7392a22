"""Agents: they know `Batch`, never the buffer, and hand back one error a row."""

from relive.agents.c51 import C51, C51Config
from relive.agents.ddpg import DDPG, DDPGConfig
from relive.agents.dqn import DQN, DQNConfig
from relive.agents.export import export_policy
from relive.agents.policy import load_policy, save_policy
from relive.agents.sac import SAC, SACConfig
from relive.agents.td3 import TD3, TD3Config
from relive.agents.update import UpdateResult
from relive.nn.action_scale import ActionScale

__all__ = [
    "C51",
    "C51Config",
    "DDPG",
    "DDPGConfig",
    "DQN",
    "DQNConfig",
    "SAC",
    "SACConfig",
    "TD3",
    "TD3Config",
    "UpdateResult",
    "ActionScale",
    "export_policy",
    "load_policy",
    "save_policy",
]
