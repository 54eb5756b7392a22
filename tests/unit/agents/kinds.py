"""The five agents, small, and rows that they can learn from."""

from relive import Field
from relive.agents import (
    C51,
    DDPG,
    DQN,
    SAC,
    TD3,
    ActionScale,
    C51Config,
    DDPGConfig,
    DQNConfig,
    SACConfig,
    TD3Config,
)
from tests.unit.agents.batches import filled_buffer

KINDS = {
    "dqn": (DQN, DQNConfig),
    "c51": (C51, C51Config),
    "ddpg": (DDPG, DDPGConfig),
    "td3": (TD3, TD3Config),
    "sac": (SAC, SACConfig),
}
CONTINUOUS = ("ddpg", "td3", "sac")
BOX = ([-2.0, 0.0], [2.0, 10.0])
NUM_ACTIONS = 3


def make(kind, obs=None, *, seed=0, planned_updates=1, **settings):
    """An agent with one hidden layer of 16."""
    agent, config = KINDS[kind]
    actions = ActionScale(*BOX) if kind in CONTINUOUS else NUM_ACTIONS
    config = config(**{"hidden": (16,), "lr": 1e-2, **settings})
    obs = obs or Field((4,))
    return agent(obs, actions, config, planned_updates=planned_updates, seed=seed)


def rows_for(kind, rows=64, **settings):
    """A buffer with random rows."""
    return filled_buffer(rows, box=BOX if kind in CONTINUOUS else None, **settings)
