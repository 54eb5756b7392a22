"""The parts of a batch, for Triton kernels: see `window.reference`, `parts`.

A part has rows of some of the four runs of `window.cuda`. One part has those of all; of two, part 0
has runs 0 and 1, part 1 has runs 2 and 3.
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.ops import words as w
from relive.ops.nodes.cuda import real
from relive.ops.window.cuda import (
    FIRST_OF_RING,
    RUNS,
    find_runs,
    masses_before,
    num_demonstrations,
    oldest_of_ring,
    schedule,
)


@triton.jit
def find_parts(
    words,
    leaves,
    sums,
    bounds,
    batch_size,
    RANGE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    LEVELS: tl.constexpr,
):
    """The parts of the next batch of `batch_size` rows, int64 [], that have rows to draw.

    Returns:
        number: of parts, int64 []; 0 if nothing can be drawn.
        first: The first slot of each run, int64 [4].
        rows: Of each run, int64 [4]; 0 of one that is in no part.
        mass: Likewise; the number of rows where all are equally likely.
        before: Mass of the tree before each run, int64 [4].
        count: Draws from part 0, int64 []; the others are from part 1.
        share: Of the draws that part 0 has in the long run, float64 [].
        carry: What is owed to the next batch, float64 [].
    """
    first, stop = find_runs(words, bounds, RANGE)
    rows, run = stop - first, tl.arange(0, RUNS)
    demonstrations = num_demonstrations(words)
    splits = (demonstrations > 0) & (tl.load(words + w.DEMO_MODE) != w.ONE_POOL)
    if RANGE:
        splits = demonstrations < 0  # never
    mass, before = rows, rows * 0
    if WEIGHTED:
        held = tl.load(words + w.NEXT_ID) - oldest_of_ring(words) + demonstrations
        mass = tl.where(run == 0, tl.load(words + w.TOTAL), 0)
        if splits | (tl.sum(rows, 0) != held):  # else a place in the mass is one in the tree
            edges = tl.reshape(tl.join(first, stop), [2 * RUNS])
            edges = masses_before(words, leaves, sums, edges, LEVELS)
            before, until = tl.split(tl.reshape(edges, [RUNS, 2]))
            mass = until - before
    front = tl.sum(tl.where(run < FIRST_OF_RING, mass, 0), 0)
    ring = tl.sum(tl.where(run < FIRST_OF_RING, 0, mass), 0)
    both = splits & (front > 0) & (ring > 0)
    left_out = splits & (tl.where(run < FIRST_OF_RING, front, ring) == 0)
    rows, mass = tl.where(left_out, 0, rows), tl.where(left_out, 0, mass)
    number = both.to(tl.int64) + (front + ring > 0).to(tl.int64)
    count, share, carry = batch_size, tl.full([], 1.0, tl.float64), real(words, w.DEMO_CARRY)
    if both:
        share = schedule(words, w.DEMO_SHARE_START)
        wanted = carry + batch_size.to(tl.float64) * share
        count = tl.minimum(tl.floor(wanted).to(tl.int64), batch_size)  # the sum may round up
        carry = wanted - count.to(tl.float64)
    return number, first, rows, mass, before, count, share, carry


@triton.jit
def of_part(values, number, part: tl.constexpr):
    """Sum of what the runs of a part have, int64 []."""
    is_second = (number == 2) & (tl.arange(0, RUNS) >= FIRST_OF_RING)
    return tl.sum(tl.where(is_second == (part == 1), values, 0), 0)


@triton.jit
def of_own_part(values, second, number):
    """The same for the part of each draw, int64 [B]: part 1 if `second`, bool [B]."""
    return tl.where(second, of_part(values, number, 1), of_part(values, number, 0))


@triton.jit
def before_in_part(values, number):
    """What the runs before each run have in its part, int64 [4]."""
    is_second = (number == 2) & (tl.arange(0, RUNS) >= FIRST_OF_RING)
    before = tl.cumsum(values, 0) - values
    return before - tl.where(is_second, of_part(values, number, 0), 0)


@triton.jit
def place(numbers, before, beginning, number, second):
    """Places in a part as places in the whole, int64 [B]: rows as slots, or masses.

    The run of a place is the last that begins at it or before; runs ascend, so the distance between
    the two places is the largest of those that come into question.

    Args:
        numbers: In its part, int64 [B].
        before: What is before each run in its part, int64 [4].
        beginning: Where each run begins in the whole, int64 [4].
        number: Of parts.
        second: Whether the part of each is part 1, bool [B].
    """
    is_second = (number == 2) & (tl.arange(0, RUNS) >= FIRST_OF_RING)
    begun = (is_second[None, :] == second[:, None]) & (before[None, :] <= numbers[:, None])
    return numbers + tl.max(tl.where(begun, (beginning - before)[None, :], 0), 1)
