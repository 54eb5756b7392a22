"""The parts of a batch, in Numba: a part has up to four runs of slots."""

from __future__ import annotations

from typing import Any

import numpy as np

from relive.ops import words as w
from relive.ops.compiled import helper
from relive.ops.nodes.cpu import root_extremum
from relive.ops.window.cpu import (
    first_of_window,
    mass_before,
    num_demonstrations,
    oldest_of_ring,
    ring_slot,
    schedule,
    smallest_between,
)

MAX_RUNS = 4  # demonstrations pinned and added, the ring before and behind its end
DEMONSTRATIONS, ONLINE = 0, 1  # parts of a batch of two; one part is number 0
MAX_PARTS = 2
ANY_ID = -1  # in place of one past the last id: no range is asked for

# Words of a run: first slot, one past the last, rows before it in the part, mass before it there,
# mass before it in the tree.
FIRST, STOP, ROWS_BEFORE, MASS_BEFORE, TREE_BEFORE, RUN_WORDS = 0, 1, 2, 3, 4, 5

# Words of a part.
RUNS, ROWS, MASS, COUNT, PART_WORDS = 0, 1, 2, 3, 4


@helper
def add_run(runs: Any, part: Any, first: Any, stop: Any) -> None:
    """A part has these slots too."""
    if first < stop:
        number = part[RUNS]
        runs[number, FIRST] = first
        runs[number, STOP] = stop
        runs[number, ROWS_BEFORE] = part[ROWS]
        part[ROWS] += stop - first
        part[RUNS] = number + 1


@helper
def add_ring(words: Any, runs: Any, part: Any, first: Any, stop: Any) -> None:
    """A part has these ids of the ring too."""
    if first >= stop:
        return
    low = ring_slot(words, first)
    high = ring_slot(words, stop - 1) + 1
    if low < high:
        add_run(runs, part, low, high)
    elif low == high:
        add_run(runs, part, words[w.RING_START], words[w.CAPACITY])
    else:
        add_run(runs, part, words[w.RING_START], high)
        add_run(runs, part, low, words[w.CAPACITY])


@helper
def add_range(words: Any, runs: Any, part: Any, first: Any, stop: Any) -> None:
    """A part has all rows held whose ids lie in a range."""
    start = words[w.DEMO_FIRST_ID]
    low = max(first - start, 0)
    add_run(runs, part, low, min(stop - start, words[w.DEMO_COUNT]))
    start = words[w.ADDED_FIRST_ID]
    low = max(first - start, 0)
    high = min(stop - start, words[w.DEMO_ADDED])
    add_run(runs, part, words[w.DEMO_COUNT] + low, words[w.DEMO_COUNT] + high)
    low = max(first, oldest_of_ring(words))
    add_ring(words, runs, part, low, min(stop, words[w.NEXT_ID]))


@helper
def is_whole_tree(words: Any, part: Any) -> Any:
    """Whether a part has every row that is held."""
    live = words[w.NEXT_ID] - oldest_of_ring(words)
    return part[ROWS] == live + num_demonstrations(words)


@helper
def weigh_part(words: Any, runs: Any, part: Any) -> None:
    """Find the mass of a part, and of what comes before each of its runs."""
    part[MASS] = words[w.TOTAL]
    if is_whole_tree(words, part):
        return  # a target in the total is a place in the tree as it is
    mass = np.int64(0)
    for number in range(part[RUNS]):
        before = mass_before(words, runs[number, FIRST])
        runs[number, MASS_BEFORE] = mass
        runs[number, TREE_BEFORE] = before
        mass += mass_before(words, runs[number, STOP]) - before
    part[MASS] = mass


@helper
def can_be_drawn(words: Any, part: Any) -> Any:
    """Whether a part has a row to draw."""
    return part[ROWS] > 0 and (words[w.WEIGHTING] == w.UNIFORM or part[MASS] > 0)


@helper
def find_parts(
    words: Any,
    reals: Any,
    runs: Any,
    parts: Any,
    shares: Any,
    batch_size: Any,
    first_id: Any,
    stop_id: Any,
) -> Any:
    """The parts of the next batch that have rows to draw.

    Args:
        runs: [MAX_PARTS, MAX_RUNS, RUN_WORDS], filled in.
        parts: [MAX_PARTS, PART_WORDS], filled in.
        shares: [MAX_PARTS], of the draws in the long run.
        first_id, stop_id: draw from these ids, unless `stop_id` is ANY_ID.

    Returns:
        How many parts there are, and the carry of the batch.
    """
    parts[:] = 0
    carry = reals[w.DEMO_CARRY]
    weighted = words[w.WEIGHTING] != w.UNIFORM
    demonstrations = num_demonstrations(words)
    shares[0] = 1.0
    parts[0, COUNT] = batch_size
    if stop_id != ANY_ID:
        add_range(words, runs[0], parts[0], first_id, stop_id)
    elif demonstrations == 0 or words[w.DEMO_MODE] == w.ONE_POOL:
        add_run(runs[0], parts[0], np.int64(0), demonstrations)
        add_ring(words, runs[0], parts[0], first_of_window(words, reals), words[w.NEXT_ID])
    else:
        add_run(runs[DEMONSTRATIONS], parts[DEMONSTRATIONS], np.int64(0), demonstrations)
        first = first_of_window(words, reals)
        add_ring(words, runs[ONLINE], parts[ONLINE], first, words[w.NEXT_ID])
        if weighted:
            weigh_part(words, runs[DEMONSTRATIONS], parts[DEMONSTRATIONS])
            weigh_part(words, runs[ONLINE], parts[ONLINE])
        if can_be_drawn(words, parts[ONLINE]):
            if can_be_drawn(words, parts[DEMONSTRATIONS]):
                shares[DEMONSTRATIONS] = schedule(words, reals, w.DEMO_SHARE_START)
                shares[ONLINE] = 1.0 - shares[DEMONSTRATIONS]
                wanted = carry + np.float64(batch_size) * shares[DEMONSTRATIONS]
                count = min(np.int64(np.floor(wanted)), batch_size)  # the sum may round up
                parts[DEMONSTRATIONS, COUNT] = count
                parts[ONLINE, COUNT] = batch_size - count
                return 2, wanted - np.float64(count)
            runs[0] = runs[ONLINE]
            parts[0] = parts[ONLINE]
            parts[0, COUNT] = batch_size
        return np.int64(can_be_drawn(words, parts[0])), carry
    if weighted:
        weigh_part(words, runs[0], parts[0])
    return np.int64(can_be_drawn(words, parts[0])), carry


@helper
def smallest_leaf(words: Any, runs: Any, part: Any) -> Any:
    """The smallest positive leaf of a part."""
    if is_whole_tree(words, part):
        return root_extremum(words, words[w.MINS], False)
    smallest = np.float32(np.inf)
    for number in range(part[RUNS]):
        smallest = min(smallest, smallest_between(words, runs[number, FIRST], runs[number, STOP]))
    return smallest


@helper
def locate(runs: Any, part: Any, row: Any) -> Any:
    """Slot of a row of a part, by its number there."""
    slot = runs[0, FIRST] + row
    for number in range(1, part[RUNS]):
        if row >= runs[number, ROWS_BEFORE]:
            slot = runs[number, FIRST] + row - runs[number, ROWS_BEFORE]
    return slot


@helper
def place_targets(words: Any, runs: Any, part: Any, targets: Any) -> None:
    """Turn places in the mass of a part into places in the mass of the tree."""
    if is_whole_tree(words, part):
        return
    for i in range(targets.shape[0]):
        shift = runs[0, TREE_BEFORE]
        for number in range(1, part[RUNS]):
            if targets[i] >= runs[number, MASS_BEFORE]:
                shift = runs[number, TREE_BEFORE] - runs[number, MASS_BEFORE]
        targets[i] += shift
