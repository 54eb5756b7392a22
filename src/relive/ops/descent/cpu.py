"""Down the sum tree in Numba, level by level for all draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from relive.ops import words as w
from relive.ops.compiled import helper, prefetch
from relive.ops.nodes.vectors import find_child, find_leaf
from relive.ops.power.cpu import power_of_two


@helper
def descend(words: Any, targets: Any, slots: Any) -> None:
    """The slot in whose share of the mass each target lies; uses `targets` up.

    One level at a time for all of them, so that their reads overlap.
    """
    unit = np.float32(power_of_two(words[w.SCALE]))
    leaves = words[w.LEAVES]
    nodes = slots
    nodes[:] = 0
    for level in range(words[w.NUM_LEVELS] - 1, -1, -1):
        first = words[w.SUMS] + words[w.LEVEL_0 + level] * 8
        for i in range(targets.shape[0]):
            siblings = nodes[i] << w.NODE_BITS
            child, targets[i] = find_child(first + siblings * 8, targets[i])
            nodes[i] = siblings + child
            if level == 0:
                prefetch(leaves + (nodes[i] << w.LEAF_BITS) * 4)
    for i in range(targets.shape[0]):
        first = nodes[i] << w.LEAF_BITS
        slots[i] = first + find_leaf(leaves + first * 4, unit, targets[i])
