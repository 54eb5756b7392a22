"""SAC. By default the paper's settings on MuJoCo; else the recipes of the RL Baselines3 Zoo.

`hyperparams/sac.yml` there, without the exploration of its own (gSDE) that some of them ask for.
"""

from dataclasses import replace

from relive.agents import SACConfig
from relive.training.config import ReplayConfig, TrainConfig

DEFAULT = TrainConfig(
    env="",
    total_steps=1_000_000,
    learning_starts=10_000,
    train_every=1,
    replay=ReplayConfig(sampler="uniform", capacity=1_000_000, batch_size=256),
    agent=SACConfig(),
)

BY_ENV = {
    "Pendulum-v1": TrainConfig(
        env="",
        total_steps=20_000,
        learning_starts=256,
        train_every=1,
        replay=ReplayConfig(sampler="uniform", capacity=200_000, batch_size=256),
        agent=SACConfig(lr=1e-3, lr_end=0.0),
    ),
    "MountainCarContinuous-v0": TrainConfig(  # with demonstrations; without, it never gets there
        env="",
        total_steps=20_000,
        learning_starts=1_000,
        train_every=1,
        replay=ReplayConfig(sampler="uniform", capacity=50_000, batch_size=256),
        agent=SACConfig(lr=1e-3, lr_end=0.0, tau=0.01, hidden=(64, 64)),
    ),
    "LunarLanderContinuous-v3": replace(
        DEFAULT, total_steps=500_000, agent=SACConfig(lr=7.3e-4, lr_end=0.0, tau=0.01)
    ),
    "InvertedPendulum-v5": replace(
        DEFAULT, total_steps=20_000, learning_starts=1_000, agent=SACConfig(lr=1e-3, lr_end=0.0)
    ),
    "HalfCheetah-v5": DEFAULT,
    "Hopper-v5": DEFAULT,
    "Walker2d-v5": DEFAULT,
    "Ant-v5": DEFAULT,
    "Humanoid-v5": replace(DEFAULT, total_steps=2_000_000),
    "Swimmer-v5": replace(DEFAULT, replay=replace(DEFAULT.replay, gamma=0.999)),
}
