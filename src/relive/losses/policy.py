"""Losses of policies, and what an entropy bonus adds to them. Pure functions of tensors.

B        rows of the batch
D        dimensions of an action, each in (-1, 1)
q        value of the policy's own action, Q(s, pi(s))                       [B]
log_pi   logarithm of the density of that action                             [B]
alpha    temperature: how many units of reward a unit of entropy is worth    []
w        importance weight of the row                                        [B]

The paper named 2018b is "Soft actor-critic algorithms and applications".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from relive.losses.td import weighted_mean

if TYPE_CHECKING:
    from torch import Tensor


def deterministic_policy_loss(q: Tensor, weights: Tensor) -> Tensor:
    """-mean_i w_i Q(s_i, mu(s_i)): its gradient is that of Silver et al. 2014, eq. 9.

    Lillicrap et al. 2016, eq. 6 (DDPG).

    Args:
        q: float `[B]`.
        weights: float `[B]`.

    Returns:
        float `[]`.
    """
    return -weighted_mean(q, weights)


def deterministic_policy_slope(weights: Tensor) -> Tensor:
    """Derivative of `deterministic_policy_loss` by q: -w_i / B. float `[B]`."""
    return weights * (-1.0 / len(weights))


def tanh_normal_log_prob(noise: Tensor, log_std: Tensor, before: Tensor) -> Tensor:
    """Log density of a squashed normal draw, a = tanh(u) with u = mean + std * noise.

        log pi(a) = sum_d [-noise_d^2 / 2 - log std_d - log(2 pi) / 2 - log(1 - tanh^2(u_d))]

    Haarnoja et al. 2018b, appendix C. The last term is taken as 2 (log 2 + u - softplus(2 u)),
    which is the same number and finite for every u: 1 - tanh^2 rounds to 0 near |u| = 9. What is
    left of the sum is taken in as few operations as there can be, a quarter of it first.

    Args:
        noise: float `[B, D]`.
        log_std: float `[B, D]`.
        before: u, the action before it is squashed. float `[B, D]`.

    Returns:
        float `[B]`.
    """
    quarter = functional.softplus(before, beta=2.0)  # softplus(2 u) / 2
    quarter = torch.sub(quarter, torch.add(log_std, before, alpha=2.0), alpha=0.25)
    quarter = torch.addcmul(quarter, noise, noise, value=-0.125)
    constant = noise.shape[1] * (0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0))
    return 4.0 * quarter.sum(1) - constant


def soft_value(q: Tensor, log_prob: Tensor, temperature: Tensor) -> Tensor:
    """V(s') = Q(s', a') - alpha log pi(a'): what a row bootstraps from.

    Haarnoja et al. 2018b, eq. 3, with one draw of a'.

    Args:
        q: Of the target critics, the smallest. float `[B]`.
        log_prob: float `[B]`.
        temperature: float `[]`.

    Returns:
        float `[B]`.
    """
    return torch.addcmul(q, temperature, log_prob, value=-1.0)


def soft_policy_loss(q: Tensor, log_prob: Tensor, temperature: Tensor, weights: Tensor) -> Tensor:
    """mean_i w_i (alpha log pi(a_i) - Q(s_i, a_i)) (Haarnoja et al. 2018b, eq. 7).

    Args:
        q: float `[B]`.
        log_prob: float `[B]`.
        temperature: float `[]`.
        weights: float `[B]`.

    Returns:
        float `[]`.
    """
    return weighted_mean(temperature * log_prob - q, weights)


def soft_policy_slopes(temperature: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of `soft_policy_loss` by q, -w_i / B, and by log_pi, alpha w_i / B.

    Returns:
        float `[B]` each.
    """
    share = weights * (1.0 / len(weights))
    return -share, share * temperature


def temperature_loss(
    temperature: Tensor, log_prob: Tensor, target_entropy: float, weights: Tensor
) -> Tensor:
    """-mean_i w_i alpha (log pi(a_i) + H): alpha rises while the entropy is below H.

    Haarnoja et al. 2018b, eq. 18.

    Args:
        temperature: float `[]`.
        log_prob: float `[B]`.
        target_entropy: H, in nats, of actions in (-1, 1).
        weights: float `[B]`.

    Returns:
        float `[]`.
    """
    return -temperature * weighted_mean(log_prob + target_entropy, weights)
