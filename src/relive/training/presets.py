"""Settings that are known to work, and results to hold them against."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from relive.agents import C51Config, DDPGConfig, DQNConfig, SACConfig, TD3Config
from relive.references import REFERENCES
from relive.training.config import ReplayConfig, TrainConfig

if TYPE_CHECKING:
    from relive.agents.kinds import Algorithm

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
    ("c51", "CartPole-v1"): TrainConfig(
        env="CartPole-v1",
        total_steps=50_000,
        learning_starts=1_000,
        train_every=256,
        updates_per_train=128,
        replay=ReplayConfig(capacity=100_000, batch_size=64),
        agent=C51Config(
            v_min=0.0,
            v_max=100.0,  # a step pays 1, and gamma is 0.99
            lr=1e-3,
            lr_end=0.0,
            target_period=128,
            epsilon_end=0.04,
            epsilon_fraction=0.16,
        ),
    ),
    ("ddpg", "Pendulum-v1"): TrainConfig(
        env="Pendulum-v1",
        total_steps=20_000,
        learning_starts=1_000,
        train_every=1,
        replay=ReplayConfig(sampler="uniform", capacity=200_000, batch_size=256, gamma=0.98),
        agent=DDPGConfig(lr=1e-3),
    ),
    ("td3", "Pendulum-v1"): TrainConfig(
        env="Pendulum-v1",
        total_steps=20_000,
        learning_starts=1_000,
        train_every=1,
        replay=ReplayConfig(sampler="uniform", capacity=200_000, batch_size=256, gamma=0.98),
        agent=TD3Config(lr=1e-3),
    ),
    ("sac", "Pendulum-v1"): TrainConfig(
        env="Pendulum-v1",
        total_steps=20_000,
        learning_starts=100,
        train_every=1,
        replay=ReplayConfig(sampler="uniform", capacity=200_000, batch_size=256),
        agent=SACConfig(lr=1e-3),
    ),
}

_CONTINUOUS = TrainConfig(
    env="",
    total_steps=1_000_000,
    learning_starts=10_000,
    train_every=1,
    replay=ReplayConfig(sampler="uniform", capacity=1_000_000, batch_size=256),
)
DEFAULTS: dict[Algorithm, TrainConfig] = {
    "dqn": TrainConfig(env=""),
    "c51": TrainConfig(env="", agent=C51Config()),
    "ddpg": dataclasses.replace(_CONTINUOUS, agent=DDPGConfig()),
    "td3": dataclasses.replace(_CONTINUOUS, agent=TD3Config()),
    "sac": dataclasses.replace(_CONTINUOUS, agent=SACConfig()),
}
"""For environments without a preset: those of the papers on MuJoCo for continuous actions."""


def preset(algorithm: Algorithm, env: str) -> TrainConfig:
    """The preset of an environment, or the defaults for one that has none."""
    found = PRESETS.get((algorithm, env))
    return found or dataclasses.replace(DEFAULTS[algorithm], env=env)
