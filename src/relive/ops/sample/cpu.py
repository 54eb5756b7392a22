"""Drawing a batch, in Numba: draws, weights and gather in one call.

Everything is done for the whole batch, step by step and level by level: the reads of different
draws do not wait for each other, and the arithmetic becomes vector instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from relive.batch import CACHE_LINE
from relive.fields import NO_CONVERSION
from relive.ops import words as w
from relive.ops.compiled import (
    copy_bytes,
    copy_value,
    float32_pointer,
    helper,
    int32_pointer,
    int64_pointer,
    kernel,
    multiply_high,
    prefetch,
    words_at,
)
from relive.ops.convert.cpu import convert
from relive.ops.philox.cpu import random_bits
from relive.ops.power.cpu import power
from relive.ops.tree.cpu import (
    bit_length,
    descend,
    leaves_of,
    mass_of,
    power_of_two,
    root_extremum,
)

GATHER_BYTES = 1 << 14  # of rows that are copied while the next are fetched
LARGE_BYTES = 1 << 24  # of a field of a batch: more than a core's caches hold

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State


@helper
def lines(nbytes: Any) -> Any:
    """Bytes rounded up to whole cache lines."""
    return (nbytes + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE


@helper
def draw_uniform(words: Any, slots: Any, bits: Any, live: Any) -> None:
    """Every live row is equally likely."""
    capacity = words[w.CAPACITY]
    oldest_slot = (words[w.NEXT_ID] - live - words[w.BASE_ID]) % capacity
    for i in range(slots.shape[0]):
        slot = oldest_slot + np.int64(multiply_high(bits[i], np.uint64(live)))
        slots[i] = slot - capacity if slot >= capacity else slot


@helper
def draw_targets(words: Any, targets: Any, positions: Any, bits: Any) -> None:
    """Where in the total mass draws fall, ascending if stratified; and their batch positions."""
    batch_size = targets.shape[0]
    total = words[w.TOTAL]
    if not words[w.STRATIFIED]:
        for i in range(batch_size):
            positions[i] = i
            targets[i] = np.int64(multiply_high(bits[i], np.uint64(total)))
        return
    width = total // batch_size
    rest = total % batch_size
    low = np.int64(0)
    carry = np.int64(0)
    odd = batch_size >> (bit_length(batch_size & -batch_size) - 1)
    slices = batch_size // odd
    mirrored = np.int64(0)  # counts up with its bits in reverse order
    for j in range(batch_size):
        position = mirrored * odd + j // slices
        carry += rest
        step = np.int64(carry >= batch_size)
        carry -= step * batch_size
        positions[j] = position
        targets[j] = low + np.int64(multiply_high(bits[position], np.uint64(width + step)))
        low += width + step
        bit = slices >> 1
        while mirrored & bit:
            mirrored ^= bit
            bit >>= 1
        mirrored |= bit


@helper
def draw_proportional(words: Any, slots: Any, bits: Any) -> None:
    """A row is as likely as its mass is of the total."""
    batch_size = slots.shape[0]
    targets = np.empty(batch_size, np.int64)
    positions = np.empty(batch_size, np.int64)
    found = np.empty(batch_size, np.int64)
    draw_targets(words, targets, positions, bits)
    descend(words, targets, found)
    for j in range(batch_size):
        slots[positions[j]] = found[j]


@helper
def find_ids(words: Any, slots: Any, ids: Any, live: Any) -> None:
    """Ids of the rows in live slots."""
    capacity = words[w.CAPACITY]
    oldest = words[w.NEXT_ID] - live
    oldest_slot = (oldest - words[w.BASE_ID]) % capacity
    for i in range(ids.shape[0]):
        age = slots[i] - oldest_slot
        ids[i] = oldest + (age + capacity if age < 0 else age)


@helper
def find_slots(words: Any, ids: Any, slots: Any) -> None:
    """Slots of live ids."""
    for i in range(ids.shape[0]):
        slots[i] = (ids[i] - words[w.BASE_ID]) % words[w.CAPACITY]


@helper
def prefetch_rows(words: Any, slots: Any) -> None:
    """Ask for the rows of some slots; long ones are fetched by the processor once begun."""
    row_bytes = words[w.ROW_BYTES]
    span = min(row_bytes, 4 * CACHE_LINE)
    for i in range(slots.shape[0]):
        row = words[w.ROWS] + slots[i] * row_bytes
        for offset in range(0, span, CACHE_LINE):
            prefetch(row + offset)


@helper
def weigh(words: Any, reals: Any, slots: Any, weights: Any, live: Any) -> None:
    """Importance weights of the drawn rows."""
    batch_size = slots.shape[0]
    leaves = leaves_of(words)
    fraction = min(1.0, np.float64(max(0, words[w.PROGRESS])) / reals[w.BETA_STEPS])
    beta = reals[w.BETA_START] + (reals[w.BETA_END] - reals[w.BETA_START]) * fraction
    for i in range(batch_size):
        weights[i] = leaves[slots[i]]
    ratios = np.empty(batch_size, np.float64)
    if words[w.NORMALIZE] == w.NO_NORMALIZER:
        unit = power_of_two(words[w.SCALE])
        for i in range(batch_size):
            mass = np.float64(mass_of(weights[i], unit))
            ratios[i] = mass * np.float64(live) / np.float64(words[w.TOTAL])
    else:
        smallest = np.float32(np.inf)
        if words[w.NORMALIZE] == w.BUFFER_NORMALIZER:
            smallest = root_extremum(words, words[w.MINS], False)
        else:
            for i in range(batch_size):
                smallest = min(smallest, weights[i])
        for i in range(batch_size):
            ratios[i] = np.float64(weights[i]) / np.float64(smallest)
    for i in range(batch_size):
        weights[i] = power(ratios[i], -beta)
    clip = np.float32(reals[w.WEIGHT_CLIP])
    clipped = np.int64(0)
    for i in range(batch_size):
        clipped += np.int64(weights[i] > clip)
        weights[i] = min(weights[i], clip)
    words[w.CLIPPED_WEIGHTS] += clipped


@helper
def track(words: Any, slots: Any, ids: Any) -> None:
    """Count ages of the drawn rows and how often each row has been drawn."""
    uses = carray(int32_pointer(words[w.USES]), words[w.CAPACITY])
    ages = carray(int64_pointer(words[w.AGE_COUNTS]), w.HISTOGRAM_BINS)
    newest = words[w.NEXT_ID] - 1
    for i in range(ids.shape[0]):
        uses[slots[i]] += 1
        ages[bit_length(newest - ids[i])] += 1


@helper
def gather_values(target: Any, source: Any, slots: Any, row_bytes: Any, nbytes: Any) -> None:
    """Copy one column; a loop of its own for the sizes of a flag, a number and a pair."""
    count = slots.shape[0]
    if nbytes == 4:
        for i in range(count):
            copy_bytes(target + i * 4, source + slots[i] * row_bytes, 4)
    elif nbytes == 1:
        for i in range(count):
            copy_bytes(target + i, source + slots[i] * row_bytes, 1)
    elif nbytes == 8:
        for i in range(count):
            copy_bytes(target + i * 8, source + slots[i] * row_bytes, 8)
    elif nbytes == 16:
        for i in range(count):
            copy_bytes(target + i * 16, source + slots[i] * row_bytes, 16)
    else:
        for i in range(count):
            copy_value(target + i * nbytes, source + slots[i] * row_bytes, nbytes)


@helper
def gather_columns(words: Any, slots: Any, arena: Any) -> None:
    """Copy every gathered field of the rows into the arena.

    Some rows at a time: the next ones are asked for, then these are copied field by field from the
    cache.
    """
    batch_size = slots.shape[0]
    row_bytes = words[w.ROW_BYTES]
    columns = carray(int64_pointer(words[w.COLUMNS]), (words[w.NUM_COLUMNS], w.COLUMN_WORDS))
    together = max(1, GATHER_BYTES // row_bytes)
    prefetch_rows(words, slots[:together])
    for start in range(0, batch_size, together):
        stop = min(start + together, batch_size)
        prefetch_rows(words, slots[stop : stop + together])
        block = arena + lines(8 * batch_size) + lines(4 * batch_size)
        for c in range(columns.shape[0]):
            source = words[w.ROWS] + columns[c, w.COLUMN_OFFSET]
            stored = columns[c, w.COLUMN_BYTES]
            nbytes = columns[c, w.COLUMN_BATCH_BYTES]
            conversion = columns[c, w.COLUMN_CONVERSION]
            if conversion == NO_CONVERSION:
                gather_values(block + start * nbytes, source, slots[start:stop], row_bytes, nbytes)
            else:
                large = batch_size * nbytes >= LARGE_BYTES
                for i in range(start, stop):
                    row = source + slots[i] * row_bytes
                    convert(conversion, block + i * nbytes, row, stored, large)
            block += lines(batch_size * nbytes)


@kernel
def _sample(header: Any, arena: Any, batch_size: Any, train: Any) -> Any:
    words, reals = words_at(header)
    live = min(words[w.NEXT_ID] - words[w.BASE_ID], words[w.CAPACITY])
    proportional = words[w.WEIGHTING] == w.PROPORTIONAL
    if live == 0 or (proportional and words[w.TOTAL] == 0):
        return w.NOTHING_TO_DRAW
    ids = carray(int64_pointer(arena), batch_size)
    weights = carray(float32_pointer(arena + lines(8 * batch_size)), batch_size)
    counter = w.DRAWS if train else w.EVAL_DRAWS
    stream = w.TRAIN_STREAM if train else w.EVAL_STREAM
    bits = random_bits(words[w.SEED], words[counter], stream, batch_size)
    slots = np.empty(batch_size, np.int64)
    if proportional:
        draw_proportional(words, slots, bits)
        weigh(words, reals, slots, weights, live)
    else:
        draw_uniform(words, slots, bits, live)
        weights[:] = np.float32(1)
    find_ids(words, slots, ids, live)
    if train:
        if words[w.TRACK_REUSE]:
            track(words, slots, ids)
        words[w.PROGRESS] += 1
    words[counter] += batch_size
    words[w.SAMPLES] += 1
    words[w.SAMPLED_ROWS] += batch_size
    gather_columns(words, slots, arena)
    return w.OK


@kernel
def _gather(header: Any, arena: Any, ids: Any, batch_size: Any) -> None:
    words, _ = words_at(header)
    slots = np.empty(batch_size, np.int64)
    find_slots(words, carray(int64_pointer(ids), batch_size), slots)
    gather_columns(words, slots, arena)


def sample(state: State, arena: Tensor, batch_size: int, *, train: bool) -> int:
    """See `reference.sample`."""
    return int(_sample(state.header, arena.data_ptr(), batch_size, train))


def gather(state: State, ids: Tensor, arena: Tensor) -> None:
    """See `reference.gather`."""
    _gather(state.header, arena.data_ptr(), ids.data_ptr(), len(ids))
