"""Drawing a batch: rows, weights, and every field of the rows gathered into one arena.

Within a part of n rows (see `ops.window`), whose masses sum to M, k draws are made:

    uniform       row floor(u n)
    by priority   P(i) = mass_i / M; stratified: draw j comes from [j, j + 1) M / k
                  with a uniform share s:  P(i) = (1 - s) mass_i / M + s / n
    weight        (n P(i))^-beta over its normaliser, then at most weight_clip
                  "buffer": the largest weight any row with a positive leaf could have
                  "batch":  the largest of the batch;  None: 1

(Schaul et al. 2016, arXiv:1511.05952, section 3.4.) With two parts, n and P are those inside each
and the normaliser is common, or, with mixture weights, P is that of the whole mixture. u is a
64-bit number of the Philox block whose counter is the number of the draw, so batch k + 1 goes on
where batch k ended; training draws and others have streams of their own. The other half of the
block decides whether a draw belongs to the uniform share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.batch import CACHE_LINE
from relive.fields import NO_CONVERSION
from relive.ops import words as w
from relive.ops.convert.reference import STORED_DTYPES, decode
from relive.ops.philox.reference import philox, random_below
from relive.ops.power.reference import power
from relive.ops.tree import reference as tree
from relive.ops.window import reference as windows
from relive.schedules import Linear

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.ops.state import State
    from relive.ops.window.reference import Part


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
    """Fill an arena with a batch.

    Args:
        arena: uint8, laid out by `BatchLayout`.
        train: count as a training sample: progress, sweep, age and reuse go on.
        ids: draw from the rows with ids in [start, stop) only, whatever the window; those of the
            range that are gone are counted.
        first, total: the batch is rows first..first + batch_size of an arena of `total` rows.

    Returns:
        OK, or NOTHING_TO_DRAW, in which case nothing has changed.
    """
    total = batch_size if total is None else total
    parts, carry = windows.parts(state, batch_size, ids)
    if not parts:
        return w.NOTHING_TO_DRAW
    counter, stream = (w.DRAWS, w.TRAIN_STREAM) if train else (w.EVAL_DRAWS, w.EVAL_STREAM)
    seed, start = state.word(w.SEED), state.word(counter)

    def draw(bound: int, number: int) -> int:
        return random_below(bound, seed, start + number, stream)

    def is_uniform(number: int) -> bool:
        high, low = philox(seed, start + number, stream)[2:]
        return (high << 32 | low) >> 1 < state.word(w.UNIFORM_SHARE)

    slots = torch.zeros(batch_size, dtype=torch.int64)
    part_of = torch.zeros(batch_size, dtype=torch.int64)
    for number, part in enumerate(parts):
        slots[part.positions] = _draw_part(state, part, draw, is_uniform)
        part_of[part.positions] = number
    row_ids = windows.ids_of(state, slots)
    if state.word(w.WEIGHTING) == w.UNIFORM:
        weights = torch.ones(batch_size)
    else:
        weights = importance_weights(state, parts, slots, part_of)
    if ids is not None:
        state.words[w.RANGE_ROWS_GONE] += windows.num_gone(state, *ids)
    if train:
        if state.word(w.TRACK_REUSE):
            _track(state, slots, row_ids)
        state.words[w.PROGRESS] += 1
        state.words[w.SWEEP] = (state.word(w.SWEEP) + 1) % state.word(w.SWEEP_LENGTH)
        state.floats[w.DEMO_CARRY] = carry
    state.words[counter] += batch_size
    state.words[w.SAMPLES] += 1
    state.words[w.SAMPLED_ROWS] += batch_size
    columns = _arena_columns(state, arena, total)
    columns[0][first : first + batch_size] = row_ids.view(-1, 1).view(torch.uint8)
    columns[1][first : first + batch_size] = weights.view(-1, 1).view(torch.uint8)
    _gather_slots(state, slots, columns[2:], first)
    return w.OK


def _draw_part(
    state: State,
    part: Part,
    draw: Callable[[int, int], int],
    is_uniform: Callable[[int], bool],
) -> Tensor:
    """Slots for the positions of a part."""
    uniform = [part.slots[draw(len(part.slots), p)] for p in part.positions]
    if state.word(w.WEIGHTING) == w.UNIFORM:
        return torch.tensor(uniform, dtype=torch.int64)
    part_masses = tree.masses(state.leaves[part.slots], state.word(w.SCALE))
    targets = torch.tensor(
        part_targets(
            int(part_masses.sum()),
            len(part.positions),
            bool(state.word(w.STRATIFIED)),
            lambda bound, number: draw(bound, part.positions[number]),
        ),
        dtype=torch.int64,
    )
    found = part.slots[tree.find(part_masses, targets)].tolist()
    return torch.tensor(
        [u if is_uniform(p) else f for p, u, f in zip(part.positions, uniform, found, strict=True)],
        dtype=torch.int64,
    )


def _track(state: State, slots: Tensor, ids: Tensor) -> None:
    """Count draws of each row, and ages of those in the ring."""
    next_id = state.word(w.NEXT_ID)
    for slot, row_id in zip(slots.tolist(), ids.tolist(), strict=True):
        state.uses[slot] += 1
        if slot >= state.word(w.RING_START):
            state.age_counts[(next_id - 1 - row_id).bit_length()] += 1


def part_targets(
    mass: int, count: int, stratified: bool, below: Callable[[int, int], int]
) -> list[int]:
    """Where in the mass of a part each of its draws falls.

    Args:
        below: (bound, number of the draw) -> its random integer below the bound.
    """
    if not stratified:
        return [below(mass, number) for number in range(count)]
    found = []
    for number in range(count):
        j = stratum(number, count)
        low, high = j * mass // count, (j + 1) * mass // count
        found.append(low + below(high - low, number))
    return found


def stratum(position: int, batch_size: int) -> int:
    """Which of B strata the draw at a position of the batch comes from.

    With B = 2^k q, q odd, position a q + b gets stratum b 2^k + reverse_k(a): for every power of
    two m dividing B, each of the m equal slices of the batch then holds one draw of every run of m
    neighbouring strata.
    """
    bits = (batch_size & -batch_size).bit_length() - 1
    a, b = divmod(position, batch_size >> bits)
    mirrored = int(f"{a:0{bits}b}"[::-1], 2) if bits else 0
    return (b << bits) + mirrored


def beta(state: State) -> float:
    """The exponent of the importance weights at the next training sample."""
    start, end = state.real(w.BETA_START), state.real(w.BETA_END)
    return Linear(start, end, int(state.real(w.BETA_STEPS)))(state.word(w.PROGRESS))


def importance_weights(state: State, parts: list[Part], slots: Tensor, part_of: Tensor) -> Tensor:
    """float32 [B] weights of drawn slots; `part_of` is the number of the part of each."""
    normalize = state.word(w.NORMALIZE)
    leaves = state.leaves[slots].to(torch.float64)
    smallest = [_smallest(state, part) for part in parts]
    if len(parts) == 1 and state.word(w.UNIFORM_SHARE) == 0:
        # n / M is common to all rows, and left out where it cancels
        if normalize == w.NO_NORMALIZER:
            mass = tree.masses(state.leaves[slots], state.word(w.SCALE)).to(torch.float64)
            ratio = mass * float(len(parts[0].slots)) / float(parts[0].mass(state))
        elif normalize == w.BATCH_NORMALIZER:
            ratio = leaves / leaves.min()
        else:
            ratio = leaves / smallest[0]
    else:
        terms = [_likelihood(state, part, parts) for part in parts]
        scale = torch.tensor([term[0] for term in terms], dtype=torch.float64)[part_of]
        base = torch.tensor([term[1] for term in terms], dtype=torch.float64)[part_of]
        ratio = scale * leaves + base
        if normalize == w.BATCH_NORMALIZER:
            ratio = ratio / ratio.min()
        elif normalize == w.BUFFER_NORMALIZER:
            least = min(
                a * leaf + b
                for (a, b), leaf, part in zip(terms, smallest, parts, strict=True)
                if part.share > 0
            )
            ratio = ratio / least
    weights = power(ratio, -beta(state))
    clip = torch.tensor(state.real(w.WEIGHT_CLIP), dtype=torch.float32)
    state.words[w.CLIPPED_WEIGHTS] += int((weights > clip).sum())
    return torch.minimum(weights, clip)


def _smallest(state: State, part: Part) -> float:
    """The smallest positive leaf of a part."""
    leaves = state.leaves[part.slots]
    return float(leaves[leaves > 0].min())


def _likelihood(state: State, part: Part, parts: list[Part]) -> tuple[float, float]:
    """(a, b) such that a leaf + b is n P of a row of a part."""
    uniform = state.word(w.UNIFORM_SHARE) / 2.0**63
    count, mass = float(len(part.slots)), float(part.mass(state))
    a, b = (1.0 - uniform) * 2.0 ** state.word(w.SCALE) * count / mass, uniform
    if state.word(w.MIXTURE_WEIGHTS) and len(parts) > 1:
        rows = float(sum(len(other.slots) for other in parts))
        factor = part.share * rows / count
        a, b = a * factor, b * factor
    return a, b


def can_draw(state: State) -> bool:
    """Whether the next batch has a row to draw."""
    return bool(windows.parts(state, 1, None)[0])


def gather(state: State, ids: Tensor, arena: Tensor) -> None:
    """Copy every gathered field of the rows `ids` (int64 [B], held) into an arena."""
    columns = _arena_columns(state, arena, len(ids))[2:]
    _gather_slots(state, windows.slots_of(state, ids), columns, 0)


def _gather_slots(state: State, slots: Tensor, columns: list[Tensor], first: int) -> None:
    for target, column in zip(columns, state.columns.tolist(), strict=True):
        offset, nbytes, _, conversion = column
        stored = state.rows[slots, offset : offset + nbytes]
        if conversion != NO_CONVERSION:
            stored = decode(stored.view(STORED_DTYPES[conversion])).view(torch.uint8)
        target[first : first + len(slots)] = stored


def _arena_columns(state: State, arena: Tensor, batch_size: int) -> list[Tensor]:
    """Ids, weights and the gathered columns as uint8 [B, bytes] views of an arena."""
    views, end = [], 0
    for nbytes in (8, 4, *state.columns[:, w.COLUMN_BATCH_BYTES].tolist()):
        views.append(arena[end : end + batch_size * nbytes].view(batch_size, nbytes))
        end += -(-batch_size * nbytes // CACHE_LINE) * CACHE_LINE
    return views
