"""The last part of a value network: from F features to the values of A actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from relive.nn.mlp import linear

if TYPE_CHECKING:
    import torch


class QHead(nn.Module):
    """Q(s, .) as a linear map of the features: `[B, F] -> [B, A]`."""

    def __init__(self, in_features: int, num_actions: int, generator: torch.Generator) -> None:
        super().__init__()
        self.value = linear(in_features, num_actions, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Action values `[B, A]` of features `[B, F]`."""
        q: Tensor = self.value(features)
        return q


class DuelingHead(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_b A(s, b): `[B, F] -> [B, A]`.

    Wang et al. 2016, "Dueling network architectures for deep reinforcement learning", eq. 9. V and
    A are linear in shared features; the paper gives each a hidden layer of its own.
    """

    def __init__(self, in_features: int, num_actions: int, generator: torch.Generator) -> None:
        super().__init__()
        self.value = linear(in_features, 1, generator)
        self.advantage = linear(in_features, num_actions, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Action values `[B, A]` of features `[B, F]`."""
        advantage = self.advantage(features)
        q: Tensor = self.value(features) + advantage - advantage.mean(-1, keepdim=True)
        return q
