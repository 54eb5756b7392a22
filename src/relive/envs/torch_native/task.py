"""What an environment is, apart from the machinery that all of them share.

    E environments at once    S numbers of state    O numbers of an observation

A state is [S, E], so that each of its numbers is one contiguous row. The functions of a task are
pure and elementwise over E. They contain nothing that makes the host wait, and no constant that
would have to be copied to the device: no `torch.where` with a number in it, no new tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relive.errors import MissingExtraError
from relive.fields import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One environment: its numbers, its dynamics, its observation.

    Attributes:
        env_id: Gymnasium's name of it.
        time_limit: steps after which an episode is truncated.
        start_low, start_high: the box [S] in which episodes start, uniformly.
        obs_low, obs_high: bounds [O] of an observation.
        num_actions: actions are 0 ... num_actions - 1; None if they are continuous.
        action_bound: a continuous action is one number in [-action_bound, action_bound].
        advance: one step, `(state [S, E] dtype, action [E], fresh [E] bool) -> (state, reward
            [E] dtype, terminated [E] bool)`. The action is int64, or float32 if continuous; `fresh`
            marks the first step of an episode; dtype is float32 or float64. Changes no argument.
        observe: `state [S, E] -> [E, O] float32`, in memory of its own.
    """

    env_id: str
    time_limit: int
    start_low: tuple[float, ...]
    start_high: tuple[float, ...]
    obs_low: tuple[float, ...]
    obs_high: tuple[float, ...]
    num_actions: int | None = None
    action_bound: float = math.nan
    advance: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    observe: Callable[[Tensor], Tensor]

    @property
    def obs_field(self) -> Field:
        """An observation, as a buffer stores it."""
        return Field((len(self.obs_low),), torch.float32)

    @property
    def action_field(self) -> Field:
        """An action, as a buffer stores it."""
        return Field((1,), torch.float32) if self.num_actions is None else Field((), torch.int64)

    def obs_space(self) -> Any:
        """The observation space, as Gymnasium gives it."""
        import numpy as np

        low, high = (np.array(bound, dtype=np.float32) for bound in (self.obs_low, self.obs_high))
        return _spaces().Box(low, high, dtype=np.float32)

    def action_space(self) -> Any:
        """The action space, as Gymnasium gives it."""
        import numpy as np

        if self.num_actions is not None:
            return _spaces().Discrete(self.num_actions)
        return _spaces().Box(-self.action_bound, self.action_bound, (1,), np.float32)


def _spaces() -> Any:
    try:
        from gymnasium import spaces
    except ImportError:
        raise MissingExtraError("gymnasium", extra="gym") from None
    return spaces
