"""MountainCarContinuous-v0: a car too weak for the hill has to rock itself out of the valley.

Moore (1990), with a continuous force f, of which what is outside [-1, 1] pushes as its bound does:

    v ← clip(v + 0.0015 f − 0.0025 cos(3 x), ±0.07)        x ← clip(x + v, −1.2, 0.6)

State: position x and velocity v, which is 0 after running into the left wall. Reward 100 at the
goal (x >= 0.45, v >= 0), which ends the episode, minus 0.1 f² at every step, of the force as given:
asking for more than there is costs more.

Gymnasium's precision here is mixed: it keeps the state in float32, evaluates the cosine in float64,
and adds in float32, except that the first step of an episode starts from a float64 state. With a
float64 state the same roundings are made, so the numbers are Gymnasium's (those of NumPy 2); with
float32 everything is float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from relive.envs.torch_native.task import Task

POWER = 0.0015
GRAVITY = 0.0025
MAX_VELOCITY = 0.07
MIN_X, MAX_X = -1.2, 0.6
GOAL_X = 0.45


def advance(state: Tensor, action: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step; see `Task.advance`."""
    x, v = state

    def kept(value: Tensor) -> Tensor:
        if value.dtype == torch.float32:
            return value
        return torch.where(fresh, value, value.float().to(value.dtype))

    slope = GRAVITY * kept(3 * x).cos()
    within = (POWER * action - slope.float()).to(state.dtype)
    beyond = POWER * action.clamp(-1, 1).to(state.dtype) - slope
    v = kept(v + kept(torch.where(action.abs() > 1, beyond, within)))
    v = v.clamp(-MAX_VELOCITY, MAX_VELOCITY)
    x, v = (x + v).float().clamp(MIN_X, MAX_X), v.float()
    v = v.masked_fill((x <= MIN_X) & (v < 0), 0)
    terminated = (x >= GOAL_X) & (v >= 0)
    reward = 100 * terminated.to(state.dtype) - 0.1 * action.to(state.dtype).square()
    return torch.stack((x, v)).to(state.dtype), reward, terminated


def observe(state: Tensor) -> Tensor:
    """The state, [E, 2]."""
    return state.T.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


TASK = Task(
    env_id="MountainCarContinuous-v0",
    time_limit=999,
    start_low=(-0.6, 0.0),
    start_high=(-0.4, 0.0),
    obs_low=(MIN_X, -MAX_VELOCITY),
    obs_high=(MAX_X, MAX_VELOCITY),
    action_bound=1.0,
    advance=advance,
    observe=observe,
)
