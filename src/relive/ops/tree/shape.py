"""The shape of the tree: leaves in groups of 16, nodes in groups of 8, up to one group."""

from __future__ import annotations

from relive.ops import words as w

LEAVES_PER_NODE, CHILDREN = 1 << w.LEAF_BITS, 1 << w.NODE_BITS


def level_sizes(capacity: int) -> list[int]:
    """Nodes of each level, lowest first, each padded to whole groups of siblings.

    The leaves are padded to `level_sizes(capacity)[0] * LEAVES_PER_NODE`.
    """
    nodes = -(-capacity // LEAVES_PER_NODE)
    sizes = []
    while True:
        sizes.append(-(-nodes // CHILDREN) * CHILDREN)
        if nodes <= CHILDREN:
            return sizes
        nodes = sizes[-1] // CHILDREN


def lowest_total(capacity: int) -> int:
    """log2 of the total below which the scale is raised.

    A mass is off by less than one unit, so N rows are off by less than N units: a total of 2^20 N
        keeps the total
    variation of the sampling distribution below 2^-21.
    """
    return max(40, 20 + (capacity - 1).bit_length())


def target_total(capacity: int) -> int:
    """log2 of the total that a change of scale aims at: midway, so that neither bound is near."""
    return (lowest_total(capacity) + w.HIGHEST_TOTAL + 1) // 2
