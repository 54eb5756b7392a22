"""Scripted policies that know what to do, each in one environment.

They are short, free of training, and good enough for demonstrations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class Expert(NamedTuple):
    """A scripted policy.

    Attributes:
        env: Id of the environment that it is for.
        act: The action for the environment and an observation of it.
    """

    env: str
    act: Callable[[Any, Any], Any]


def pump(_env: Any, obs: NDArray[Any]) -> NDArray[np.float32]:
    """Pushes the way the car rolls, so that it gains energy; less than all, as force costs."""
    return np.array([0.7 if obs[1] >= 0 else -0.7], np.float32)


def pump_fully(_env: Any, obs: NDArray[Any]) -> int:
    """The same with the forces left, none, right."""
    return 2 if obs[1] >= 0 else 0


def land(env: Any, obs: NDArray[Any]) -> Any:
    """Gymnasium's own heuristic for the lander."""
    lunar_lander: Any = import_module("gymnasium.envs.box2d.lunar_lander")
    action = lunar_lander.heuristic(env, obs)
    return action.astype(np.float32) if isinstance(action, np.ndarray) else action


EXPERTS = {
    "mountain-car-continuous": Expert("MountainCarContinuous-v0", pump),
    "mountain-car": Expert("MountainCar-v0", pump_fully),
    "lunar-lander": Expert("LunarLander-v3", land),
    "lunar-lander-continuous": Expert("LunarLanderContinuous-v3", land),
}
