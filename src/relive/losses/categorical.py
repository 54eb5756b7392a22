"""Returns as a distribution over fixed values, the atoms (Bellemare et al. 2017, C51).

B    rows of the batch
N    atoms, at equal distances
z    values of the atoms, the support, rising                                [N]
p    probability of each atom; sums to 1 over the last axis                  [B, N]
r    reward of the row: the folded return of its n-step window               [B]
g    discount of the row: gamma^k for k folded steps, 0 where terminated     [B]

The agent is `relive.agents.C51`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def expected_value(probs: Tensor, support: Tensor) -> Tensor:
    """sum_j p_j z_j.

    Args:
        probs: float `[..., N]`.
        support: float `[N]`.

    Returns:
        float `[...]`.
    """
    value: Tensor = probs @ support
    return value


def project(probs: Tensor, support: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
    """The distribution of r + g Z, on the atoms of Z.

        m_i = sum_j p_j * clip(1 - |clip(r + g z_j, z_1, z_N) - z_i| / dz, 0, 1)

    Bellemare et al. 2017, eq. 7: what lies between two atoms is shared by them in proportion to
    how near it is, what lies outside of the support goes to its end. No mass is lost, also where
    r + g z_j falls on an atom. A terminated row has all of its mass at r, whatever `probs` holds
    there: the observation after a crash may hold NaN.

    No value is scattered, so the result is the same at every call on every device; it takes
    B * N * N numbers of memory.

    Args:
        probs: Distribution of the value of the row's last observation. float `[B, N]`.
        support: Atoms at equal distances, N >= 2. float `[N]`.
        reward: float `[B]`.
        discount: float `[B]`; each row has its own.

    Returns:
        float `[B, N]`; its rows sum to 1.
    """
    ended = (discount == 0).unsqueeze(1)
    probs = torch.where(ended, 1.0 / len(support), probs)
    width = (support[-1] - support[0]) / (len(support) - 1)
    moved = torch.addcmul(reward.unsqueeze(1), discount.unsqueeze(1), support)  # [B, N]
    moved = torch.clamp(moved, support[0], support[-1])
    places = (moved - support[0]) / width  # 0 ... N - 1
    grid = torch.arange(len(support), dtype=probs.dtype, device=probs.device)
    distance = (places.unsqueeze(1) - grid.unsqueeze(1)).abs_()  # [B, N, N]: of j from i
    near = distance.neg_().add_(1.0).clamp_(min=0.0)
    projected: Tensor = torch.bmm(near, probs.unsqueeze(2)).squeeze(2)
    return projected


def cross_entropy(log_probs: Tensor, target: Tensor) -> Tensor:
    """H(m, p) = -sum_j m_j log p_j of each row: the loss of C51 (algorithm 1 of the paper).

    Args:
        log_probs: Logarithms of the predicted p, with gradient. float `[B, N]`.
        target: The projected m. float `[B, N]`.

    Returns:
        float `[B]`.
    """
    return -(target * log_probs).sum(1)


def kl_divergence(cross_entropy: Tensor, target: Tensor) -> Tensor:
    """KL(m || p) = H(m, p) - H(m): how wrong a row is, 0 once the prediction is the target.

    The cross-entropy of a row never falls below the entropy of its target, so as a priority it
    would keep rows high whose target is spread out, although they are predicted well (Hessel et al.
    2018, Rainbow, take the divergence).

    Args:
        cross_entropy: H(m, p). float `[B]`.
        target: m. float `[B, N]`.

    Returns:
        float `[B]`, at least 0: what rounding takes below is 0.
    """
    entropy: Tensor = torch.special.entr(target).sum(1)
    return (cross_entropy - entropy).clamp_(min=0.0)
