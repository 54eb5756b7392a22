"""Several networks of one shape that learn apart and are computed together.

    K  members    B  rows of the batch    F  features    G  width of a layer

A layer of all members is one batched product of matrices, so ten critics take hardly more calls
than one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from relive.nn.mlp import fill_uniform
from relive.nn.products import affine

if TYPE_CHECKING:
    from collections.abc import Sequence


class EnsembleLinear(nn.Module):
    """K linear layers: `[K, B, F] -> [K, B, G]`; first weights as those of `linear`."""

    def __init__(
        self, members: int, in_features: int, out_features: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        shape = members, in_features, out_features
        self.weight = nn.Parameter(torch.empty(shape, dtype=torch.float32))
        self.bias = nn.Parameter(torch.empty(members, 1, out_features, dtype=torch.float32))
        fill_uniform(self, fan_in=in_features, generator=generator)

    def forward(self, x: Tensor, members: int | Tensor | None = None) -> Tensor:
        """`[K, B, G]` of `x` `[K, B, F]`, by members as of `EnsembleMLP.forward`."""
        return affine(x, of_members(self.weight, members), of_members(self.bias, members))


class EnsembleLayerNorm(nn.Module):
    """Rows to mean 0 and deviation 1, then a scale and shift of each member: `[K, B, G]`."""

    def __init__(self, members: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, 1, features, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros(members, 1, features, dtype=torch.float32))

    def forward(self, x: Tensor, members: int | Tensor | None = None) -> Tensor:
        """As `x`, by members as of `EnsembleMLP.forward`."""
        normal = functional.layer_norm(x, x.shape[-1:])
        shift, scale = of_members(self.bias, members), of_members(self.weight, members)
        return torch.addcmul(shift, normal, scale)


class EnsembleMLP(nn.Module):
    """K stacks of linear layers, a ReLU between: `[B, F] -> [K, B, out_features]`.

    Args:
        members: K.
        in_features: F.
        hidden: Widths of the layers before the last.
        out_features: Width of the last layer, which has no ReLU.
        generator: Draws the first weights, other ones for each member.
        layer_norm: Normalise each row before a ReLU.
    """

    def __init__(
        self,
        members: int,
        in_features: int,
        hidden: Sequence[int],
        out_features: int,
        generator: torch.Generator,
        *,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.members = members
        widths = [in_features, *hidden, out_features]
        self.layers = nn.ModuleList(
            EnsembleLinear(members, *pair, generator) for pair in itertools.pairwise(widths)
        )
        self.norms = (
            nn.ModuleList(EnsembleLayerNorm(members, width) for width in hidden)
            if layer_norm
            else None
        )

    def forward(self, x: Tensor, members: int | Tensor | None = None) -> Tensor:
        """`[K, B, out_features]` of `x` `[B, F]`, which all members see.

        Args:
            x: Rows.
            members: Only so many are asked, the first ones, or those of these numbers, int64 `[K]`
                on the device; None: all.
        """
        x = x.expand(self.count(members), *x.shape)
        last = len(self.layers) - 1
        for place, layer in enumerate(self.layers):
            x = layer.forward(x, members)
            if place < last:
                if self.norms is not None:
                    x = self.norms[place].forward(x, members)
                x = x.relu_()
        return x

    @property
    def stack(self) -> list[tuple[nn.Module, nn.Module | None]]:
        """Linear layers, the first to the last, each with the norm behind it."""
        norms = [*(self.norms or [None] * (len(self.layers) - 1)), None]
        return list(zip(self.layers, norms, strict=True))

    def count(self, members: int | Tensor | None) -> int:
        """How many are asked."""
        if members is None:
            return self.members
        return members if isinstance(members, int) else len(members)


def of_members(parameter: Tensor, members: int | Tensor | None) -> Tensor:
    """What belongs to them, as `EnsembleMLP.forward` takes them, of a parameter `[K, ...]`."""
    if isinstance(members, Tensor):
        return parameter.index_select(0, members)
    if members is None or members == len(parameter):
        return parameter  # a slice of all would cost a copy on the way back
    return parameter[:members]
