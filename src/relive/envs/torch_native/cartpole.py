"""CartPole-v1: a pole on a cart, to be kept upright by pushing left (0) or right (1).

Barto, Sutton and Anderson (1983); without friction, by an explicit Euler step of 0.02 s:

    push = (F + m l ω² sin θ) / M
    ω' = (g sin θ − cos θ push) / (l (4/3 − m cos² θ / M))        v' = push − m l ω' cos θ / M

State: cart position x in m, its velocity v, the pole's angle θ from upright in rad, its velocity ω.
Reward 1 for every step, the last one included. Ends outside |x| <= 2.4 or |θ| <= 12°. Gymnasium
keeps the state in float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from relive.envs.torch_native.task import Task

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.0 + POLE_MASS
HALF_LENGTH = 0.5  # of the pole
POLE_MOMENT = POLE_MASS * HALF_LENGTH
FORCE = 10.0
DT = 0.02
MAX_X = 2.4
MAX_ANGLE = 12 * 2 * math.pi / 360


def advance(state: Tensor, action: Tensor, _fresh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step; see `Task.advance`."""
    x, v, theta, omega = state
    force = action.to(state.dtype) * (2 * FORCE) - FORCE
    cos, sin = theta.cos(), theta.sin()
    push = (force + POLE_MOMENT * omega.square() * sin) / TOTAL_MASS
    inertia = HALF_LENGTH * (4 / 3 - POLE_MASS * cos.square() / TOTAL_MASS)
    omega_dot = (GRAVITY * sin - cos * push) / inertia
    v_dot = push - POLE_MOMENT * omega_dot * cos / TOTAL_MASS
    state = state + DT * torch.stack((v, v_dot, omega, omega_dot))
    terminated = (state[0].abs() > MAX_X) | (state[2].abs() > MAX_ANGLE)
    return state, torch.ones_like(x), terminated


def observe(state: Tensor) -> Tensor:
    """The state, [E, 4]."""
    return state.T.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


TASK = Task(
    env_id="CartPole-v1",
    time_limit=500,
    start_low=(-0.05,) * 4,
    start_high=(0.05,) * 4,
    # Twice the limits: the observation that ends an episode is within the bounds too.
    obs_low=(-2 * MAX_X, -math.inf, -2 * MAX_ANGLE, -math.inf),
    obs_high=(2 * MAX_X, math.inf, 2 * MAX_ANGLE, math.inf),
    num_actions=2,
    advance=advance,
    observe=observe,
)
