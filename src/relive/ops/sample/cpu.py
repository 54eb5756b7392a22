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
)
from relive.ops.window.cpu import (
    ANY_ID,
    COUNT,
    DEMONSTRATIONS,
    FIRST,
    MASS,
    MASS_BEFORE,
    MAX_PARTS,
    MAX_RUNS,
    PART_WORDS,
    ROWS,
    ROWS_BEFORE,
    RUN_WORDS,
    RUNS,
    TREE_BEFORE,
    find_ids,
    find_parts,
    find_slots,
    is_whole_tree,
    num_gone,
    schedule,
    smallest_leaf,
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
def locate(runs: Any, part: Any, row: Any) -> Any:
    """Slot of a row of a part, by its number there."""
    slot = runs[0, FIRST] + row
    for number in range(1, part[RUNS]):
        if row >= runs[number, ROWS_BEFORE]:
            slot = runs[number, FIRST] + row - runs[number, ROWS_BEFORE]
    return slot


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
    width = mass // count
    rest = mass % count
    low = np.int64(0)
    carry = np.int64(0)
    odd = count >> (bit_length(count & -count) - 1)
    slices = count // odd
    mirrored = np.int64(0)  # counts up with its bits in reverse order
    for j in range(count):
        position = positions[mirrored * odd + j // slices]
        carry += rest
        step = np.int64(carry >= count)
        carry -= step * count
        order[j] = position
        targets[j] = low + np.int64(multiply_high(bits[position], np.uint64(width + step)))
        low += width + step
        bit = slices >> 1
        while mirrored & bit:
            mirrored ^= bit
            bit >>= 1
        mirrored |= bit


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
    descend(words, targets, found)
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
def likelihood(words: Any, parts: Any, shares: Any, number: Any, part: Any) -> Any:
    """(a, b) such that a leaf + b is rows times probability of a row of a part."""
    uniform = np.float64(words[w.UNIFORM_SHARE]) / 2.0**63
    count = np.float64(parts[part, ROWS])
    mass = np.float64(parts[part, MASS])
    a = (1.0 - uniform) * power_of_two(words[w.SCALE]) * count / mass
    b = uniform
    if words[w.MIXTURE_WEIGHTS] and number == 2:
        factor = shares[part] * np.float64(parts[0, ROWS] + parts[1, ROWS]) / count
        a *= factor
        b *= factor
    return a, b


@helper
def find_simple_ratios(words: Any, runs: Any, part: Any, leaves: Any, ratios: Any) -> None:
    """Ratios where every row is drawn from one part by priority: rows and mass are common to all.

    They are left out where they cancel.
    """
    batch_size = leaves.shape[0]
    if words[w.NORMALIZE] == w.NO_NORMALIZER:
        unit = power_of_two(words[w.SCALE])
        rows, mass = np.float64(part[ROWS]), np.float64(part[MASS])
        for i in range(batch_size):
            ratios[i] = np.float64(mass_of(leaves[i], unit)) * rows / mass
        return
    smallest = np.float32(np.inf)
    if words[w.NORMALIZE] == w.BUFFER_NORMALIZER:
        smallest = smallest_leaf(words, runs, part)
    else:
        for i in range(batch_size):
            smallest = min(smallest, leaves[i])
    for i in range(batch_size):
        ratios[i] = np.float64(leaves[i]) / np.float64(smallest)


@helper
def find_ratios(
    words: Any,
    runs: Any,
    parts: Any,
    shares: Any,
    number: Any,
    slots: Any,
    leaves: Any,
    ratios: Any,
) -> None:
    """Rows times probability of every drawn row, over what the normaliser makes of it."""
    batch_size = slots.shape[0]
    a_0, b_0 = likelihood(words, parts, shares, number, 0)
    a_1, b_1 = likelihood(words, parts, shares, number, number - 1)
    start = words[w.RING_START] if number == 2 else words[w.CAPACITY]
    for i in range(batch_size):
        is_first = slots[i] < start
        ratios[i] = (a_0 if is_first else a_1) * np.float64(leaves[i]) + (b_0 if is_first else b_1)
    if words[w.NORMALIZE] == w.NO_NORMALIZER:
        return
    least = np.inf
    if words[w.NORMALIZE] == w.BATCH_NORMALIZER:
        for i in range(batch_size):
            least = min(least, ratios[i])
    else:
        if shares[0] > 0.0:
            least = a_0 * np.float64(smallest_leaf(words, runs[0], parts[0])) + b_0
        if number == 2 and shares[1] > 0.0:
            other = a_1 * np.float64(smallest_leaf(words, runs[1], parts[1])) + b_1
            least = min(least, other)
    for i in range(batch_size):
        ratios[i] /= least


@helper
def weigh(
    words: Any,
    reals: Any,
    runs: Any,
    parts: Any,
    shares: Any,
    number: Any,
    slots: Any,
    weights: Any,
) -> None:
    """Importance weights of the drawn rows."""
    batch_size = slots.shape[0]
    leaves = leaves_of(words)
    beta = schedule(words, reals, w.BETA_START)
    for i in range(batch_size):
        weights[i] = leaves[slots[i]]
    ratios = np.empty(batch_size, np.float64)
    if number == 1 and words[w.UNIFORM_SHARE] == 0:
        find_simple_ratios(words, runs[0], parts[0], weights, ratios)
    else:
        find_ratios(words, runs, parts, shares, number, slots, weights, ratios)
    for i in range(batch_size):
        weights[i] = power(ratios[i], -beta)
    clip = np.float32(reals[w.WEIGHT_CLIP])
    clipped = np.int64(0)
    for i in range(batch_size):
        clipped += np.int64(weights[i] > clip)
        weights[i] = min(weights[i], clip)
    words[w.CLIPPED_WEIGHTS] += clipped


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
def track(words: Any, slots: Any, ids: Any) -> None:
    """Count ages of the drawn rows and how often each row has been drawn."""
    uses = carray(int32_pointer(words[w.USES]), words[w.CAPACITY])
    ages = carray(int64_pointer(words[w.AGE_COUNTS]), w.HISTOGRAM_BINS)
    newest = words[w.NEXT_ID] - 1
    for i in range(ids.shape[0]):
        uses[slots[i]] += 1
        if slots[i] >= words[w.RING_START]:
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
def gather_columns(words: Any, slots: Any, arena: Any, first: Any, total: Any) -> None:
    """Copy every gathered field of the rows into an arena of `total`, from row `first` on.

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
        block = arena + lines(8 * total) + lines(4 * total)
        for c in range(columns.shape[0]):
            source = words[w.ROWS] + columns[c, w.COLUMN_OFFSET]
            stored = columns[c, w.COLUMN_BYTES]
            nbytes = columns[c, w.COLUMN_BATCH_BYTES]
            conversion = columns[c, w.COLUMN_CONVERSION]
            if conversion == NO_CONVERSION:
                gather_values(
                    block + (first + start) * nbytes, source, slots[start:stop], row_bytes, nbytes
                )
            else:
                large = total * nbytes >= LARGE_BYTES
                for i in range(start, stop):
                    row = source + slots[i] * row_bytes
                    convert(conversion, block + (first + i) * nbytes, row, stored, large)
            block += lines(total * nbytes)


@kernel
def _sample(
    header: Any,
    arena: Any,
    batch_size: Any,
    train: Any,
    first_id: Any,
    stop_id: Any,
    first: Any,
    total: Any,
) -> Any:
    words, reals = words_at(header)
    runs = np.empty((MAX_PARTS, MAX_RUNS, RUN_WORDS), np.int64)
    parts = np.empty((MAX_PARTS, PART_WORDS), np.int64)
    shares = np.empty(MAX_PARTS, np.float64)
    number, carry = find_parts(words, reals, runs, parts, shares, batch_size, first_id, stop_id)
    if number == 0:
        return w.NOTHING_TO_DRAW
    ids = carray(int64_pointer(arena), total)[first : first + batch_size]
    weights = carray(float32_pointer(arena + lines(8 * total)), total)[first : first + batch_size]
    counter = w.DRAWS if train else w.EVAL_DRAWS
    stream = w.TRAIN_STREAM if train else w.EVAL_STREAM
    bits = random_bits(words[w.SEED], words[counter], stream, batch_size, False)
    slots = np.empty(batch_size, np.int64)
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
    if words[w.WEIGHTING] == w.UNIFORM:
        weights[:] = np.float32(1)
    else:
        weigh(words, reals, runs, parts, shares, number, slots, weights)
    find_ids(words, slots, ids)
    if stop_id != ANY_ID:
        words[w.RANGE_ROWS_GONE] += num_gone(words, first_id, stop_id)
    if train:
        if words[w.TRACK_REUSE]:
            track(words, slots, ids)
        words[w.PROGRESS] += 1
        words[w.SWEEP] = (words[w.SWEEP] + 1) % words[w.SWEEP_LENGTH]
        reals[w.DEMO_CARRY] = carry
    words[counter] += batch_size
    words[w.SAMPLES] += 1
    words[w.SAMPLED_ROWS] += batch_size
    gather_columns(words, slots, arena, first, total)
    return w.OK


@kernel
def _can_draw(header: Any) -> Any:
    words, reals = words_at(header)
    runs = np.empty((MAX_PARTS, MAX_RUNS, RUN_WORDS), np.int64)
    parts = np.empty((MAX_PARTS, PART_WORDS), np.int64)
    number, _ = find_parts(words, reals, runs, parts, np.empty(MAX_PARTS, np.float64), 1, 0, ANY_ID)
    return number


@kernel
def _gather(header: Any, arena: Any, ids: Any, batch_size: Any) -> None:
    words, _ = words_at(header)
    slots = np.empty(batch_size, np.int64)
    find_slots(words, carray(int64_pointer(ids), batch_size), slots)
    gather_columns(words, slots, arena, 0, batch_size)


def sample(
    state: State,
    arena: Tensor,
    batch_size: int,
    *,
    train: bool,
    ids: tuple[int, int] | None = None,
    first: int = 0,
    total: int | None = None,
) -> int:
    """See `reference.sample`."""
    first_id, stop_id = (0, ANY_ID) if ids is None else ids
    return int(
        _sample(
            state.header,
            arena.data_ptr(),
            batch_size,
            train,
            first_id,
            stop_id,
            first,
            batch_size if total is None else total,
        )
    )


def can_draw(state: State) -> bool:
    """See `reference.can_draw`."""
    return bool(_can_draw(state.header))


def gather(state: State, ids: Tensor, arena: Tensor) -> None:
    """See `reference.gather`."""
    _gather(state.header, arena.data_ptr(), ids.data_ptr(), len(ids))
