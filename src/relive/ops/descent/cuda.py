"""Down the sum tree for Triton kernels, one thread a draw.

A thread reads the children of its node, a cache line, one after another; nothing is exchanged
between threads. Children side by side in a block, with prefix sums across threads, would take eight
times as many instructions.
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.nodes.cuda import CHILDREN, LEAVES_PER_NODE, mass_of
from relive.ops.power.cuda import power_of_two


@triton.jit
def find_slots(words, leaves, sums, targets):
    """The slot in whose share of the mass each target lies, int64 [B].

    Args:
        targets: int64 [B], each in [0, total).
    """
    zeros = targets * 0
    node = zeros
    levels = tl.load(words + w.NUM_LEVELS)
    for height in range(levels):  # a constant number would be unrolled, and its code fetched
        siblings = node << w.NODE_BITS
        children = sums + tl.load(words + w.LEVEL_0 + levels - 1 - height) + siblings
        until, taken, number = zeros, zeros, zeros
        for child in tl.static_range(CHILDREN - 1):  # the last has what the others leave
            until += tl.load(children + child)
            before = until <= targets
            taken = tl.where(before, until, taken)
            number += before.to(tl.int64)
        targets -= taken
        node = siblings + number
    first = node << w.LEAF_BITS
    unit = power_of_two(tl.load(words + w.SCALE))
    until, number = zeros, zeros
    for place in tl.static_range(LEAVES_PER_NODE - 1):
        until += mass_of(tl.load(leaves + first + place), unit)
        number += (until <= targets).to(tl.int64)
    return first + number
