"""The way back from the slope of a loss to the gradients of critics and policies, by hand.

    K  critics    B  rows of the batch    D  dimensions of an action

`relive.losses` has the slope of a loss at the outputs of a network; `relive.nn.stack` goes from
there to its parameters. Networks that are more than linear layers with a ReLU between, as those of
images, go by autograd, through the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relive.errors import InputError
from relive.nn.actor_critic import DeterministicPolicy
from relive.nn.flat import gradient
from relive.nn.stack import Layer, Pass, grads_of, in_memory_of, is_all_of, with_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relive.batch import Observation
    from relive.nn.actor_critic import Critics, GaussianPolicy
    from relive.nn.flat import FlatParameters
    from relive.nn.stack import Modules


class CriticBackprop:
    """Values of critics, and what follows from the slope of a loss at them.

    Values are forgotten at the next call for any: what goes backwards is the last `forward`, once,
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
        self.by_hand = is_all_of(critics.members.stack, critics)
        self._grads = grads_of(critics.members.stack)
        self._rows = -1  # as many as there is memory for
        self._layers: dict[int, list[Layer]] = {}  # by the number of critics that are asked
        self._target_layers: list[Layer] = []
        self._last: Pass | None = None
        self._values: Tensor | None = None  # as they were given

    def forward(self, obs: Observation, action: Tensor, members: int | None = None) -> Tensor:
        """As `Critics.forward`, see `stack` for the last bits; by hand without a graph.

        Args:
            obs: Observations of B rows.
            action: float `[B, D]`.
            members: Only so many critics are asked, the first ones; None: all.

        Returns:
            float `[K, B]`.
        """
        if not self.by_hand:
            return self._critics.forward(obs, action, members)
        members = members or self._critics.members.members
        x = self._critics.features(obs, action.detach())
        self._make_room(x.shape[0])
        self._last = Pass(self._layers[members], x.expand(members, *x.shape))
        self._values = self._last.output.squeeze(2)
        return self._values

    def target(self, obs: Observation, action: Tensor, members: Tensor | None = None) -> Tensor:
        """Values of the targets, without a graph.

        Args:
            obs: Observations of B rows.
            action: float `[B, D]`.
            members: Only the critics of these numbers are asked, int64 `[K]`; None: all.

        Returns:
            float `[K, B]`.
        """
        if not self.by_hand:
            with torch.no_grad():
                return self._targets.forward(obs, action, members)
        self._last = None  # what is remembered of it is written over
        x = self._targets.features(obs, action.detach())
        self._make_room(x.shape[0])
        layers = self._target_layers
        if members is not None:
            layers = [layer.chosen(members) for layer in layers]
        x = x.expand(self._targets.members.count(members), *x.shape)
        return Pass(layers, x).output.squeeze(2)

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
        if outputs[0].shape[0] != self._critics.members.members:
            raise InputError("the gradient is that of all critics; given the values of some")
        last = self._last_of(outputs[0])
        last.backwards(slopes[0].unsqueeze(2), self._grads, add=add)

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
            InputError: There are no values to go back from, or they are others.
        """
        if not self.by_hand:
            return q, slope
        slope = self._last_of(q).backwards(slope.unsqueeze(2))
        first = self._layers[q.shape[0]][0].parameters.linear.weight
        of_action = first[:, -action.shape[1] :]
        return action, torch.bmm(slope, of_action.mT).sum(0)

    def _last_of(self, q: Tensor) -> Pass:
        """What gave these values, which is forgotten by that: there is one way back."""
        last = _known(self._last)
        if q is not self._values:
            raise InputError("what goes backwards are the last values, as forward gave them")
        self._last = None
        return last

    def _make_room(self, rows: int) -> None:
        """Memory for a batch, the same for critics and targets, at every call."""
        if rows == self._rows:
            return
        own = with_memory(self._critics.members.stack, rows)
        count = self._critics.members.members
        self._layers = {k: [layer.first(k) for layer in own] for k in range(1, count + 1)}
        self._target_layers = in_memory_of(own, self._targets.members.stack)
        self._rows = rows


class PolicyBackprop:
    """What a policy gives, and the gradient of its parameters.

    Args:
        policy: That acts.
        parameters: All of its.
        target: The same policy some steps ago; None: as it is.

    Attributes:
        by_hand: As of `CriticBackprop`.
    """

    def __init__(
        self,
        policy: DeterministicPolicy | GaussianPolicy,
        parameters: FlatParameters,
        target: DeterministicPolicy | GaussianPolicy | None = None,
    ) -> None:
        self._policy, self._parameters = policy, parameters
        self._target = policy if target is None else target
        self._modules = _modules_of(policy)
        self.by_hand = is_all_of(self._modules, policy)
        self._grads = grads_of(self._modules)
        self._rows = -1
        self._layers: list[Layer] = []
        self._target_layers: list[Layer] = []
        self._last: Pass | None = None
        self._action: Any = None  # as it was given

    def forward(self, obs: Observation) -> Any:
        """As the policy's own, likewise; by hand the graph begins behind the last layer."""
        if not self.by_hand:
            return self._policy.forward(obs)
        x = self._policy.encoder.forward(obs)
        self._make_room(x.shape[0])
        self._last = Pass(self._layers, x)
        self._action = self._policy.of_head(self._last.output.requires_grad_())
        return self._action

    def target(self, obs: Observation) -> Any:
        """What the target gives, without a graph."""
        if not self.by_hand:
            with torch.no_grad():
                return self._target.forward(obs)
        self._last = None  # what is remembered of it is written over
        x = self._target.encoder.forward(obs)
        self._make_room(x.shape[0])
        return self._target.of_head(Pass(self._target_layers, x).output)

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
        if outputs[0] is self._action and isinstance(self._policy, DeterministicPolicy):
            slope = self._policy.before_head(outputs[0].detach(), slopes[0])  # no engine to start
        else:
            (slope,) = gradient(outputs, [last.output], slopes)
        last.backwards(slope, self._grads, add=add)

    def _make_room(self, rows: int) -> None:
        """Memory for a batch, the same for policy and target, at every call."""
        if rows != self._rows:
            self._layers = with_memory(self._modules, rows)
            self._target_layers = in_memory_of(self._layers, _modules_of(self._target))
            self._rows = rows


def _modules_of(policy: DeterministicPolicy | GaussianPolicy) -> Modules:
    return [(layer, None) for layer in (*policy.trunk.layers, policy.head)]


def _known(last: Pass | None) -> Pass:
    if last is None:
        raise InputError("nothing to go back from: forward(...) comes first, nothing in between")
    return last
