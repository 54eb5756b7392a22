"""Policies of continuous actions, and the critics that value them.

    B  rows of the batch    D  dimensions of an action    K  critics

Actions are in [-1, 1] here; `ActionScale` is the only place that knows the box of the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from relive.nn.encoders import encoder_for
from relive.nn.ensemble import EnsembleMLP
from relive.nn.mlp import MLP, linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relive.batch import Observation
    from relive.fields import Field, Fields

tanh_backward = torch.ops.aten.tanh_backward.default
SMALLEST_LOG_STD, LARGEST_LOG_STD = -20.0, 2.0


class DeterministicPolicy(nn.Module):
    """mu(s) = tanh(...): observations of B rows -> `[B, D]` in [-1, 1].

    Args:
        obs: Field of one observation, or a mapping of fields.
        size: D.
        hidden: Widths of the hidden layers.
        generator: Draws the first weights.
    """

    def __init__(
        self, obs: Field | Fields, size: int, hidden: Sequence[int], generator: torch.Generator
    ) -> None:
        super().__init__()
        self.encoder = encoder_for(obs, generator)
        self.trunk = MLP(self.encoder.out_features, hidden, generator)
        self.head = linear(self.trunk.out_features, size, generator)

    def forward(self, obs: Observation) -> Tensor:
        """Actions `[B, D]`."""
        return self.of_head(self.head.forward(self.trunk.forward(self.encoder.forward(obs))))

    def of_head(self, output: Tensor) -> Tensor:
        """Actions of what the last layer gives, `[B, D]`."""
        return output.tanh()

    def before_head(self, action: Tensor, slope: Tensor) -> Tensor:
        """The slope of what the last layer gives, of that of the actions that came of it."""
        before: Tensor = tanh_backward(slope, action)
        return before


class GaussianPolicy(nn.Module):
    """A normal distribution for each dimension, squashed by tanh (Haarnoja et al. 2018b).

    Args:
        obs: Field of one observation, or a mapping of fields.
        size: D.
        hidden: Widths of the hidden layers.
        generator: Draws the first weights.
    """

    def __init__(
        self, obs: Field | Fields, size: int, hidden: Sequence[int], generator: torch.Generator
    ) -> None:
        super().__init__()
        self.encoder = encoder_for(obs, generator)
        self.trunk = MLP(self.encoder.out_features, hidden, generator)
        self.head = linear(self.trunk.out_features, 2 * size, generator)

    def forward(self, obs: Observation) -> tuple[Tensor, Tensor]:
        """Mean before tanh and log of the deviation, which is kept in [-20, 2]; `[B, D]` each."""
        return self.of_head(self.head.forward(self.trunk.forward(self.encoder.forward(obs))))

    def of_head(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Both of what the last layer gives, `[B, 2 D]`."""
        mean, log_std = output.chunk(2, 1)
        # a clamp, whose derivative is one operation
        return mean, functional.hardtanh(log_std, SMALLEST_LOG_STD, LARGEST_LOG_STD)


class Critics(nn.Module):
    """Q_1(s, a) ... Q_K(s, a): K members that share an encoder, and nothing else.

    Args:
        obs: Field of one observation, or a mapping of fields.
        size: D.
        members: K.
        hidden: Widths of the hidden layers.
        generator: Draws the first weights.
        layer_norm: Normalise each row before a ReLU.
    """

    def __init__(
        self,
        obs: Field | Fields,
        size: int,
        members: int,
        hidden: Sequence[int],
        generator: torch.Generator,
        *,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder_for(obs, generator)
        width = self.encoder.out_features + size
        self.members = EnsembleMLP(members, width, hidden, 1, generator, layer_norm=layer_norm)

    def forward(
        self, obs: Observation, action: Tensor, members: int | Tensor | None = None
    ) -> Tensor:
        """Values `[K, B]` of actions `[B, D]`, by members as of `EnsembleMLP.forward`."""
        return self.members.forward(self.features(obs, action), members).squeeze(2)

    def features(self, obs: Observation, action: Tensor) -> Tensor:
        """What the members see: the encoded observation, then the action, `[B, F + D]`."""
        return torch.cat([self.encoder.forward(obs), action], 1)


class Temperature(nn.Module):
    """One positive number, learned as its logarithm."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([first], dtype=torch.float32).log())

    def forward(self) -> Tensor:
        """The number, `[]`."""
        return self.log.exp().squeeze(0)
