"""How rows are drawn, in plain Python: Philox, strata, and the textbook sum tree.

Nothing here is shared with `relive`: all is written again, as plainly as possible.
"""

from __future__ import annotations


def philox(seed: int, counter: int, stream: int, fourth: int = 0) -> list[int]:
    """Philox4x32-10 as in Salmon et al. 2011, section 3.3."""
    word = 2**32
    key = [seed % 2**64 % word, seed % 2**64 // word]
    c = [counter % word, counter // word, stream, fourth]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b // word ^ c[1] ^ key[0], b % word, a // word ^ c[3] ^ key[1], a % word]
        key = [(key[0] + 0x9E3779B9) % word, (key[1] + 0xBB67AE85) % word]
    return c


def below(bound: int, seed: int, counter: int, stream: int) -> int:
    """A whole number in [0, bound), from the first half of a block."""
    words = philox(seed, counter, stream)
    return (words[0] * 2**32 + words[1]) * bound // 2**64


def chance(seed: int, counter: int, stream: int) -> int:
    """A whole number below 2^63, from the other half."""
    words = philox(seed, counter, stream)
    return (words[2] * 2**32 + words[3]) // 2


def strata_order(batch_size: int) -> list[int]:
    """Which stratum each position draws from: halve while it can be halved, even strata first."""
    if batch_size % 2:
        return list(range(batch_size))
    half = strata_order(batch_size // 2)
    return [2 * stratum for stratum in half] + [2 * stratum + 1 for stratum in half]


def spread(count: int, batch_size: int) -> list[int]:
    """`count` positions of a batch: those at which a line of slope count / batch_size steps up."""
    height = [position * count // batch_size for position in range(batch_size + 1)]
    return [p for p in range(batch_size) if height[p + 1] > height[p]]


class Heap:
    """The textbook sum tree of `capacity` (a power of two) whole numbers.

    The root is at 1, leaf i at capacity + i, and the search half open.
    """

    def __init__(self, values: list[int]) -> None:
        self.capacity = 1 << (len(values) - 1).bit_length()
        self.nodes = [0] * self.capacity + values + [0] * (self.capacity - len(values))
        for node in range(self.capacity - 1, 0, -1):
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    @property
    def total(self) -> int:
        return self.nodes[1]

    def find(self, target: int) -> int:
        """The leaf i with sum(leaves[:i]) <= target < sum(leaves[:i + 1])."""
        assert 0 <= target < self.total
        node = 1
        while node < self.capacity:
            node = 2 * node
            if target >= self.nodes[node]:
                target -= self.nodes[node]
                node += 1
        return node - self.capacity
