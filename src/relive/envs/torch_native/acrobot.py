"""Acrobot-v1: two links hang from a joint; swing the tip up by a torque between the links.

Sutton and Barto, Reinforcement Learning, section 11.3 of the first edition (the equations of the
book, not those of Sutton 1996), by one Runge-Kutta step of order 4 and 0.2 s:

    d₁ = m₁ c₁² + m₂ (l₁² + c₂² + 2 l₁ c₂ cos θ₂) + I₁ + I₂
    d₂ = m₂ (c₂² + l₁ c₂ cos θ₂) + I₂
    φ₂ = m₂ c₂ g cos(θ₁ + θ₂ − π/2)
    φ₁ = −m₂ l₁ c₂ (ω₂² + 2 ω₁ ω₂) sin θ₂ + (m₁ c₁ + m₂ l₁) g cos(θ₁ − π/2) + φ₂
    ω₂' = (τ + φ₁ d₂/d₁ − m₂ l₁ c₂ ω₁² sin θ₂ − φ₂) / (m₂ c₂² + I₂ − d₂²/d₁)
    ω₁' = −(d₂ ω₂' + φ₁) / d₁

State: angle θ₁ of the first link from hanging down and θ₂ of the second from the first, in rad,
both wrapped to [−π, π] after a step, and their velocities ω₁, ω₂, clipped to 4π and 9π rad/s.
Actions 0, 1, 2 are torques of −1, 0, 1 N m, without noise. Reward −1, but 0 for the step that
terminates the episode: −cos θ₁ − cos(θ₁ + θ₂) > 1. Gymnasium keeps the state in float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from relive.envs.torch_native.task import Task

GRAVITY = 9.8
LENGTH_1 = 1.0
MASS_1 = MASS_2 = 1.0
CENTRE_1 = CENTRE_2 = 0.5  # of mass, along its link
INERTIA_1 = INERTIA_2 = 1.0
DT = 0.2
MAX_VELOCITY_1 = 4 * math.pi
MAX_VELOCITY_2 = 9 * math.pi

COUPLING = MASS_2 * LENGTH_1 * CENTRE_2
D_1 = MASS_1 * CENTRE_1**2 + MASS_2 * (LENGTH_1**2 + CENTRE_2**2) + INERTIA_1 + INERTIA_2
D_2 = MASS_2 * CENTRE_2**2 + INERTIA_2
WEIGHT_1 = (MASS_1 * CENTRE_1 + MASS_2 * LENGTH_1) * GRAVITY
WEIGHT_2 = MASS_2 * CENTRE_2 * GRAVITY


def derivative(state: Tensor, torque: Tensor) -> Tensor:
    """Velocities and accelerations, [4, E]; the equations above."""
    theta_1, theta_2, omega_1, omega_2 = state
    cos, sin = theta_2.cos(), theta_2.sin()
    d_1, d_2 = D_1 + 2 * COUPLING * cos, D_2 + COUPLING * cos
    phi_2 = WEIGHT_2 * (theta_1 + theta_2 - math.pi / 2).cos()
    phi_1 = (
        -COUPLING * omega_2.square() * sin
        - 2 * COUPLING * omega_2 * omega_1 * sin
        + WEIGHT_1 * (theta_1 - math.pi / 2).cos()
        + phi_2
    )
    alpha_2 = (torque + d_2 / d_1 * phi_1 - COUPLING * omega_1.square() * sin - phi_2) / (
        D_2 - d_2.square() / d_1
    )
    alpha_1 = -(d_2 * alpha_2 + phi_1) / d_1
    return torch.stack((omega_1, omega_2, alpha_1, alpha_2))


def advance(state: Tensor, action: Tensor, _fresh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step; see `Task.advance`."""
    torque = action.to(state.dtype) - 1
    k_1 = derivative(state, torque)
    k_2 = derivative(state + DT / 2 * k_1, torque)
    k_3 = derivative(state + DT / 2 * k_2, torque)
    k_4 = derivative(state + DT * k_3, torque)
    state = state + DT / 6 * (k_1 + 2 * k_2 + 2 * k_3 + k_4)
    theta_1, theta_2 = theta = wrap(state[:2])
    omega_1 = state[2].clamp(-MAX_VELOCITY_1, MAX_VELOCITY_1)
    omega_2 = state[3].clamp(-MAX_VELOCITY_2, MAX_VELOCITY_2)
    terminated = -theta_1.cos() - (theta_2 + theta_1).cos() > 1
    reward = terminated.to(state.dtype) - 1
    return torch.cat((theta, torch.stack((omega_1, omega_2)))), reward, terminated


def wrap(angle: Tensor) -> Tensor:
    """The angle in [−π, π] that is whole turns away; ±π stay what they are."""
    turns = ((angle.abs() - math.pi) / (2 * math.pi)).ceil().clamp(min=0)
    return angle - turns.copysign(angle) * (2 * math.pi)


def observe(state: Tensor) -> Tensor:
    """Cosine and sine of each angle, and the velocities: [E, 6]."""
    theta_1, theta_2, omega_1, omega_2 = state
    numbers = (theta_1.cos(), theta_1.sin(), theta_2.cos(), theta_2.sin(), omega_1, omega_2)
    return torch.stack(numbers, dim=1).float()


OBS_BOUND = (1.0, 1.0, 1.0, 1.0, MAX_VELOCITY_1, MAX_VELOCITY_2)
TASK = Task(
    env_id="Acrobot-v1",
    time_limit=500,
    start_low=(-0.1,) * 4,
    start_high=(0.1,) * 4,
    obs_low=tuple(-bound for bound in OBS_BOUND),
    obs_high=OBS_BOUND,
    num_actions=3,
    advance=advance,
    observe=observe,
)
