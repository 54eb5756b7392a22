"""Philox4x32-10 for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from relive.ops.compiled import helper
from relive.ops.philox.vectors import BLOCKS, eight_numbers, eight_other_numbers


@helper
def random_bits(seed: Any, counter: Any, stream: Any, count: Any, other: Any) -> Any:
    """64 random bits for each of the blocks from `counter` on: their first two words.

    With `other`, the last two, which are independent of those.
    """
    bits = np.empty(count + BLOCKS, np.uint64)
    for i in range(0, count, BLOCKS):
        address = np.int64(bits[i:].ctypes.data)
        if other:
            eight_other_numbers(seed, counter + i, np.int64(stream), address)
        else:
            eight_numbers(seed, counter + i, np.int64(stream), address)
    return bits[:count]
