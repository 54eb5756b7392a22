"""Linear layers with a ReLU between, forwards and backwards without autograd.

    K  networks that are computed together    B  rows of the batch
    F  features that go into a layer          G  features that come out of it

    x  ->  x W + b  ->  normalised, scaled and shifted, if the layer has a norm  ->  ReLU

What is done forwards and backwards is what autograd does, product by product (`nn/products.py`).
The bits of critics are the same, but in layers so wide that a product adds up its terms in parts:
with MKL of more than 384 features. Of policies the last ones may differ, since of the slope of a
critic's input only the part of the action is computed. Left out is the graph: to build, walk and
forget it takes a tenth of the time of an update of small networks. And outputs go where those of
the last batch were, which is in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from relive.nn.products import affine, rectified, slope_before_relu, weight_slope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Modules = Sequence[tuple[nn.Module, nn.Module | None]]  # linear layers with their norms

norm_backward = torch.ops.aten.native_layer_norm_backward
EPS = 1e-5  # as of torch.nn.functional.layer_norm


class Affine(NamedTuple):
    """Weight and bias of K linear layers or norms, or of one linear layer; or their gradients."""

    weight: Tensor  # [K, F, G] or [F, G]; of norms [K, 1, G]
    bias: Tensor  # [K, 1, G] or [G]


class Parameters(NamedTuple):
    """Of a layer of K networks or of one; or their gradients."""

    linear: Affine
    norm: Affine | None

    @classmethod
    def of(cls, linear: Any, norm: Any, values: Callable[[Any], Tensor]) -> Parameters:
        """`values` of the parameters of modules: what they are, or their gradients."""
        weight = _inputs_first(values(linear.weight))
        scale = None if norm is None else Affine(values(norm.weight), values(norm.bias))
        return cls(Affine(weight, values(linear.bias)), scale)

    def part(self, of: Callable[[Tensor], Tensor]) -> Parameters:
        """`of` each tensor."""
        norm = None if self.norm is None else Affine(*map(of, self.norm))
        return Parameters(Affine(*map(of, self.linear)), norm)


class Memory(NamedTuple):
    """Where a layer puts what it computes; None: in memory made anew."""

    output: Tensor | None = None  # of its linear layer, [K, B, G] or [B, G]
    active: Tensor | None = None  # behind norm and ReLU, the same; None without a norm
    input_slope: Tensor | None = None  # [K, B, F] or [B, F]

    def first(self, members: int) -> Memory:
        """Of the first of K networks."""
        return Memory(*(None if place is None else place[:members] for place in self))


class Layer(NamedTuple):
    """A layer of K networks or of one."""

    parameters: Parameters
    memory: Memory

    def first(self, members: int) -> Layer:
        """Of the first of K networks, in the same memory."""
        parameters = self.parameters.part(lambda parameter: parameter[:members])
        return Layer(parameters, self.memory.first(members))

    def chosen(self, members: Tensor) -> Layer:
        """Of the networks of these numbers, int64 `[k]`, in the memory of the first k."""
        parameters = self.parameters.part(lambda parameter: parameter.index_select(0, members))
        return Layer(parameters, self.memory.first(len(members)))


class Normal(NamedTuple):
    """What a norm was given, and gave before scale and shift."""

    x: Tensor
    output: Tensor
    mean: Tensor
    rstd: Tensor


class Pass:
    """One way forwards through layers, and one back.

    Args:
        layers: The first to the last, which has no norm.
        x: What goes in, `[K, B, F]` or `[B, F]`.

    Attributes:
        output: What the last layer gives, in memory of its own.
    """

    def __init__(self, layers: Sequence[Layer], x: Tensor) -> None:
        self._layers, self._inputs = layers, [x]
        self._normals: list[Normal | None] = []  # behind each layer but the last
        *hidden, last = layers
        for ((weight, bias), norm), memory in hidden:
            if norm is None:
                x, normal = rectified(x, weight, bias, memory.output), None
            else:
                x = affine(x, weight, bias, memory.output)
                normal = Normal(x, *torch.native_layer_norm(x, x.shape[-1:], None, None, EPS))
                x = torch.addcmul(norm.bias, normal.output, norm.weight, out=memory.active).relu_()
            self._normals.append(normal)
            self._inputs.append(x)
        (weight, bias), _ = last.parameters
        self.output = affine(x, weight, bias)

    def backwards(
        self, slope: Tensor, grads: Sequence[Parameters] | None = None, *, add: bool = False
    ) -> Tensor:
        """The way back, once: activations are written over.

        Args:
            slope: Of the output, of its shape.
            grads: Where the gradients of each layer go, the first to the last; None: nowhere.
            add: To what is there, instead of in its place.

        Returns:
            The slope of what the first linear layer gives.
        """
        for place in range(len(self._layers) - 1, -1, -1):
            (linear, norm), memory = self._layers[place]
            x, grad = self._inputs[place], None if grads is None else grads[place]
            if norm is not None:
                slope = self._through_norm(place, slope, grad and grad.norm, add=add)
            if grad is not None:
                weight_grad, bias_grad = grad.linear
                if add:  # laid out alike: the other way round a product may have other last bits
                    weight_grad.add_(weight_slope(x, slope, torch.empty_like(weight_grad)))
                else:
                    weight_slope(x, slope, weight_grad)
                _sum_rows(slope, bias_grad, add=add)
            if place > 0:
                slope = slope_before_relu(slope, linear.weight, x, memory.input_slope)
        return slope

    def _through_norm(self, place: int, slope: Tensor, grad: Affine | None, *, add: bool) -> Tensor:
        """The slope of what a norm was given, of that of what it gave, which is written over."""
        normal, norm = self._normals[place], self._layers[place].parameters.norm
        assert normal is not None
        assert norm is not None
        if grad is not None:
            _sum_rows(slope * normal.output, grad.weight, add=add)
            _sum_rows(slope, grad.bias, add=add)
        x, _, mean, rstd = normal
        slope = slope.mul_(norm.weight)
        slope_of_x: Tensor = norm_backward(
            slope, x, x.shape[-1:], mean, rstd, None, None, [True, False, False]
        )[0]
        return slope_of_x


def _sum_rows(slope: Tensor, out: Tensor, *, add: bool) -> None:
    """The sum over the rows of a batch, `[K, 1, G]` or `[G]`, in place or added."""
    keepdim = slope.ndim == 3
    if add:
        out.add_(slope.sum(-2, keepdim=keepdim))
    else:
        torch.sum(slope, -2, keepdim=keepdim, out=out)


def _inputs_first(weight: Tensor) -> Tensor:
    """`[F, G]` of `nn.Linear`'s `[G, F]`; `[K, F, G]` as it is."""
    return weight.mT if weight.ndim == 2 else weight


def is_all_of(modules: Modules, network: nn.Module) -> bool:
    """Whether a network has the parameters of these modules, and no others."""
    known = {parameter for pair in modules for m in pair if m for parameter in m.parameters()}
    return known == set(network.parameters())


def grads_of(modules: Modules) -> list[Parameters]:
    """Gradients, in the memory that modules have for them."""
    return [Parameters.of(*pair, lambda parameter: parameter.grad) for pair in modules]


def values_of(modules: Modules) -> list[Parameters]:
    """Parameters, in the memory of modules."""
    return [Parameters.of(*pair, lambda parameter: parameter.detach()) for pair in modules]


@torch.inference_mode(False)  # for use in and outside of it
def with_memory(modules: Modules, rows: int) -> list[Layer]:
    """Layers with memory for so many rows.

    On a GPU there is none: a captured graph keeps the addresses it has seen, whatever comes
    between.
    """
    layers = []
    for parameters in values_of(modules):
        weight, memory = parameters.linear.weight, Memory()
        if not weight.is_cuda:
            *members, in_features, out_features = weight.shape
            output, active = (weight.new_empty(*members, rows, out_features) for _ in range(2))
            memory = Memory(
                output,
                None if parameters.norm is None else active,
                weight.new_empty(*members, rows, in_features),
            )
        layers.append(Layer(parameters, memory))
    return layers


def in_memory_of(layers: Sequence[Layer], modules: Modules) -> list[Layer]:
    """Layers of other modules of the same shapes."""
    pairs = zip(values_of(modules), layers, strict=True)
    return [Layer(parameters, layer.memory) for parameters, layer in pairs]
