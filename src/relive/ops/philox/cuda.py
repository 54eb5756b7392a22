"""Philox4x32-10 for Triton kernels; the words of `philox.reference`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def random_words(seed, counter, stream):
    """Four random words, uint32 [*].

    Args:
        seed: int64 [], the key.
        counter: int64 [*], the number of the draw.
        stream: int, see `words.TRAIN_STREAM`.
    """
    low = (counter & 0xFFFFFFFF).to(tl.uint32)
    high = ((counter >> 32) & 0xFFFFFFFF).to(tl.uint32)
    third = (tl.zeros_like(counter) + stream).to(tl.uint32)
    return tl.philox(seed, low, high, third, tl.zeros_like(third))


@triton.jit
def random_bits(seed, counter, stream):
    """64 random bits, uint64 [*], and as many others that are independent of them."""
    a, b, c, d = random_words(seed, counter, stream)
    return (a.to(tl.uint64) << 32) | b.to(tl.uint64), (c.to(tl.uint64) << 32) | d.to(tl.uint64)


@triton.jit
def below(bits, bound):
    """A random integer in [0, bound), int64 [*]: the high half of the product.

    Args:
        bits: uint64 [*].
        bound: int64 [*], not negative.
    """
    return tl.umulhi(bits, bound.to(tl.uint64)).to(tl.int64)
