"""Linear layers with a ReLU between, forwards and backwards without autograd.

    K  networks that are computed together    B  rows of the batch
    F  features that go into a layer          G  features that come out of it

What is done forwards and backwards is what autograd does, operation by operation, so the bits are
the same. Left out is the graph: to build, walk and forget it takes a tenth of the time of an update
of small networks. And outputs go where those of the last batch were, which is in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

relu_backward = torch.ops.aten.threshold_backward.grad_input


class Layer(NamedTuple):
    """A linear layer, of K networks or of one, and where outputs and slopes go; None: anew."""

    weight: Tensor  # [K, F, G] or [F, G]
    bias: Tensor  # [K, 1, G] or [G]
    output: Tensor | None  # [K, B, G] or [B, G]
    input_slope: Tensor | None  # [K, B, F] or [B, F]

    def of(self, module: Any) -> Layer:
        """Another module of the same shape, in the same memory."""
        weight = _inputs_first(module.weight.detach())
        return self._replace(weight=weight, bias=module.bias.detach())

    def first(self, members: int) -> Layer:
        """Of the first of K networks, in the same memory."""
        return Layer(
            self.weight[:members],
            self.bias[:members],
            None if self.output is None else self.output[:members],
            None if self.input_slope is None else self.input_slope[:members],
        )


class Pass:
    """One way forwards through linear layers with a ReLU between, and back.

    Args:
        layers: The first to the last.
        x: What goes in, `[K, B, F]` or `[B, F]`.

    Attributes:
        output: What the last layer gives, in memory of its own.
    """

    def __init__(self, layers: Sequence[Layer], x: Tensor) -> None:
        affine = torch.addmm if x.ndim == 2 else torch.baddbmm
        self._layers, self._inputs = layers, [x]
        *hidden, last = layers
        for layer in hidden:
            x = affine(layer.bias, x, layer.weight, out=layer.output).relu_()
            self._inputs.append(x)
        self.output = affine(last.bias, x, last.weight)

    def backwards(self, slope: Tensor) -> Iterator[tuple[Layer, Tensor, Tensor]]:
        """Layers, the last first, with what came in and the slope of what came out."""
        product = torch.mm if slope.ndim == 2 else torch.bmm
        for place in range(len(self._layers) - 1, 0, -1):
            layer, x = self._layers[place], self._inputs[place]
            yield layer, x, slope
            slope = product(slope, layer.weight.mT, out=layer.input_slope)
            relu_backward(slope, x, 0, grad_input=slope)
        yield self._layers[0], self._inputs[0], slope

    def take_grad(
        self, slope: Tensor, grads: Sequence[tuple[Tensor, Tensor]], *, add: bool
    ) -> None:
        """Puts the gradient of weights and biases into `grads`, of the last layer first."""
        product, one = (torch.mm, True) if slope.ndim == 2 else (torch.bmm, False)
        steps = zip(self.backwards(slope), grads, strict=True)
        for (_, x, slope_here), (grad, bias_grad) in steps:
            if add:
                grad.add_(product(x.mT, slope_here))
                bias_grad.add_(slope_here.sum(-2, keepdim=not one))
            else:
                product(x.mT, slope_here, out=grad)
                torch.sum(slope_here, -2, keepdim=not one, out=bias_grad)


def is_all_of(layers: Sequence[nn.Module], network: nn.Module) -> bool:
    """Whether a network has a weight and a bias for each layer, and no other parameters."""
    return len(list(network.parameters())) == 2 * len(layers)


def _linear(layers: Any) -> Sequence[nn.Linear]:
    return cast("Sequence[nn.Linear]", layers)


def _inputs_first(weight: Tensor) -> Tensor:
    """`[F, G]` of `nn.Linear`'s `[G, F]`; `[K, F, G]` as it is."""
    return weight.mT if weight.ndim == 2 else weight


def grads_of(layers: Any) -> list[tuple[Tensor, Tensor]]:
    """Of weights and biases, the last layer first."""
    return [
        (_inputs_first(cast("Tensor", layer.weight.grad)), cast("Tensor", layer.bias.grad))
        for layer in reversed(_linear(layers))
    ]


@torch.inference_mode(False)  # for use in and outside of it
def with_memory(layers: Any, rows: int) -> list[Layer]:
    """Layers with memory for so many rows.

    On a GPU there is none: a captured graph keeps the addresses it has seen, whatever comes
    between.
    """
    found = []
    for layer in _linear(layers):
        weight = _inputs_first(layer.weight.detach())
        output = slope = None
        if not weight.is_cuda:
            *members, in_features, out_features = weight.shape
            output = weight.new_empty(*members, rows, out_features)
            slope = weight.new_empty(*members, rows, in_features)
        found.append(Layer(weight, layer.bias.detach(), output, slope))
    return found
