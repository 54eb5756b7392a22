"""DDPG. The recipes of the RL Baselines3 Zoo (`hyperparams/ddpg.yml`), with layers of 256."""

from dataclasses import replace

from relive.agents import DDPGConfig
from relive.training.presets import td3

DEFAULT = replace(td3.DEFAULT, agent=DDPGConfig())

BY_ENV = {
    "Pendulum-v1": replace(td3.BY_ENV["Pendulum-v1"], agent=DDPGConfig(lr=1e-3, lr_end=0.0)),
    "LunarLanderContinuous-v3": replace(
        td3.BY_ENV["LunarLanderContinuous-v3"], agent=DDPGConfig(lr=1e-3)
    ),
}
