"""A run that takes a moment."""

from relive.agents import DQNConfig
from relive.training import ReplayConfig, TrainConfig


def tiny(replay=None, agent=None, **settings):
    """CartPole for 300 steps, 100 of them before learning starts."""
    return TrainConfig(
        **{
            "env": "CartPole-v1",
            "device": "cpu",
            "total_steps": 300,
            "learning_starts": 100,
            "train_every": 4,
            "updates_per_train": 2,
            "eval_episodes": 2,
            "log_every": 100,
            "replay": ReplayConfig(**{"capacity": 200, "batch_size": 16, **(replay or {})}),
            "agent": DQNConfig(**{"hidden": (16,), **(agent or {})}),
            **settings,
        },
    )
