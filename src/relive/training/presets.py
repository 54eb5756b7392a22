"""Settings that are known to work, and results to hold them against."""

from __future__ import annotations

from relive.agents.dqn import DQNConfig
from relive.references import REFERENCES
from relive.training.config import Algorithm, ReplayConfig, TrainConfig

__all__ = ["PRESETS", "REFERENCES", "preset"]

PRESETS: dict[tuple[Algorithm, str], TrainConfig] = {
    ("dqn", "CartPole-v1"): TrainConfig(
        env="CartPole-v1",
        total_steps=50_000,
        learning_starts=1_000,
        train_every=256,
        updates_per_train=128,
        replay=ReplayConfig(capacity=100_000, batch_size=64),
        agent=DQNConfig(
            lr=2.3e-3,
            lr_end=0.0,  # the last policy counts, and a constant step size keeps unlearning it
            target_period=128,
            epsilon_end=0.04,
            epsilon_fraction=0.16,
        ),
    ),
    ("dqn", "Acrobot-v1"): TrainConfig(
        env="Acrobot-v1",
        total_steps=100_000,
        learning_starts=128,
        train_every=4,
        updates_per_train=4,
        replay=ReplayConfig(capacity=50_000, batch_size=128),
        agent=DQNConfig(
            lr=6.3e-4,
            lr_end=0.0,
            target_period=250,
            epsilon_end=0.1,
            epsilon_fraction=0.12,
        ),
    ),
}


def preset(algorithm: Algorithm, env: str) -> TrainConfig:
    """The preset of an environment, or the defaults for one that has none."""
    return PRESETS.get((algorithm, env)) or TrainConfig(algorithm=algorithm, env=env)
