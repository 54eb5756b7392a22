"""Critics forwards and backwards without autograd, in memory that stays where it is.

    K  critics    B  rows of the batch    D  dimensions of an action
    F  features that go into a layer      G  features that come out of it

To build, walk and forget a graph takes a tenth of the time of an update of small critics. What a
step needs is known beforehand: the slope of the loss at the values, which `relive.losses` has, then
two products and a mask for each layer. The bits are those of autograd.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor

from relive.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from relive.batch import Observation
    from relive.nn.actor_critic import Critics
    from relive.nn.ensemble import EnsembleLinear
    from relive.nn.flat import FlatParameters

relu_backward = torch.ops.aten.threshold_backward.grad_input


class _Layer(NamedTuple):
    """A linear layer of K critics, and where its outputs go and the slopes of its inputs."""

    weight: Tensor  # [K, F, G]
    bias: Tensor  # [K, 1, G]
    output: Tensor | None  # [K, B, G]; None: anew, each time
    input_slope: Tensor | None  # [K, B, F]


class Backprop:
    """Values of critics, and what follows from the slope of a loss at them.

    Values are forgotten at the next call for any: what goes backwards is the last `forward`.

    Critics that are more than linear layers with a ReLU between, as those of images or with layer
    normalisation, go by autograd, through the same calls.

    Args:
        critics: Whose values are asked for.
        parameters: All of theirs.
        targets: The same critics some steps ago.

    Attributes:
        by_hand: Whether autograd is left out. May be set to False, for `torch.compile` to see the
            whole graph.
    """

    def __init__(self, critics: Critics, parameters: FlatParameters, targets: Critics) -> None:
        self._critics, self._parameters, self._targets = critics, parameters, targets
        # a weight and a bias for each layer, and nothing in an encoder or a normalisation
        self.by_hand = len(list(critics.parameters())) == 2 * len(critics.members.layers)
        self._grads = [
            (cast("Tensor", layer.weight.grad), cast("Tensor", layer.bias.grad))
            for layer in _linear(critics)
        ]
        self._rows = -1  # as many as there is memory for
        self._layers: dict[tuple[bool, int], list[_Layer]] = {}
        self._last: list[_Layer] = []  # at the last `forward`
        self._inputs: list[Tensor] = []  # of each of them

    def forward(self, obs: Observation, action: Tensor, members: int | None = None) -> Tensor:
        """As `Critics.forward`, bit for bit; by hand without a graph.

        Args:
            obs: Observations of B rows.
            action: float `[B, D]`.
            members: Only so many critics are asked, the first ones; None: all.

        Returns:
            float `[K, B]`.
        """
        if not self.by_hand:
            return self._critics.forward(obs, action, members)
        self._last = self._layers_of(self._critics, members, len(action))
        with torch.no_grad():
            return self._values(self._critics.features, self._last, obs, action)

    @torch.no_grad()
    def target(self, obs: Observation, action: Tensor) -> Tensor:
        """Values of the targets, float `[K, B]`, without a graph."""
        if not self.by_hand:
            return self._targets.forward(obs, action)
        self._last = []
        layers = self._layers_of(self._targets, None, len(action))
        return self._values(self._targets.features, layers, obs, action)

    def take_grad(
        self, outputs: Sequence[Tensor], slopes: Sequence[Tensor], *, add: bool = False
    ) -> None:
        """Puts the gradient of a loss into the parameters' `grad`.

        Args:
            outputs: The values of all critics that the last `forward` has given, `[K, B]`.
            slopes: Derivative of the loss by each of them, `[K, B]`.
            add: To what is there, instead of in its place.

        Raises:
            InputError: There are no values to go back from.
        """
        if not self.by_hand:
            self._parameters.take_grad(outputs, slopes, add=add)
            return
        with torch.no_grad():
            backwards = self._backwards(slopes[0])
            for (_, x, slope), (grad, bias_grad) in zip(backwards, self._grads[::-1], strict=True):
                if add:
                    grad.baddbmm_(x.mT, slope)
                    bias_grad.add_(slope.sum(1, keepdim=True))
                else:
                    torch.bmm(x.mT, slope, out=grad)
                    torch.sum(slope, 1, keepdim=True, out=bias_grad)

    def to_action(self, q: Tensor, slope: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """A step back, towards the parameters of the policy that has chosen the action.

        Args:
            q: What the last `forward` has given for this action, `[K, B]`.
            slope: Derivative of a loss by it, `[K, B]`.
            action: `[B, D]`, with the graph of the policy.

        Returns:
            A tensor with the graph of the policy and the derivative by it: by hand the action, by
            autograd still the values.

        Raises:
            InputError: There are no values to go back from.
        """
        if not self.by_hand:
            return q, slope
        with torch.no_grad():
            *_, (layer, _, slope) = self._backwards(slope)
            of_action = layer.weight[:, -action.shape[1] :]
            return action, torch.bmm(slope, of_action.mT).sum(0)

    def _values(
        self,
        features: Callable[[Observation, Tensor], Tensor],
        layers: list[_Layer],
        obs: Observation,
        action: Tensor,
    ) -> Tensor:
        x = features(obs, action)
        self._inputs = [x.expand(len(layers[0].weight), *x.shape)]
        *hidden, last = layers
        for layer in hidden:
            x = torch.baddbmm(layer.bias, self._inputs[-1], layer.weight, out=layer.output)
            self._inputs.append(x.relu_())
        return torch.baddbmm(last.bias, self._inputs[-1], last.weight).squeeze(2)

    def _backwards(self, slope: Tensor) -> Iterator[tuple[_Layer, Tensor, Tensor]]:
        """Layers, the last first, with what came in and the slope of what came out."""
        layers, inputs = self._last, self._inputs
        if not layers:
            raise InputError("no values to go back from: forward(...) comes first, nothing between")
        slope = slope.unsqueeze(2)
        for place in range(len(layers) - 1, 0, -1):
            layer, x = layers[place], inputs[place]
            yield layer, x, slope
            slope = torch.bmm(slope, layer.weight.mT, out=layer.input_slope)
            relu_backward(slope, x, 0, grad_input=slope)
        yield layers[0], inputs[0], slope

    def _layers_of(self, critics: Critics, members: int | None, rows: int) -> list[_Layer]:
        """The layers of the first critics, with memory: the same for all, at every call."""
        if rows != self._rows:
            memory = [_memory_for(layer.weight.detach(), rows) for layer in _linear(critics)]
            self._layers = {
                (of is self._targets, count): [
                    _Layer(
                        layer.weight.detach()[:count],
                        layer.bias.detach()[:count],
                        *(None if room is None else room[:count] for room in rooms),
                    )
                    for layer, rooms in zip(_linear(of), memory, strict=True)
                ]
                for of in (self._critics, self._targets)
                for count in range(1, critics.members.members + 1)
            }
            self._rows = rows
        return self._layers[critics is self._targets, members or critics.members.members]


def _linear(critics: Critics) -> Sequence[EnsembleLinear]:
    return cast("Sequence[EnsembleLinear]", critics.members.layers)


def _memory_for(weight: Tensor, rows: int) -> tuple[Tensor | None, Tensor | None]:
    """Memory for outputs of a layer, and for slopes of its inputs.

    None on a GPU, where a captured graph keeps the addresses it has seen, whatever comes between.
    """
    if weight.is_cuda:
        return None, None
    members, in_features, out_features = weight.shape
    return weight.new_empty(members, rows, out_features), weight.new_empty(
        members, rows, in_features
    )
