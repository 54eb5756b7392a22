"""RLPD (Ball et al. 2023): SAC whose batches are half demonstrations, with many updates a step."""

from dataclasses import replace

from relive.agents import SACConfig
from relive.training.config import TrainConfig
from relive.training.presets import sac

DEFAULT = replace(
    sac.DEFAULT,
    total_steps=250_000,
    learning_starts=5_000,
    updates_per_train=20,
    agent=SACConfig(
        critics=10, target_critics=2, layer_norm=True, policy_value="mean", policy_delay=20
    ),
)

BY_ENV: dict[str, TrainConfig] = {}
