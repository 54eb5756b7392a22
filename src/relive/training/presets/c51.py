"""C51, with prioritized replay: DQN's recipes with a smaller step size, and atoms for the task."""

from dataclasses import replace

from relive.agents import C51Config
from relive.training.config import TrainConfig
from relive.training.presets import dqn

DEFAULT = TrainConfig(env="", agent=C51Config())

BY_ENV = {
    "CartPole-v1": replace(
        dqn.BY_ENV["CartPole-v1"],
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
}
