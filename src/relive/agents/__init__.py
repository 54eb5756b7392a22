"""Agents: they know `Batch`, never the buffer, and hand back one error a row."""

from relive.agents.dqn import DQN, DQNConfig
from relive.agents.update import UpdateResult

__all__ = ["DQN", "DQNConfig", "UpdateResult"]
