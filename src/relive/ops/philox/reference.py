"""Philox4x32-10, the counter-based generator of Salmon et al. (Random123, SC 2011)."""

from __future__ import annotations

MULTIPLIER_0, MULTIPLIER_2 = 0xD2511F53, 0xCD9E8D57
WEYL_0, WEYL_1 = 0x9E3779B9, 0xBB67AE85
MASK = 0xFFFFFFFF


def philox(seed: int, counter: int, stream: int = 0) -> tuple[int, int, int, int]:
    """Four random 32-bit words, a function of the arguments alone.

    Args:
        seed: 64-bit key, low word first.
        counter: 64-bit counter, the two low words of Philox's counter; the number of the draw.
        stream: third word of the counter; streams never meet.
    """
    key_0, key_1 = seed & MASK, (seed >> 32) & MASK
    c0, c1, c2, c3 = counter & MASK, (counter >> 32) & MASK, stream & MASK, 0
    for _ in range(10):
        product_0, product_2 = MULTIPLIER_0 * c0, MULTIPLIER_2 * c2
        c0, c1, c2, c3 = (
            (product_2 >> 32) ^ c1 ^ key_0,
            product_2 & MASK,
            (product_0 >> 32) ^ c3 ^ key_1,
            product_0 & MASK,
        )
        key_0, key_1 = (key_0 + WEYL_0) & MASK, (key_1 + WEYL_1) & MASK
    return c0, c1, c2, c3


def random_below(bound: int, seed: int, counter: int, stream: int = 0) -> int:
    """An integer in [0, bound): the high half of a 64-bit random number times `bound`."""
    high, low, _, _ = philox(seed, counter, stream)
    return (((high << 32) | low) * bound) >> 64
