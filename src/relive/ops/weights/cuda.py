"""Importance weights for Triton kernels: see `sample.reference`, `importance_weights`.

One launch draws, the next gathers; what is common to all weights is noted in between. With two
parts, or a uniform share, a row of part k has rows times probability a_k leaf + b_k.
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.nodes.cuda import INFINITY, mass_of, real, root_extremum, store_real
from relive.ops.parts.cuda import of_part
from relive.ops.power.cuda import power, power_of_two
from relive.ops.window.cuda import FIRST_OF_RING, RUNS, oldest_of_ring, schedule, smallest_leaves

# Words of the notes. There are smallest ratios of two batches: that of this one is lowered while it
# is drawn, and the other is made ready for the next.
TURN = tl.constexpr(0)  # which of the two the next batch has; 0 or 1
SMALLEST = tl.constexpr(1)
THIS_TURN = tl.constexpr(3)
NUMBER = tl.constexpr(4)  # of parts
NEXT_SWEEP = tl.constexpr(5)
CARRY = tl.constexpr(6)  # float64, as are those that follow
BETA = tl.constexpr(7)
LEAST = tl.constexpr(8)  # what weights are normalized by, but for that of the batch
SLOPE, OFFSET = tl.constexpr(9), tl.constexpr(11)  # a and b of the two parts
ROWS, MASS = tl.constexpr(13), tl.constexpr(14)  # of all
NUM_NOTES = 16
INFINITE_BITS = 0x7FF0000000000000

NO_NORMALIZER = tl.constexpr(w.NO_NORMALIZER)
OF_BATCH = tl.constexpr(w.BATCH_NORMALIZER)
OF_BUFFER = tl.constexpr(w.BUFFER_NORMALIZER)
SHARE_UNIT = tl.constexpr(2.0**63)


@triton.jit
def terms(words, rows, mass, all_rows, share, number, MIXTURE: tl.constexpr):
    """Of a part of some rows and mass: a and b, float64 []."""
    uniform = tl.load(words + w.UNIFORM_SHARE).to(tl.float64) / SHARE_UNIT
    count = tl.maximum(rows, 1).to(tl.float64)  # that of no part does not matter
    unit = power_of_two(tl.load(words + w.SCALE))
    a = (1.0 - uniform) * unit * count / tl.maximum(mass, 1).to(tl.float64)
    b = uniform
    if MIXTURE:
        factor = tl.where(number == 2, share * all_rows.to(tl.float64) / count, 1.0)
        a, b = a * factor, b * factor
    return a, b


@triton.jit
def both_terms(words, rows, mass, share, number, MIXTURE: tl.constexpr):
    """Of both parts: a and b, float64 [] each."""
    rows_0, rows_1 = of_part(rows, number, 0), of_part(rows, number, 1)
    mass_0, mass_1 = of_part(mass, number, 0), of_part(mass, number, 1)
    a_0, b_0 = terms(words, rows_0, mass_0, rows_0 + rows_1, share, number, MIXTURE)
    a_1, b_1 = terms(words, rows_1, mass_1, rows_0 + rows_1, 1.0 - share, number, MIXTURE)
    return a_0, b_0, a_1, b_1


@triton.jit
def ratios(leaf, second, a_0, b_0, a_1, b_1, number, SHARE: tl.constexpr):
    """Rows times probability of drawn rows, but for what is common to all, float64 [B].

    Args:
        leaf: float64 [B].
        second: Whether each is of part 1, bool [B].
    """
    ratio = tl.where(second, a_1, a_0) * leaf + tl.where(second, b_1, b_0)
    if not SHARE:
        ratio = tl.where(number == 2, ratio, leaf)
    return ratio


@triton.jit
def least_of_buffer(
    words,
    leaves,
    mins,
    first,
    rows,
    a_0,
    b_0,
    a_1,
    b_1,
    share,
    number,
    SHARE: tl.constexpr,
    LEVELS: tl.constexpr,
):
    """The smallest ratio that any row with a positive leaf has, float64 []."""
    ring = tl.arange(0, RUNS) >= FIRST_OF_RING
    demonstrations = tl.load(words + w.DEMO_COUNT) + tl.load(words + w.DEMO_ADDED)
    held = tl.load(words + w.NEXT_ID) - oldest_of_ring(words) + demonstrations
    smallest_0 = root_extremum(words, mins, False, LEVELS)
    smallest_1 = smallest_0
    if (number == 2) | (tl.sum(rows, 0) != held):
        smallest = smallest_leaves(words, leaves, mins, first, first + rows)
        is_second = (number == 2) & ring
        smallest_0 = tl.min(tl.where(is_second, INFINITY, smallest), 0)
        smallest_1 = tl.min(tl.where(is_second | (number < 2), smallest, INFINITY), 0)
    of_0, of_1 = smallest_0.to(tl.float64), smallest_1.to(tl.float64)
    ratio_0, ratio_1 = a_0 * of_0 + b_0, a_1 * of_1 + b_1
    least = tl.where(share > 0, ratio_0, INFINITY)
    least = tl.where((number == 2) & (share < 1), tl.minimum(least, ratio_1), least)
    if not SHARE:
        least = tl.where(number == 2, least, of_0)
    return least


@triton.jit
def note_batch(words, notes, number, carry):
    """Note what there is to be counted of a batch."""
    tl.store(notes + NUMBER, number)
    sweep = (tl.load(words + w.SWEEP) + 1) % tl.load(words + w.SWEEP_LENGTH)
    tl.store(notes + NEXT_SWEEP, sweep)
    store_real(notes, CARRY, carry)


@triton.jit
def note_weights(
    words,
    leaves,
    mins,
    notes,
    first,
    rows,
    mass,
    share,
    number,
    NORMALIZE: tl.constexpr,
    MIXTURE: tl.constexpr,
    SHARE: tl.constexpr,
    LEVELS: tl.constexpr,
):
    """Note what is common to all weights of a batch."""
    if number > 0:
        turn = tl.load(notes + TURN)
        tl.store(notes + THIS_TURN, turn)
        store_real(notes, SMALLEST + 1 - turn, tl.full([], INFINITY, tl.float64))
        store_real(notes, BETA, schedule(words, w.BETA_START))
        store_real(notes, ROWS, tl.sum(rows, 0).to(tl.float64))
        store_real(notes, MASS, tl.sum(mass, 0).to(tl.float64))
        a_0, b_0, a_1, b_1 = both_terms(words, rows, mass, share, number, MIXTURE)
        store_real(notes, SLOPE, a_0)
        store_real(notes, SLOPE + 1, a_1)
        store_real(notes, OFFSET, b_0)
        store_real(notes, OFFSET + 1, b_1)
        if NORMALIZE == OF_BUFFER:
            least = least_of_buffer(
                words, leaves, mins, first, rows, a_0, b_0, a_1, b_1, share, number, SHARE, LEVELS
            )
            store_real(notes, LEAST, least)


@triton.jit
def lower_smallest(
    words,
    leaves,
    notes,
    slots,
    inside,
    second,
    rows,
    mass,
    share,
    number,
    MIXTURE: tl.constexpr,
    SHARE: tl.constexpr,
):
    """The smallest ratio of the batch is at most that of these rows; programs do so at once."""
    a_0, b_0, a_1, b_1 = both_terms(words, rows, mass, share, number, MIXTURE)
    leaf = tl.load(leaves + slots).to(tl.float64)
    ratio = ratios(leaf, second, a_0, b_0, a_1, b_1, number, SHARE)
    least = tl.min(tl.where(inside, ratio, INFINITY), 0)
    bits = least.to(tl.int64, bitcast=True)  # positive numbers are ordered as their bits
    tl.atomic_min(notes + SMALLEST + tl.load(notes + TURN), bits, sem="relaxed")


@triton.jit
def weights_of(words, leaves, notes, slots, inside, NORMALIZE: tl.constexpr, SHARE: tl.constexpr):
    """Weights of drawn rows, float32 [B]; those that are clipped are counted.

    Args:
        slots: int64 [B].
        inside: Which of them count, bool [B].
    """
    leaf = tl.load(leaves + slots, mask=inside, other=1.0)
    number = tl.load(notes + NUMBER)
    second = (number == 2) & (slots >= tl.load(words + w.RING_START))
    ratio = ratios(
        leaf.to(tl.float64),
        second,
        real(notes, SLOPE),
        real(notes, OFFSET),
        real(notes, SLOPE + 1),
        real(notes, OFFSET + 1),
        number,
        SHARE,
    )
    divisor = tl.full([], 1.0, tl.float64)
    if NORMALIZE == OF_BATCH:
        divisor = real(notes, SMALLEST + tl.load(notes + THIS_TURN))
    elif NORMALIZE == OF_BUFFER:
        divisor = real(notes, LEAST)
    elif not SHARE:
        mass = mass_of(leaf, power_of_two(tl.load(words + w.SCALE))).to(tl.float64)
        divisor = tl.where(number == 2, 1.0, real(notes, MASS))
        ratio = tl.where(number == 2, ratio, mass * real(notes, ROWS))
    ratio = ratio / tl.where(number > 0, divisor, 1.0)  # of nothing, it has never been noted
    weight = power(tl.where(inside, ratio, 1.0), -real(notes, BETA))
    clip = real(words, w.WEIGHT_CLIP).to(tl.float32)
    clipped = tl.sum((inside & (weight > clip)).to(tl.int64), 0)
    tl.atomic_add(words + w.CLIPPED_WEIGHTS, clipped, mask=clipped > 0, sem="relaxed")
    return tl.minimum(weight, clip)
