"""Philox4x32-10 for many counters at once, in torch operations alone.

Works on any device, never waits for it, and gives the words of `philox.reference`. For code that is
not a kernel: a draw is some 70 small operations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from relive.ops.philox.reference import MASK, MULTIPLIER_0, MULTIPLIER_2, WEYL_0, WEYL_1

ROUNDS = 10


class Philox:
    """A keyed generator without a position: the counters are arguments.

    The key lies in device memory, so a captured CUDA graph follows `reseed`.
    """

    def __init__(self, device: torch.device) -> None:
        self._multipliers = torch.tensor([[MULTIPLIER_0], [MULTIPLIER_2]], device=device)
        self._keys = torch.zeros(ROUNDS, 2, 1, dtype=torch.int64, device=device)
        self._key_of_round = list(self._keys)  # views

    def reseed(self, seed: int) -> None:
        """Sets the key, 64 bits of which the low word comes first. Copies from the host."""
        low, high = seed & MASK, (seed >> 32) & MASK
        keys = [[[(low + r * WEYL_0) & MASK], [(high + r * WEYL_1) & MASK]] for r in range(ROUNDS)]
        self._keys.copy_(torch.tensor(keys, device="cpu"))

    def words(self, counter: Tensor, stream: Tensor) -> Tensor:
        """Four random 32-bit words for each counter: [4, E] int64. The host does not wait.

        Args:
            counter: [E] int64, all 64 bits count; the number of the draw.
            stream: [E] int64 in [0, 2^32); streams never meet.
        """
        # The four words of a block are two rows, those that get multiplied and those that do not.
        # A product wraps around in int64, but its bits are those of the unsigned one.
        even = torch.stack((counter & MASK, stream))
        odd = torch.stack(((counter >> 32) & MASK, torch.zeros_like(stream)))
        for key in self._key_of_round:
            product = (even * self._multipliers).flip(0)
            high = product >> 32
            even = high.bitwise_xor_(odd).bitwise_xor_(key).bitwise_and_(MASK)
            odd = product  # its high half is dropped by the next mask
        return torch.stack((even, odd & MASK), dim=1).view(4, -1)
