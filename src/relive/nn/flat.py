"""All parameters of a module in one vector.

A small network costs more to launch than to compute. With one vector the optimiser, the norm of
the gradient and the step of a target network are one kernel each, however many layers there are.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward

if TYPE_CHECKING:
    from collections.abc import Sequence


def gradient(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], slopes: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """`torch.autograd.grad`, but for what it does to `slopes` before.

    To compare shapes it imports the compiler's, which takes two seconds; then 20 us at every call.
    """
    given = tuple(outputs), tuple(slopes), False, False, tuple(inputs), False  # as it does
    found: tuple[Tensor, ...] = _engine_run_backward(*given, accumulate_grad=False)
    return found


class FlatParameters:
    """The parameters of a module, and their gradients, moved into two vectors.

    The module keeps views of them. Build it once the module is on its device: `module.to(...)` and
    `module.zero_grad()` would cut the views off; use `grad.zero_()`.

    Args:
        module: Changed in place: its parameters and their gradients become views.

    Attributes:
        vector: The parameters, `[P]`, with `.grad` set: what an optimiser is given.
        grad: The gradients, `[P]`, accumulated into by `backward`.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parameters = parameters = list(module.parameters())
        # every parameter starts on a cache line; the gaps hold zeros and stay so
        starts = [0, *itertools.accumulate(-(-p.numel() // 16) * 16 for p in parameters)]
        self.vector = nn.Parameter(parameters[0].new_zeros(starts[-1], requires_grad=True))
        self.grad: Tensor = torch.zeros_like(self.vector, requires_grad=False)
        self.vector.grad = self.grad
        values = self.vector.detach()
        for start, parameter in zip(starts, parameters, strict=False):
            place = slice(start, start + parameter.numel())
            values[place] = parameter.detach().flatten()
            parameter.data = values[place].view_as(parameter)
            parameter.grad = self.grad[place].view_as(parameter)
        self._grads = [p.grad for p in parameters if p.grad is not None]

    def take_grad(
        self, outputs: Sequence[Tensor], slopes: Sequence[Tensor], *, add: bool = False
    ) -> None:
        """Puts the gradient of a loss into `grad`.

        `backward` would take a vector of zeros and add to it, one parameter after the other.

        Args:
            outputs: What the loss depends on, with a graph; other parameters that had a part in
                them get no gradient.
            slopes: Derivative of the loss by each of them, of its shape.
            add: To what is there, instead of in its place.
        """
        grads = gradient(outputs, self._parameters, slopes)
        if add:
            torch._foreach_add_(self._grads, grads)
        else:
            torch._foreach_copy_(self._grads, grads)

    def clip_grad(self, max_norm: float | None) -> Tensor:
        """Shortens the gradient, in place, to a length of `max_norm` if it is longer.

        `torch.nn.utils.clip_grad_norm_` for one vector, without its grouping of tensors.

        Returns:
            The length before, float `[]`; nothing is read back.
        """
        norm: Tensor = torch.linalg.vector_norm(self.grad)
        if max_norm is not None:
            self.grad.div_((norm / max_norm).clamp_(min=1.0))
        return norm

    def step_towards(self, other: FlatParameters, tau: float) -> None:
        """Moves these parameters, in place, a part of the way: p = (1 - tau) p + tau p'.

        Args:
            other: Of a module of the same shape.
            tau: 1 copies; smaller is the moving average of Polyak.
        """
        with torch.no_grad():
            if tau == 1.0:
                self.vector.copy_(other.vector)
            else:
                self.vector.lerp_(other.vector, tau)
