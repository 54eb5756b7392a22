"""Philox4x32-10 for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from relive.ops.compiled import helper


@helper
def random_bits(seed: Any, counter: Any, stream: Any) -> Any:
    """The first two words of the block as one unsigned 64-bit number."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    key_0 = np.uint64(seed) & low
    key_1 = np.uint64(seed) >> half
    c0 = np.uint64(counter) & low
    c1 = np.uint64(counter) >> half
    c2 = np.uint64(stream)
    c3 = np.uint64(0)
    for _ in range(10):
        product_0 = np.uint64(0xD2511F53) * c0
        product_2 = np.uint64(0xCD9E8D57) * c2
        c0 = (product_2 >> half) ^ c1 ^ key_0
        c1 = product_2 & low
        c2 = (product_0 >> half) ^ c3 ^ key_1
        c3 = product_0 & low
        key_0 = (key_0 + np.uint64(0x9E3779B9)) & low
        key_1 = (key_1 + np.uint64(0xBB67AE85)) & low
    return (c0 << half) | c1
