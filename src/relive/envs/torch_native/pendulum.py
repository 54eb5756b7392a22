"""Pendulum-v1: swing a pendulum up with a torque too weak to lift it, and keep it there.

A rod of length 1 m and mass 1 kg, by a semi-implicit Euler step of 0.05 s, the torque u clipped to
[-2, 2] N m and the velocity to [-8, 8] rad/s:

    ω ← clip(ω + (3 g / 2 sin θ + 3 u) Δt)        θ ← θ + ω Δt
    reward = −(θ̃² + 0.1 ω² + 0.001 u²)        θ̃ = θ wrapped to [−π, π), all before the step

State: angle θ from upright in rad, not wrapped, and velocity ω. Never terminates. Gymnasium keeps
the state in float64, and with NumPy 2 computes 3 u and 0.001 u² in float32, the action's precision.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from relive.envs.torch_native.task import Task

GRAVITY = 10.0
DT = 0.05
MAX_TORQUE = 2.0
MAX_VELOCITY = 8.0


def advance(state: Tensor, action: Tensor, _fresh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step; see `Task.advance`."""
    theta, omega = state
    torque = action.clamp(-MAX_TORQUE, MAX_TORQUE)
    wrapped = torch.remainder(theta + math.pi, 2 * math.pi) - math.pi
    cost = wrapped.square() + 0.1 * omega.square() + 0.001 * torque.square()
    omega = omega + (1.5 * GRAVITY * theta.sin() + 3.0 * torque) * DT
    omega = omega.clamp(-MAX_VELOCITY, MAX_VELOCITY)
    terminated = torch.zeros_like(theta, dtype=torch.bool)
    return torch.stack((theta + omega * DT, omega)), -cost, terminated


def observe(state: Tensor) -> Tensor:
    """Cosine and sine of the angle, and the velocity: [E, 3]."""
    theta, omega = state
    return torch.stack((theta.cos(), theta.sin(), omega), dim=1).float()


TASK = Task(
    env_id="Pendulum-v1",
    time_limit=200,
    start_low=(-math.pi, -1.0),
    start_high=(math.pi, 1.0),
    obs_low=(-1.0, -1.0, -MAX_VELOCITY),
    obs_high=(1.0, 1.0, MAX_VELOCITY),
    action_bound=MAX_TORQUE,
    advance=advance,
    observe=observe,
)
