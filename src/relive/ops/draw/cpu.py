"""Drawing rows of the parts of a batch, in Numba: which slots it has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from relive.ops import words as w
from relive.ops.compiled import helper, int32_pointer, int64_pointer, multiply_high, reverse_bits
from relive.ops.descent.cpu import descend
from relive.ops.nodes.cpu import bit_length
from relive.ops.parts.cpu import (
    COUNT,
    DEMONSTRATIONS,
    FIRST,
    MASS,
    ROWS,
    RUNS,
    locate,
    place_targets,
)
from relive.ops.philox.cpu import random_bits


@helper
def find_positions(parts: Any, number: Any, part: Any, positions: Any) -> None:
    """Positions of the draws of a part: demonstrations as evenly as can be, or all."""
    batch_size = parts[0, COUNT] + (parts[1, COUNT] if number == 2 else 0)
    demonstrations = parts[DEMONSTRATIONS, COUNT] if number == 2 else batch_size
    if number == 1:
        for i in range(batch_size):
            positions[i] = i
        return
    found = 0
    owed = np.int64(0)  # (position + 1) * demonstrations, modulo the batch size
    for position in range(batch_size):
        owed += demonstrations
        is_demonstration = owed >= batch_size
        if is_demonstration:
            owed -= batch_size
        if is_demonstration == (part == DEMONSTRATIONS):
            positions[found] = position
            found += 1


@helper
def draw_uniform(runs: Any, part: Any, positions: Any, bits: Any, slots: Any) -> None:
    """Every row of a part is equally likely."""
    rows = np.uint64(part[ROWS])
    if part[RUNS] == 1 and positions.shape[0] == slots.shape[0]:
        first = runs[0, FIRST]
        for i in range(slots.shape[0]):
            slots[i] = first + np.int64(multiply_high(bits[i], rows))
        return
    for i in range(positions.shape[0]):
        position = positions[i]
        slots[position] = locate(runs, part, np.int64(multiply_high(bits[position], rows)))


@helper
def find_order(positions: Any, order: Any) -> None:
    """The position of the draw from each stratum, so that slices of a batch hold all kinds.

    With 2^k the largest power of two that divides the count, the last k bits of a stratum say,
    mirrored, which of 2^k slices it goes to.
    """
    count = positions.shape[0]
    k = bit_length(count & -count) - 1
    slice_rows = count >> k
    if k == 0:
        order[:] = positions
        return
    for j in range(count):
        mirrored = np.int64(reverse_bits(j) >> np.uint64(64 - k))
        order[j] = positions[mirrored * slice_rows + (j >> k)]


@helper
def draw_targets(
    words: Any, mass: Any, positions: Any, bits: Any, targets: Any, order: Any
) -> None:
    """Where in the mass of a part draws fall, ascending if stratified; and their positions."""
    count = targets.shape[0]
    if not words[w.STRATIFIED]:
        for i in range(count):
            order[i] = positions[i]
            targets[i] = np.int64(multiply_high(bits[positions[i]], np.uint64(mass)))
        return
    find_order(positions, order)
    width = mass // count
    rest = mass % count
    low = np.int64(0)
    carry = np.int64(0)
    for j in range(count):
        carry += rest
        step = np.int64(carry >= count)
        carry -= step * count
        targets[j] = low + np.int64(multiply_high(bits[order[j]], np.uint64(width + step)))
        low += width + step


@helper
def draw_by_priority(
    words: Any, runs: Any, part: Any, positions: Any, bits: Any, slots: Any
) -> None:
    """A row is as likely as its mass is of that of its part."""
    count = positions.shape[0]
    targets = np.empty(count, np.int64)
    order = np.empty(count, np.int64)
    found = np.empty(count, np.int64)
    draw_targets(words, part[MASS], positions, bits, targets, order)
    place_targets(words, runs, part, targets)
    descend(words, targets, found, words[w.STRATIFIED])  # runs are in the order of their slots
    for j in range(count):
        slots[order[j]] = found[j]


@helper
def draw_uniform_share(
    words: Any, runs: Any, part: Any, positions: Any, bits: Any, others: Any, slots: Any
) -> None:
    """Replace some draws by uniform ones: those whose other random number says so."""
    rows = np.uint64(part[ROWS])
    share = np.uint64(words[w.UNIFORM_SHARE])
    for i in range(positions.shape[0]):
        position = positions[i]
        if others[position] >> np.uint64(1) < share:
            row = np.int64(multiply_high(bits[position], rows))
            slots[position] = locate(runs, part, row)


@helper
def draw_rows(
    words: Any, runs: Any, parts: Any, number: Any, counter: Any, stream: Any, slots: Any
) -> None:
    """The slot of every draw of a batch of `number` parts.

    Args:
        counter: The word that counts the random numbers used of a stream.
        slots: int64 [B], filled in.
    """
    batch_size = slots.shape[0]
    bits = random_bits(words[w.SEED], words[counter], stream, batch_size, False)
    positions = np.empty(batch_size, np.int64)
    for part in range(number):
        drawn = positions[: parts[part, COUNT]]
        if drawn.shape[0] > 0:
            find_positions(parts, number, part, positions)
            if words[w.WEIGHTING] == w.UNIFORM:
                draw_uniform(runs[part], parts[part], drawn, bits, slots)
            else:
                draw_by_priority(words, runs[part], parts[part], drawn, bits, slots)
                if words[w.UNIFORM_SHARE] > 0:
                    others = random_bits(words[w.SEED], words[counter], stream, batch_size, True)
                    draw_uniform_share(words, runs[part], parts[part], drawn, bits, others, slots)


@helper
def track(words: Any, slots: Any, ids: Any) -> None:
    """Count ages of the drawn rows and how often each row has been drawn."""
    uses = carray(int32_pointer(words[w.USES]), words[w.CAPACITY])
    ages = carray(int64_pointer(words[w.AGE_COUNTS]), w.HISTOGRAM_BINS)
    newest = words[w.NEXT_ID] - 1
    for i in range(ids.shape[0]):
        uses[slots[i]] += 1
        if slots[i] >= words[w.RING_START]:
            ages[bit_length(newest - ids[i])] += 1
