"""Down the sum tree for Triton kernels, one thread a draw.

A thread reads the children of its node, a cache line, one after another; nothing is exchanged
between threads. Children side by side in a block, with prefix sums across threads, would take eight
times as many instructions.
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.power.cuda import power_of_two
from relive.ops.tree.cuda import CHILDREN, LEAVES_PER_NODE, mass_of


@triton.jit
def child_of(until, targets, taken, number):
    """One child more: what the children before the wanted one have, and how many they are.

    Args:
        until: Mass of the children up to this one, int64 [B].
        targets: Places in the mass of all children, int64 [B].
    """
    before = until <= targets
    return tl.where(before, until, taken), number + before.to(tl.int32)


@triton.jit
def find_slots(words, leaves, sums, targets, LEVELS: tl.constexpr):
    """The slot in whose share of the mass each target lies, int64 [B].

    Args:
        targets: int64 [B], each in [0, total).
    """
    node = tl.zeros_like(targets)
    for level in tl.static_range(LEVELS - 1, -1, -1):
        siblings = node << w.NODE_BITS
        children = sums + tl.load(words + w.LEVEL_0 + level) + siblings
        until, taken = tl.zeros_like(targets), tl.zeros_like(targets)
        number = tl.zeros(targets.shape, tl.int32)
        for child in tl.static_range(CHILDREN - 1):  # the last has what the others leave
            until += tl.load(children + child)
            taken, number = child_of(until, targets, taken, number)
        targets -= taken
        node = siblings + number
    first = node << w.LEAF_BITS
    unit = power_of_two(tl.load(words + w.SCALE))
    until, taken = tl.zeros_like(targets), tl.zeros_like(targets)
    number = tl.zeros(targets.shape, tl.int32)
    for place in tl.static_range(LEAVES_PER_NODE - 1):
        until += mass_of(tl.load(leaves + first + place), unit)
        taken, number = child_of(until, targets, taken, number)
    return first + number
