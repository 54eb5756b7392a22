"""Temporal-difference targets, errors and losses. Pure functions of tensors.

    B    rows of the batch
    q    value of the action taken, Q(s_t, a_t)                                  [B]
    r    reward of the row: the folded return of its n-step window               [B]
    g    discount of the row: gamma^k for k folded steps, 0 where terminated     [B]
    w    importance weight of the row, 1 for uniform draws                       [B]

No function here knows gamma, n or the difference between an end and a time limit: a row's own
discount says it all.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

LossKind = Literal["huber", "mse"]
WeightOn = Literal["loss", "td_error"]


def td_target(reward: Tensor, discount: Tensor, bootstrap: Tensor) -> Tensor:
    """The value a row's action should have: r + g * bootstrap.

    A time limit does not end the problem, so a truncated row keeps its discount and bootstraps
    (Pardo et al. 2018, "Time limits in reinforcement learning", eq. 6); a terminated one has
    discount 0. There the bootstrap is left out, not multiplied by 0: the observation after a crash
    may hold NaN.

    Args:
        reward: r_t, or the n-step return of the row. float `[B]`.
        discount: gamma^k, 0 where terminated. float `[B]`.
        bootstrap: Value of the row's last observation. float `[B]`.

    Returns:
        float `[B]`.
    """
    return torch.where(discount == 0, reward, torch.addcmul(reward, discount, bootstrap))


def td_error(q: Tensor, target: Tensor) -> Tensor:
    """The signed error delta = target - q (Sutton & Barto 2018, eq. 6.5), both `[B]`.

    Its magnitude, before any weight or loss, is what a prioritized buffer is told.
    """
    return target - q


def huber(delta: Tensor) -> Tensor:
    """Elementwise delta^2 / 2 where |delta| <= 1, |delta| - 1/2 beyond (Huber 1964).

    Its slope is delta clipped to [-1, 1]: the error clipping of Mnih et al. 2015.
    """
    return functional.huber_loss(delta, torch.zeros_like(delta), reduction="none")


def squared(delta: Tensor) -> Tensor:
    """Elementwise delta^2 / 2, so that its slope is delta, as near zero in `huber`."""
    return 0.5 * delta * delta


def weighted_loss(
    delta: Tensor, weights: Tensor, kind: LossKind = "huber", weight_on: WeightOn = "loss"
) -> Tensor:
    """Mean over the batch of the loss of each row, weighted.

        weight_on="loss":      mean_i w_i * l(delta_i)       the weight scales the row's gradient
        weight_on="td_error":  mean_i l(w_i * delta_i)       so it enters a squared loss squared

    Schaul et al. 2016 (section 3.4) put w_i * delta_i where Q-learning has delta_i, which is the
    gradient of the first form. The second is what some implementations compute; it is here to
    reproduce them.

    Args:
        delta: Signed TD errors. float `[B]`.
        weights: Importance weights. float `[B]`.
        kind: `"huber"` or `"mse"` (half the square).
        weight_on: Where the weight enters.

    Returns:
        float `[]`.
    """
    loss = LOSSES[kind]
    if weight_on == "td_error":
        return loss(weights * delta).mean()
    return weighted_mean(loss(delta), weights)


def td_slope(
    delta: Tensor, weights: Tensor, kind: LossKind = "huber", weight_on: WeightOn = "loss"
) -> Tensor:
    """Derivative of `weighted_loss` by the values q, of which delta = target - q.

        weight_on="loss":      -w_i * l'(delta_i) / B
        weight_on="td_error":  -w_i * l'(w_i * delta_i) / B

    l' is delta, for `"huber"` clipped to [-1, 1]. It is what backpropagation starts from, bit for
    bit where the weight is on the loss, without the operations from q to the loss and back.

    Args:
        delta: Signed TD errors. float `[B]`, or `[K, B]` of K critics with a loss each.
        weights: As there.
        kind: As there.
        weight_on: As there.

    Returns:
        As `delta`.
    """
    if weight_on == "td_error":
        delta = weights * delta
    slope = delta.clamp(-1.0, 1.0) if kind == "huber" else delta
    return slope * (weights * (-1.0 / delta.shape[-1]))


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """mean_i w_i * l_i: what every loss of every agent ends in.

    Divided by the number of rows, not by the sum of weights: a weight below 1 makes the step
    smaller (Schaul et al. 2016, section 3.4).

    Args:
        losses: Of each row. float `[B]`.
        weights: Importance weights. float `[B]`.

    Returns:
        float `[]`.
    """
    return torch.dot(weights, losses) / len(losses)


LOSSES = {"huber": huber, "mse": squared}
