"""Drawing rows of the parts of a batch: which slots it has, by the formulas of `ops.sample`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.ops import words as w
from relive.ops.philox.reference import philox, random_below
from relive.ops.tree import reference as tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.ops.state import State
    from relive.ops.window.reference import Part


def draw_rows(
    state: State, parts: list[Part], batch_size: int, counter: int, stream: int
) -> tuple[Tensor, Tensor]:
    """The draws of a batch: the slot of each, and the number of its part, int64 [B] each.

    Args:
        counter: the word that counts the random numbers used of a stream.
    """
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
    return slots, part_of


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


def track(state: State, slots: Tensor, ids: Tensor) -> None:
    """Count draws of each row, and ages of those in the ring."""
    next_id = state.word(w.NEXT_ID)
    for slot, row_id in zip(slots.tolist(), ids.tolist(), strict=True):
        state.uses[slot] += 1
        if slot >= state.word(w.RING_START):
            state.age_counts[(next_id - 1 - row_id).bit_length()] += 1
