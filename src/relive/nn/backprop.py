"""Critics and policies forwards and backwards without autograd, in memory that stays where it is.

    K  critics    B  rows of the batch    D  dimensions of an action
    F  features that go into a layer      G  features that come out of it

To build, walk and forget a graph takes a tenth of the time of an update of small networks. What a
step needs is known beforehand: the slope of the loss at their outputs, which `relive.losses` has,
then two products and a mask for each layer. The bits are those of autograd.

Networks that are more than linear layers with a ReLU between, as those of images or with layer
normalisation, go by autograd, through the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from relive.errors import InputError
from relive.nn.flat import gradient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relive.batch import Observation
    from relive.nn.actor_critic import Critics, DeterministicPolicy, GaussianPolicy
    from relive.nn.flat import FlatParameters

relu_backward = torch.ops.aten.threshold_backward.grad_input


class _Layer(NamedTuple):
    """A linear layer, of K networks or of one, and where outputs and slopes go; None: anew."""

    weight: Tensor  # [K, F, G] or [F, G]
    bias: Tensor  # [K, 1, G] or [G]
    output: Tensor | None  # [K, B, G] or [B, G]
    input_slope: Tensor | None  # [K, B, F] or [B, F]

    def first(self, members: int) -> _Layer:
        """Of the first of K networks, in the same memory."""
        return _Layer(
            self.weight[:members],
            self.bias[:members],
            None if self.output is None else self.output[:members],
            None if self.input_slope is None else self.input_slope[:members],
        )


class _Pass:
    """One way forwards through linear layers with a ReLU between, and back.

    Args:
        layers: The first to the last.
        x: What goes in, `[K, B, F]` or `[B, F]`.

    Attributes:
        output: What the last layer gives, in memory of its own.
    """

    def __init__(self, layers: Sequence[_Layer], x: Tensor) -> None:
        affine = torch.addmm if x.ndim == 2 else torch.baddbmm
        self._layers, self._inputs = layers, [x]
        *hidden, last = layers
        for layer in hidden:
            x = affine(layer.bias, x, layer.weight, out=layer.output).relu_()
            self._inputs.append(x)
        self.output = affine(last.bias, x, last.weight)

    def backwards(self, slope: Tensor) -> Iterator[tuple[_Layer, Tensor, Tensor]]:
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


class CriticBackprop:
    """Values of critics, and what follows from the slope of a loss at them.

    Values are forgotten at the next call for any: what goes backwards is the last `forward`,
    through weights as they are then. Hooks of autograd are not called.

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
        linear = list(critics.members.layers)
        self.by_hand = _are_all(linear, critics)
        self._grads = _grads(linear)
        self._rows = -1  # as many as there is memory for
        self._layers: dict[int, list[_Layer]] = {}  # by the number of critics that are asked
        self._target_layers: list[_Layer] = []
        self._last: _Pass | None = None
        self._values: Tensor | None = None  # as they were given

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
        with torch.no_grad():
            members = members or self._critics.members.members
            x = self._critics.features(obs, action)
            self._make_room(len(x))
            self._last = _Pass(self._layers[members], x.expand(members, *x.shape))
            self._values = self._last.output.squeeze(2)
            return self._values

    @torch.no_grad()
    def target(self, obs: Observation, action: Tensor) -> Tensor:
        """Values of the targets, float `[K, B]`, without a graph."""
        if not self.by_hand:
            return self._targets.forward(obs, action)
        self._last = None  # what is remembered of it is written over
        x = self._targets.features(obs, action)
        self._make_room(len(x))
        x = x.expand(self._targets.members.members, *x.shape)
        return _Pass(self._target_layers, x).output.squeeze(2)

    def take_grad(
        self, outputs: Sequence[Tensor], slopes: Sequence[Tensor], *, add: bool = False
    ) -> None:
        """Puts the gradient of a loss into the parameters' `grad`.

        Args:
            outputs: The values of all critics that the last `forward` has given, `[K, B]`.
            slopes: Derivative of the loss by each of them, `[K, B]`.
            add: To what is there, instead of in its place.

        Raises:
            InputError: There are no values to go back from, or they are others, or not of all.
        """
        if not self.by_hand:
            self._parameters.take_grad(outputs, slopes, add=add)
            return
        last = _known(self._last)
        if outputs[0] is not self._values or len(outputs[0]) != self._critics.members.members:
            raise InputError(
                "the gradient is that of all critics' last values, as forward gave them"
            )
        with torch.no_grad():
            last.take_grad(slopes[0].unsqueeze(2), self._grads, add=add)

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
            *_, (layer, _, slope) = _known(self._last).backwards(slope.unsqueeze(2))
            of_action = layer.weight[:, -action.shape[1] :]
            return action, torch.bmm(slope, of_action.mT).sum(0)

    def _make_room(self, rows: int) -> None:
        """Memory for a batch, the same for critics and targets, at every call."""
        if rows == self._rows:
            return
        own = _with_memory(self._critics.members.layers, rows)
        count = self._critics.members.members
        self._layers = {k: [layer.first(k) for layer in own] for k in range(1, count + 1)}
        self._target_layers = [
            layer._replace(weight=target.weight.detach(), bias=target.bias.detach())
            for layer, target in zip(own, _linear(self._targets.members.layers), strict=True)
        ]
        self._rows = rows


class PolicyBackprop:
    """What a policy gives, and the gradient of its parameters.

    Args:
        policy: That acts.
        parameters: All of its.

    Attributes:
        by_hand: As of `CriticBackprop`.
    """

    def __init__(
        self, policy: DeterministicPolicy | GaussianPolicy, parameters: FlatParameters
    ) -> None:
        self._policy, self._parameters = policy, parameters
        self._linear = [*policy.trunk.layers, policy.head]
        self.by_hand = _are_all(self._linear, policy)
        self._grads = _grads(self._linear)
        self._rows = -1
        self._layers: list[_Layer] = []
        self._last: _Pass | None = None

    def forward(self, obs: Observation) -> Any:
        """As the policy's own, bit for bit; by hand the graph begins behind the last layer."""
        if not self.by_hand:
            return self._policy.forward(obs)
        with torch.no_grad():
            x = self._policy.encoder.forward(obs)
            if len(x) != self._rows:
                self._layers, self._rows = _with_memory(self._linear, len(x)), len(x)
            self._last = _Pass(self._layers, x)
        return self._policy.of_head(self._last.output.requires_grad_())

    def take_grad(
        self, outputs: Sequence[Tensor], slopes: Sequence[Tensor], *, add: bool = False
    ) -> None:
        """Puts the gradient of a loss into the parameters' `grad`.

        Args:
            outputs: What the loss depends on, of what the last `forward` has given.
            slopes: Derivative of the loss by each of them.
            add: To what is there, instead of in its place.

        Raises:
            InputError: Nothing has been given.
        """
        if not self.by_hand:
            self._parameters.take_grad(outputs, slopes, add=add)
            return
        last, self._last = _known(self._last), None  # observations of a batch are lent
        (slope,) = gradient(outputs, [last.output], slopes)
        with torch.no_grad():
            last.take_grad(slope, self._grads, add=add)


def _known(last: _Pass | None) -> _Pass:
    if last is None:
        raise InputError("nothing to go back from: forward(...) comes first, nothing in between")
    return last


def _are_all(layers: Sequence[nn.Module], of: nn.Module) -> bool:
    """Whether a network has a weight and a bias for each layer, and no other parameters."""
    return len(list(of.parameters())) == 2 * len(layers)


def _linear(layers: Any) -> Sequence[nn.Linear]:
    return cast("Sequence[nn.Linear]", layers)


def _as_input_output(weight: Tensor) -> Tensor:
    """`[F, G]` of `nn.Linear`'s `[G, F]`; `[K, F, G]` as it is."""
    return weight.mT if weight.ndim == 2 else weight


def _grads(layers: Any) -> list[tuple[Tensor, Tensor]]:
    """Of weights and biases, the last layer first."""
    return [
        (_as_input_output(cast("Tensor", layer.weight.grad)), cast("Tensor", layer.bias.grad))
        for layer in reversed(_linear(layers))
    ]


@torch.inference_mode(False)  # for use in and outside of it
def _with_memory(layers: Any, rows: int) -> list[_Layer]:
    """Layers with memory for so many rows.

    On a GPU there is none: a captured graph keeps the addresses it has seen, whatever comes
    between.
    """
    found = []
    for layer in _linear(layers):
        weight = _as_input_output(layer.weight.detach())
        output = slope = None
        if not weight.is_cuda:
            *members, in_features, out_features = weight.shape
            output = weight.new_empty(*members, rows, out_features)
            slope = weight.new_empty(*members, rows, in_features)
        found.append(_Layer(weight, layer.bias.detach(), output, slope))
    return found
