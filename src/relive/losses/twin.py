"""Several critics of one action: their target, their errors (Fujimoto et al. 2018, TD3).

B    rows of the batch
D    dimensions of an action
K    critics
q    values of the K critics                                                 [K, B]

The agent is `relive.agents.TD3`.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from relive.losses.td import LOSSES, LossKind, td_target, weighted_mean

RowError = Literal["mean", "max"]
Bound = Tensor | float


def smoothed_action(action: Tensor, noise: Tensor, clip: Bound, low: Bound, high: Bound) -> Tensor:
    """A target action blurred by bounded noise: clip(a + clip(noise, -c, c), low, high).

    Fujimoto et al. 2018, section 5.3: near actions should have near values. Clipped twice: the
    noise, so that the action stays near, and the sum, so that it stays one the environment knows.

    Args:
        action: Of the target policy. float `[B, D]`.
        noise: Normal draws times their standard deviation, in the units of the action.
            float `[B, D]`.
        clip: Largest noise, c, in the same units. float `[D]`, or one number for all dimensions.
        low: Smallest action; as `clip` is.
        high: Largest action; as `clip` is.

    Returns:
        float `[B, D]`.
    """
    blurred: Tensor = action + noise.clamp(-clip, clip)  # type: ignore[arg-type]  # both of a kind
    return blurred.clamp(low, high)  # type: ignore[arg-type]


def clipped_double_target(reward: Tensor, discount: Tensor, q_next: Tensor) -> Tensor:
    """The smallest critic bootstraps: r + g * min_k Q'_k(s', a') (Fujimoto et al. 2018).

    Of two estimates with independent errors the smaller one is not, on average, too high.

    Args:
        reward: float `[B]`.
        discount: float `[B]`.
        q_next: Values of the target critics at the row's last observation. float `[K, B]`.

    Returns:
        float `[B]`.
    """
    return td_target(reward, discount, q_next.amin(0))


def critics_loss(delta: Tensor, weights: Tensor, kind: LossKind = "mse") -> Tensor:
    """Of each critic its own: sum_k mean_i w_i l(delta_ki); its derivative is `td_slope`.

    Args:
        delta: Signed TD errors. float `[K, B]`.
        weights: Importance weights. float `[B]`.
        kind: `"huber"` or `"mse"` (half the square).

    Returns:
        float `[]`.
    """
    return weighted_mean(LOSSES[kind](delta).sum(0), weights)


def row_error(delta: Tensor, kind: RowError) -> Tensor:
    """One non-negative error a row from those of K critics: mean or largest of |delta_k|.

    Args:
        delta: Signed TD errors. float `[K, B]`.
        kind: `"mean"` or `"max"`.

    Returns:
        float `[B]`.
    """
    magnitude = delta.abs()
    return magnitude.mean(0) if kind == "mean" else magnitude.amax(0)
