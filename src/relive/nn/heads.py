"""The last part of a value network: from F features to the values of A actions.

A value is a number, or a distribution over N atoms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from relive.nn.mlp import linear

if TYPE_CHECKING:
    import torch

    from relive.nn.mlp import Layer


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


class CategoricalHead(nn.Module):
    """Logits of N atoms for each of A actions: `[B, F] -> [B, A, N]`.

    Bellemare et al. 2017 (C51); dueling as Hessel et al. 2018 (Rainbow) put it: value and
    advantages are added atom by atom, before the softmax.

    Args:
        in_features: Width of the features, F.
        num_actions: A.
        atoms: N.
        generator: Draws the first weights.
        dueling: One head for the state, one for the actions.
        layer: Makes the layers.
    """

    def __init__(
        self,
        in_features: int,
        num_actions: int,
        atoms: int,
        generator: torch.Generator,
        *,
        dueling: bool = False,
        layer: Layer = linear,
    ) -> None:
        super().__init__()
        self.shape = (-1, num_actions, atoms)
        self.advantage = layer(in_features, num_actions * atoms, generator)
        self.value = layer(in_features, atoms, generator) if dueling else None

    def forward(self, features: Tensor) -> Tensor:
        """Logits `[B, A, N]` of features `[B, F]`."""
        logits: Tensor = self.advantage.forward(features).view(self.shape)
        if self.value is None:
            return logits
        value: Tensor = self.value.forward(features).unsqueeze(1)
        return value + logits - logits.mean(1, keepdim=True)
