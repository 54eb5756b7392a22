"""The agents by name: one table, from the word on the command line to the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from relive.agents.c51 import C51, C51Config
from relive.agents.ddpg import DDPG, DDPGConfig
from relive.agents.dqn import DQN, DQNConfig
from relive.agents.sac import SAC, SACConfig
from relive.agents.td3 import TD3, TD3Config
from relive.declared import from_file
from relive.errors import ConfigError, shown

if TYPE_CHECKING:
    from relive.agents.agent import Agent
    from relive.fields import Field, Fields
    from relive.nn.action_scale import ActionScale

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


def algorithm_of(config: AgentConfig) -> Algorithm:
    """The name of the agent that these are settings of.

    Raises:
        ConfigError: Of none.
    """
    name = next((name for name, kind in CONFIGS.items() if type(config) is kind), None)
    if name is None:
        kinds = ", ".join(f"{kind.__name__}(...)" for kind in CONFIGS.values())
        raise ConfigError(f"the settings of an agent are one of {kinds}; given {shown(config)}")
    return name


def agent_config(algorithm: str, plain: dict[str, Any]) -> AgentConfig:
    """The settings of an agent from the plain values of a file.

    Raises:
        KeyError: There is no such algorithm.
        TypeError: A setting is unknown.
        ConfigError: A value that the agent cannot have.
    """
    kind = next((kind for name, kind in CONFIGS.items() if name == algorithm), None)
    if kind is None:
        raise KeyError(f"algorithm {algorithm}")
    return kind(**from_file(kind, plain))


def new_agent(
    config: AgentConfig, obs: Field | Fields, actions: int | ActionScale, **settings: Any
) -> Agent:
    """An agent with these settings; `settings` are the other arguments of its class."""
    agent: Agent = AGENTS[algorithm_of(config)](obs, actions, config, **settings)
    return agent
