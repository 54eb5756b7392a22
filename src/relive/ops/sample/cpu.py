"""Drawing a batch, in Numba: draws, weights and gather in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray

from relive.batch import CACHE_LINE
from relive.ops import words as w
from relive.ops.compiled import (
    copy_bytes,
    float32_pointer,
    helper,
    int32_pointer,
    int64_pointer,
    kernel,
    words_at,
)
from relive.ops.philox.cpu import random_below
from relive.ops.power.cpu import power
from relive.ops.tree.cpu import (
    bit_length,
    find,
    leaves_of,
    mass_of,
    power_of_two,
    root_extremum,
    sums_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State


@helper
def lines(nbytes: Any) -> Any:
    """Bytes rounded up to whole cache lines."""
    return (nbytes + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE


@helper
def mirror(x: Any, bits: Any) -> Any:
    """The lowest bits of x in reverse order."""
    reverse = np.int64(0)
    for _ in range(bits):
        reverse = (reverse << 1) | (x & 1)
        x >>= 1
    return reverse


@helper
def draw_uniform(words: Any, ids: Any, weights: Any, live: Any, counter: Any, stream: Any) -> None:
    """Every live row is equally likely."""
    oldest = words[w.NEXT_ID] - live
    for i in range(ids.shape[0]):
        ids[i] = oldest + random_below(live, words[w.SEED], counter + i, stream)
        weights[i] = np.float32(1)


@helper
def draw_proportional(words: Any, ids: Any, live: Any, counter: Any, stream: Any) -> None:
    """A row is as likely as its mass is of the total."""
    batch_size = ids.shape[0]
    leaves = leaves_of(words)
    sums = sums_of(words)
    unit = power_of_two(words[w.SCALE])
    total = words[w.TOTAL]
    capacity = words[w.CAPACITY]
    oldest = words[w.NEXT_ID] - live
    oldest_slot = (oldest - words[w.BASE_ID]) % capacity
    bits = bit_length(batch_size & -batch_size) - 1
    odd = batch_size >> bits
    width = total // batch_size
    rest = total % batch_size
    for i in range(batch_size):
        low = np.int64(0)
        high = total
        if words[w.STRATIFIED]:
            j = ((i % odd) << bits) + mirror(i // odd, bits)
            low = width * j + rest * j // batch_size
            high = width * (j + 1) + rest * (j + 1) // batch_size
        target = low + random_below(high - low, words[w.SEED], counter + i, stream)
        slot = find(words, leaves, sums, unit, target)
        ids[i] = oldest + (slot - oldest_slot + capacity) % capacity


@helper
def weigh(words: Any, reals: Any, ids: Any, weights: Any, live: Any) -> None:
    """Importance weights of the drawn rows."""
    leaves = leaves_of(words)
    capacity = words[w.CAPACITY]
    fraction = min(1.0, np.float64(max(0, words[w.PROGRESS])) / reals[w.BETA_STEPS])
    beta = reals[w.BETA_START] + (reals[w.BETA_END] - reals[w.BETA_START]) * fraction
    clip = np.float32(reals[w.WEIGHT_CLIP])
    smallest = np.float32(np.inf)
    if words[w.NORMALIZE] == w.BUFFER_NORMALIZER:
        smallest = root_extremum(words, words[w.MINS], False)
    elif words[w.NORMALIZE] == w.BATCH_NORMALIZER:
        for i in range(ids.shape[0]):
            smallest = min(smallest, leaves[(ids[i] - words[w.BASE_ID]) % capacity])
    unit = power_of_two(words[w.SCALE])
    for i in range(ids.shape[0]):
        leaf = leaves[(ids[i] - words[w.BASE_ID]) % capacity]
        if words[w.NORMALIZE] == w.NO_NORMALIZER:
            ratio = np.float64(mass_of(leaf, unit)) * np.float64(live) / np.float64(words[w.TOTAL])
        else:
            ratio = np.float64(leaf) / np.float64(smallest)
        weight = power(ratio, -beta)
        if weight > clip:
            weight = clip
            words[w.CLIPPED_WEIGHTS] += 1
        weights[i] = weight


@helper
def track(words: Any, ids: Any) -> None:
    """Count ages of the drawn rows and how often each row has been drawn."""
    uses = carray(int32_pointer(words[w.USES]), words[w.CAPACITY])
    ages = carray(int64_pointer(words[w.AGE_COUNTS]), w.HISTOGRAM_BINS)
    newest = words[w.NEXT_ID] - 1
    for i in range(ids.shape[0]):
        uses[(ids[i] - words[w.BASE_ID]) % words[w.CAPACITY]] += 1
        ages[bit_length(newest - ids[i])] += 1


@helper
def gather_columns(words: Any, ids: Any, arena: Any) -> None:
    """Copy every gathered field of the rows into the arena, row by row: each is read once."""
    batch_size = ids.shape[0]
    columns = carray(int64_pointer(words[w.COLUMNS]), (words[w.NUM_COLUMNS], 2))
    first = arena + lines(8 * batch_size) + lines(4 * batch_size)
    for i in range(batch_size):
        slot = (ids[i] - words[w.BASE_ID]) % words[w.CAPACITY]
        row = words[w.ROWS] + slot * words[w.ROW_BYTES]
        block = first
        for c in range(columns.shape[0]):
            source = row + columns[c, 0]
            nbytes = columns[c, 1]
            target = block + i * nbytes
            if nbytes == 4:  # a constant size is one move
                copy_bytes(target, source, 4)
            elif nbytes == 1:
                copy_bytes(target, source, 1)
            else:
                copy_bytes(target, source, nbytes)
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
    if proportional:
        draw_proportional(words, ids, live, words[counter], stream)
        weigh(words, reals, ids, weights, live)
    else:
        draw_uniform(words, ids, weights, live, words[counter], stream)
    if train:
        if words[w.TRACK_REUSE]:
            track(words, ids)
        words[w.PROGRESS] += 1
    words[counter] += batch_size
    words[w.SAMPLES] += 1
    words[w.SAMPLED_ROWS] += batch_size
    gather_columns(words, ids, arena)
    return w.OK


@kernel
def _gather(header: Any, arena: Any, ids: Any, batch_size: Any) -> None:
    words, _ = words_at(header)
    gather_columns(words, carray(int64_pointer(ids), batch_size), arena)


def sample(state: State, arena: Tensor, batch_size: int, *, train: bool) -> int:
    """See `reference.sample`."""
    return int(_sample(state.header, arena.data_ptr(), batch_size, train))


def gather(state: State, ids: Tensor, arena: Tensor) -> None:
    """See `reference.gather`."""
    _gather(state.header, arena.data_ptr(), ids.data_ptr(), len(ids))
