"""What stands for the two things of an agent's update that the pretended device cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from relive.nn.adam import Adam
from relive.nn.backprop import PolicyBackprop
from relive.nn.flat import FlatParameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def stand_in_for_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents learn something, if not the right thing; all else of an update is as it is."""
    monkeypatch.setattr(Adam, "step", _step_plainly)
    monkeypatch.setattr(FlatParameters, "take_grad", _take_something)
    monkeypatch.setattr(PolicyBackprop, "take_grad", _take_something_of_policy)


def _take_something(
    self: FlatParameters,
    outputs: Sequence[torch.Tensor],
    slopes: Sequence[torch.Tensor],
    *,
    add: bool = False,
) -> None:
    with torch.no_grad():
        self.grad.copy_(self.vector).mul_(0.1).add_((outputs[0] * slopes[0]).sum())


def _take_something_of_policy(self: PolicyBackprop, *given: Any, **settings: Any) -> None:
    self._last = None
    self._parameters.take_grad(*given, **settings)


def _step_plainly(self: Adam, lr: float | torch.Tensor) -> None:
    """In place of the fused step, whose shapes torch cannot foretell."""
    self.steps += 1
    self._vector.sub_(self._grad * lr)
