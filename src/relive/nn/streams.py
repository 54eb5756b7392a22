"""Random numbers for networks, from a stream of their own."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relive.devices import numbered

if TYPE_CHECKING:
    import numpy as np


class RandomStream:
    """Draws on a device that depend on nothing but a seed and the draws before; never waits.

    Args:
        seed: 0 <= seed < 2^63.
        device: Where the numbers are made.

    Attributes:
        generator: What draws; a CUDA graph that draws from it has to know it.
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.device = numbered(device)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self._kind: Any = {"dtype": torch.float32, "device": self.device}

    @classmethod
    def spawned(cls, rng: np.random.Generator, device: torch.device | str) -> RandomStream:
        """A stream that follows from the seed of `rng`, and takes no draw from it."""
        return cls(int(rng.spawn(1)[0].integers(2**63)), device)

    def uniform(self, *shape: int) -> Tensor:
        """Draws from [0, 1), float32 `[*shape]`."""
        return torch.rand(shape, generator=self.generator, **self._kind)

    def integers(self, end: int, count: int) -> Tensor:
        """Draws of 0 ... end - 1, int64 `[count]`."""
        return torch.randint(end, (count,), generator=self.generator, device=self.device)

    def mixed(self, usual: Tensor, other: Tensor, share: float | Tensor) -> Tensor:
        """Rows of `usual`, each with probability `share` replaced by that of `other`.

        Args:
            usual: `[E, *shape]`.
            other: The same.
            share: A number, or float `[]` on the device.
        """
        replaced = self.uniform(len(usual)) < share
        return torch.where(replaced.view(-1, *[1] * (usual.dim() - 1)), other, usual)

    def normal(self, *shape: int) -> Tensor:
        """Draws of the standard normal, float32 `[*shape]`."""
        return torch.randn(shape, generator=self.generator, **self._kind)

    def choose(self, count: int, among: int) -> Tensor:
        """`count` different numbers of 0 ... among - 1, each subset as likely; int64 `[count]`."""
        keys = self.uniform(among)
        return keys.topk(count).indices

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is."""
        return {"kind": self.device.type, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Goes on where `state_dict` was asked for; None, of before there was the stream: here.

        Two kinds of device have generators of two kinds. On another one the stream goes on from a
        seed that follows from the state, with other numbers.
        """
        if state is None:
            return
        saved: Tensor = state["generator"].cpu()
        if state["kind"] == self.device.type:
            self.generator.set_state(saved)
        else:
            digest = hashlib.sha256(saved.numpy().tobytes()).digest()
            self.generator.manual_seed(int.from_bytes(digest[:7], "little"))
