"""What an update of any agent hands back."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """The outcome of one update; nothing in it has been read back from the device.

    Attributes:
        td_error: How wrong each row was, before the weight and before the step: non-negative,
            float `[B]`. What `ReplayBuffer.update_priorities` is given.
        metrics: Name to 0-dimensional tensor, the same names at every update.
    """

    td_error: Tensor
    metrics: dict[str, Tensor]
