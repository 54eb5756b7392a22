"""Linear layers whose first values come from a generator, and stacks of them."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Layer = Callable[[int, int, torch.Generator], nn.Module]

M = TypeVar("M", bound=nn.Module)


def linear(in_features: int, out_features: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer, weights and bias uniform in +-1/sqrt(in_features), as PyTorch's own.

    `nn.Linear(...)` draws from the global generator as it is made; this one from `generator` only.

    Args:
        in_features: Width of the input.
        out_features: Width of the output.
        generator: On the CPU; advanced by as many draws as there are parameters.
    """
    layer = without_values(nn.Linear, in_features, out_features)
    fill_uniform(layer, fan_in=in_features, generator=generator)
    return layer


def without_values(kind: type[M], *args: Any) -> M:
    """A float32 module without values in it yet; nothing is drawn from the global generator.

    As `nn.utils.skip_init`, which goes through a device that takes a second to import.
    """
    blank = type(kind.__name__, (kind,), {"reset_parameters": lambda _: None})
    module: M = blank(*args, dtype=torch.float32)
    module.__class__ = kind
    return module


def fill_uniform(layer: nn.Module, fan_in: int, generator: torch.Generator) -> None:
    """Fills every parameter of `layer`, in place, with uniform draws in +-1/sqrt(fan_in)."""
    bound = 1.0 / math.sqrt(fan_in)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)


class MLP(nn.Module):
    """Linear layers with a ReLU after each: `[B, in_features] -> [B, out_features]`.

    Args:
        in_features: Width of the input.
        hidden: Widths of the layers; none makes this the identity.
        generator: Draws the first weights.
        layer_norm: Bring each row to mean 0 and deviation 1 before the ReLU, with a learned scale
            and shift (Ba et al. 2016).
        layer: Makes the layers.

    Attributes:
        out_features: Width of the output: the last of `hidden`, or `in_features`.
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        generator: torch.Generator,
        *,
        layer_norm: bool = False,
        layer: Layer = linear,
    ) -> None:
        super().__init__()
        widths = [in_features, *hidden]
        self.layers = nn.ModuleList(layer(*pair, generator) for pair in itertools.pairwise(widths))
        self.norms = (
            nn.ModuleList(nn.LayerNorm(width, dtype=torch.float32) for width in hidden)
            if layer_norm
            else None
        )
        self.out_features = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Features `[B, out_features]` of `x` `[B, in_features]`."""
        for place, layer in enumerate(self.layers):
            # forward, not a call: looking for hooks costs as much as a small layer
            x = layer.forward(x)
            if self.norms is not None:
                x = self.norms[place].forward(x)
            x = x.relu_()
        return x
