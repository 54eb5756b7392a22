"""The agents by name: one table, from the word on the command line to the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

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
from relive.envs.make import action_bounds, num_actions
from relive.errors import ConfigError

if TYPE_CHECKING:
    from relive.agents.agent import Agent
    from relive.fields import Field, Fields

Algorithm = Literal["dqn", "c51", "ddpg", "td3", "sac"]
AgentConfig = DQNConfig | C51Config | DDPGConfig | TD3Config | SACConfig

CONFIGS: dict[Algorithm, type[AgentConfig]] = {
    "dqn": DQNConfig,
    "c51": C51Config,
    "ddpg": DDPGConfig,
    "td3": TD3Config,
    "sac": SACConfig,
}
AGENTS: dict[Algorithm, Any] = {"dqn": DQN, "c51": C51, "ddpg": DDPG, "td3": TD3, "sac": SAC}
DISCRETE: tuple[Algorithm, ...] = ("dqn", "c51")
CONTINUOUS: tuple[Algorithm, ...] = ("ddpg", "td3", "sac")


def algorithm_of(config: AgentConfig) -> Algorithm:
    """The name of the agent that these are settings of."""
    return next(name for name, kind in CONFIGS.items() if type(config) is kind)


def actions_of(env: Any, algorithm: Algorithm) -> int | ActionScale:
    """The actions of an environment, or of one copy of a vector environment, for an agent.

    Raises:
        ConfigError: The agent cannot act there; names those that may.
    """
    continuous = algorithm in CONTINUOUS
    try:
        return ActionScale(*action_bounds(env)) if continuous else num_actions(env)
    except ConfigError as error:
        others = DISCRETE if continuous else CONTINUOUS
        kind = "numbered" if continuous else "continuous"
        raise ConfigError(
            f"{algorithm} cannot act there: {error}; for {kind} actions: {', '.join(others)}"
        ) from None


def new_agent(
    config: AgentConfig, obs: Field | Fields, actions: int | ActionScale, **settings: Any
) -> Agent:
    """An agent with these settings; `settings` are the other arguments of its class."""
    agent: Agent = AGENTS[algorithm_of(config)](obs, actions, config, **settings)
    return agent
