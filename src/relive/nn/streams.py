"""Random numbers for networks, from a stream of their own."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor


class RandomStream:
    """Draws on a device that depend on nothing but a seed and the draws before; never waits.

    Args:
        seed: 0 <= seed < 2^63.
        device: Where the numbers are made.

    Attributes:
        generator: What draws; a CUDA graph that draws from it has to know it.
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.generator = torch.Generator(self.device).manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Draws of the standard normal, float32 `[*shape]`."""
        return torch.randn(shape, generator=self.generator, device=self.device)

    def choose(self, count: int, among: int) -> Tensor:
        """`count` different numbers of 0 ... among - 1, each subset as likely; int64 `[count]`."""
        keys = torch.rand(among, generator=self.generator, device=self.device)
        return keys.topk(count).indices

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is."""
        return {"kind": self.device.type, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where `state_dict` was asked for.

        Two kinds of device have generators of two kinds. On another one the stream goes on from a
        seed that follows from the state, with other numbers.
        """
        saved: Tensor = state["generator"].cpu()
        if state["kind"] == self.device.type:
            self.generator.set_state(saved)
        else:
            digest = hashlib.sha256(saved.numpy().tobytes()).digest()
            self.generator.manual_seed(int.from_bytes(digest[:7], "little"))
