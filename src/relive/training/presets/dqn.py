"""DQN: double, with prioritized replay.

The recipes of the RL Baselines3 Zoo (`hyperparams/dqn.yml`), but double and with a step size that
falls to 0: the last policy counts, and a constant step size keeps unlearning it. LunarLander has
returns of 3 steps and twice the steps. CartPole as tensor code takes 64 environments at a time.
"""

from dataclasses import replace

from relive.agents import DQNConfig
from relive.training.config import ReplayConfig, TrainConfig

DEFAULT = TrainConfig(env="")

_CARTPOLE = TrainConfig(
    env="",
    total_steps=50_000,
    learning_starts=1_000,
    train_every=256,
    updates_per_train=128,
    replay=ReplayConfig(capacity=100_000, batch_size=64),
    agent=DQNConfig(
        lr=2.3e-3, lr_end=0.0, target_period=128, epsilon_end=0.04, epsilon_fraction=0.16
    ),
)

_ACROBOT = TrainConfig(
    env="",
    total_steps=100_000,
    learning_starts=128,
    train_every=4,
    updates_per_train=4,
    replay=ReplayConfig(capacity=50_000, batch_size=128),
    agent=DQNConfig(
        lr=6.3e-4, lr_end=0.0, target_period=250, epsilon_end=0.1, epsilon_fraction=0.12
    ),
)

BY_ENV = {
    "CartPole-v1": _CARTPOLE,
    "torch/CartPole-v1": replace(_CARTPOLE, num_envs=64),
    "Acrobot-v1": _ACROBOT,
    "LunarLander-v3": replace(
        _ACROBOT,
        total_steps=200_000,
        replay=ReplayConfig(capacity=200_000, batch_size=128, n_step=3),
    ),
    "MountainCar-v0": TrainConfig(
        env="",
        total_steps=120_000,
        learning_starts=1_000,
        train_every=16,
        updates_per_train=8,
        replay=ReplayConfig(capacity=10_000, batch_size=128, gamma=0.98),
        agent=DQNConfig(
            lr=4e-3, lr_end=0.0, target_period=600, epsilon_end=0.07, epsilon_fraction=0.2
        ),
    ),
}
