"""TD3. By default the paper's settings on MuJoCo; else the recipes of the RL Baselines3 Zoo.

`hyperparams/td3.yml` there, with layers of 256 and 256 and, on Pendulum, learning from step 1,000.
"""

from dataclasses import replace

from relive.agents import TD3Config
from relive.training.config import ReplayConfig, TrainConfig

DEFAULT = TrainConfig(
    env="",
    total_steps=1_000_000,
    learning_starts=10_000,
    train_every=1,
    replay=ReplayConfig(sampler="uniform", capacity=1_000_000, batch_size=256),
    agent=TD3Config(),
)

_MUJOCO = replace(DEFAULT, agent=TD3Config(lr=1e-3))

BY_ENV = {
    "Pendulum-v1": TrainConfig(
        env="",
        total_steps=20_000,
        learning_starts=1_000,
        train_every=1,
        replay=ReplayConfig(sampler="uniform", capacity=200_000, batch_size=256, gamma=0.98),
        agent=TD3Config(lr=1e-3, lr_end=0.0),
    ),
    "LunarLanderContinuous-v3": replace(
        DEFAULT,
        total_steps=300_000,
        replay=replace(DEFAULT.replay, capacity=200_000, gamma=0.98),
        agent=TD3Config(lr=1e-3),
    ),
    "InvertedPendulum-v5": replace(
        DEFAULT,
        total_steps=20_000,
        learning_starts=1_000,
        # with noise of 0.1 the cart runs off the same way every time
        agent=TD3Config(lr=1e-3, lr_end=0.0, exploration_noise=0.6),
    ),
    "HalfCheetah-v5": _MUJOCO,
    "Hopper-v5": _MUJOCO,
    "Walker2d-v5": _MUJOCO,
    "Ant-v5": _MUJOCO,
    "Humanoid-v5": replace(_MUJOCO, total_steps=2_000_000),
    "Swimmer-v5": replace(_MUJOCO, replay=replace(DEFAULT.replay, gamma=0.9999)),
}
