"""Philox4x32-10 for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from relive.ops.compiled import helper
from relive.ops.philox.vectors import BLOCKS, eight_blocks, eight_other_words


@helper
def random_bits(seed: Any, counter: Any, stream: Any, count: Any) -> Any:
    """64 random bits for each of the blocks from `counter` on: their first two words."""
    bits = np.empty(count + BLOCKS, np.uint64)
    for i in range(0, count, BLOCKS):
        eight_blocks(seed, counter + i, np.int64(stream), np.int64(bits[i:].ctypes.data))
    return bits[:count]


@helper
def other_random_bits(seed: Any, counter: Any, stream: Any, count: Any) -> Any:
    """The same of their last two words, independent of the first."""
    bits = np.empty(count + BLOCKS, np.uint64)
    for i in range(0, count, BLOCKS):
        eight_other_words(seed, counter + i, np.int64(stream), np.int64(bits[i:].ctypes.data))
    return bits[:count]
