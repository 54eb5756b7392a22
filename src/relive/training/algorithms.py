"""Which agents can act in an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive.envs.make import action_scale, num_actions
from relive.errors import ConfigError

if TYPE_CHECKING:
    from relive.agents import ActionScale
    from relive.agents.kinds import Algorithm

DISCRETE: tuple[Algorithm, ...] = ("dqn", "c51")
CONTINUOUS: tuple[Algorithm, ...] = ("ddpg", "td3", "sac")


def actions_of(env: Any, algorithm: Algorithm) -> int | ActionScale:
    """The actions of an environment, or of one copy of a vector environment, for an agent.

    Raises:
        ConfigError: The agent cannot act there; names those that may.
    """
    continuous = algorithm in CONTINUOUS
    try:
        return action_scale(env) if continuous else num_actions(env)
    except ConfigError as error:
        others = (*DISCRETE, "rainbow") if continuous else (*CONTINUOUS, "rlpd")
        kind = "numbered" if continuous else "continuous"
        raise ConfigError(
            f"{algorithm} cannot act there: {error}; for {kind} actions: {', '.join(others)}"
        ) from None
