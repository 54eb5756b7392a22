"""Adam on one vector of parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from relive.nn.flat import FlatParameters


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1), bit for bit `torch.optim.Adam(..., fused=True)`.

        m = b1 m + (1 - b1) g             v = b2 v + (1 - b2) g^2
        p = p - lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

    It calls the same kernel. What it leaves out is the bookkeeping for many groups of many tensors,
    which takes longer than the kernel when a network is small.

    Args:
        parameters: Are moved, in place, along their `grad`.
        betas: b1 and b2.
        eps: Keeps the step finite where gradients vanish.

    Attributes:
        first, second: The moments m and v, `[P]`.
        steps: t, the steps made so far, float `[]`, on the device.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self._vector, self._grad = parameters.vector.detach(), parameters.grad
        self._betas, self._eps = betas, eps
        self.first = torch.zeros_like(self._vector)
        self.second = torch.zeros_like(self._vector)
        self.steps = torch.zeros((), dtype=torch.float32, device=self._vector.device)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The moments and the steps made so far."""
        return {"first": self.first, "second": self.second, "steps": self.steps}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Copies what `state_dict` gave."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])

    def step(self, lr: float | torch.Tensor) -> None:
        """Makes one step of size `lr`, a number or float `[]` on the device; waits for nothing."""
        self.steps += 1
        torch._fused_adam_(
            [self._vector],
            [self._grad],
            [self.first],
            [self.second],
            [],
            [self.steps],
            lr=lr,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=0.0,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
        )
