"""Down the sum tree in Numba, level by level for all draws.

Draws from strata come in ascending order: on the lowest level that has no more nodes than there are
draws, one walk along it finds them all, instead of a step of each through every level above.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relive.ops import words as w
from relive.ops.compiled import helper, prefetch
from relive.ops.nodes.cpu import sums_of
from relive.ops.nodes.vectors import find_child, find_leaf
from relive.ops.power.cpu import power_of_two


@helper
def lowest_to_walk(words: Any, count: Any) -> Any:
    """The lowest level with no more nodes than targets; the number of levels if there is none."""
    level = words[w.NUM_LEVELS]
    while level > 0 and words[w.LEVEL_0 + level] - words[w.LEVEL_0 + level - 1] <= count:
        level -= 1
    return level


@helper
def walk_along(words: Any, level: Any, targets: Any, nodes: Any) -> None:
    """Find the node of a level in whose share each of ascending targets lies; and where in it."""
    sums = sums_of(words)
    first = words[w.LEVEL_0 + level]
    before = np.int64(0)
    i = 0
    for node in range(words[w.LEVEL_0 + level + 1] - first):
        end = before + sums[first + node]
        while i < targets.shape[0] and targets[i] < end:
            nodes[i] = node
            targets[i] -= before
            i += 1
        before = end


@helper
def descend(words: Any, targets: Any, slots: Any, ascending: Any) -> None:
    """The slot in whose share of the mass each target lies; uses `targets` up.

    One level at a time for all of them, so that their reads overlap.
    """
    unit = np.float32(power_of_two(words[w.SCALE]))
    leaves = words[w.LEAVES]
    nodes = slots
    nodes[:] = 0
    found_on = words[w.NUM_LEVELS]
    if ascending:
        found_on = lowest_to_walk(words, targets.shape[0])
        if found_on < words[w.NUM_LEVELS]:
            walk_along(words, found_on, targets, nodes)
    for level in range(found_on - 1, -1, -1):
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
