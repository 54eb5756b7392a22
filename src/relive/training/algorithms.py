"""Which agents can act in an environment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from relive.envs.make import action_scale, num_actions
from relive.errors import ConfigError

if TYPE_CHECKING:
    from relive.agents import ActionScale
    from relive.agents.kinds import Algorithm

DISCRETE: tuple[Algorithm, ...] = ("dqn", "c51")
CONTINUOUS: tuple[Algorithm, ...] = ("ddpg", "td3", "sac")
FOR_NUMBERED = ", ".join((*DISCRETE, "rainbow"))
FOR_BOXES = ", ".join((*CONTINUOUS, "rlpd"))


def actions_of(env: Any, algorithm: Algorithm) -> int | ActionScale:
    """The actions of an environment, or of one copy of a vector environment, for an agent.

    Raises:
        ConfigError: The agent cannot act there; names those that may.
    """
    continuous = algorithm in CONTINUOUS
    try:
        return action_scale(env) if continuous else num_actions(env)
    except ConfigError as error:
        raise ConfigError(f"{algorithm} cannot act there: {error}; {_what_can(env)}") from None


def _what_can(env: Any) -> str:
    """The agents for the actions of an environment; if there are none, how they become others."""
    with suppress(ConfigError):
        num_actions(env)
        return f"for numbered actions: {FOR_NUMBERED}"
    with suppress(ConfigError):
        action_scale(env)
        return f"for continuous actions: {FOR_BOXES}"
    return (
        "no agent takes such actions: gymnasium.wrappers.TransformAction makes them Discrete(n), "
        f"from 0 on ({FOR_NUMBERED}), or a finite Box of floats ({FOR_BOXES})"
    )
