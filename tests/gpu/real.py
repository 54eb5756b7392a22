"""A CUDA device that is there, with what tests do with one that is pretended."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


class RealDevice:
    """The current CUDA device.

    Attributes:
        lag: Of no effect: it lags by itself.
    """

    def __init__(self) -> None:
        self.lag = False

    def inner(self, tensor: Tensor) -> Tensor:
        """The tensor in memory of the host; waits for what all streams were given."""
        torch.cuda.synchronize()
        return tensor.cpu()

    @contextmanager
    def forbid_waits(self) -> Iterator[None]:
        """Torch raises inside at what makes the host wait."""
        before = torch.cuda.get_sync_debug_mode()
        try:
            torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def catch_up(self) -> None:
        """All that the device was given is done."""
        torch.cuda.synchronize()
