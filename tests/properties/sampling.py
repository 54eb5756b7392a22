"""How the twin draws: which rows may be drawn, which are, and their weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.properties.draws import Heap, below, chance, spread, strata_order
from tests.properties.twin import FIRST_COPY, Refused, count

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.properties.twin import Twin


@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows of which some positions of a batch are drawn; ids in the order of their slots."""

    ids: list[int]
    positions: list[int]
    share: float = 1.0
    masses: list[int]  # of nothing where draws are uniform

    @property
    def can_be_drawn(self) -> bool:
        return bool(self.ids) and (not self.masses or any(self.masses))


def value(schedule: Any, progress: int) -> float:
    if isinstance(schedule, float | int):
        return float(schedule)
    return schedule.start + (schedule.end - schedule.start) * min(1.0, progress / schedule.steps)


def beta(twin: Twin) -> float:
    return value(twin.sampler.beta, twin.progress)


def newest_rows(twin: Twin) -> list[int]:
    """Ids of the ring that the window lets be drawn next."""
    live, window = twin.next_id - twin.oldest, twin.window
    if window is None:
        size = live
    elif window.count is not None:
        size = min(live, window.count)
    else:
        rows = twin.ring_capacity if window.of == "capacity" else live
        eta = value(window.eta, twin.progress)
        share = eta ** ((twin.sweep + 1) * 1000 / twin.sweep_length)
        size = min(live, max(math.floor(rows * share), window.c_min))
    return list(range(twin.next_id - size, twin.next_id))


def parts(twin: Twin, batch_size: int, scale: int) -> tuple[list[Part], float]:
    """The parts that have something to draw, and what the batch leaves owed to demonstrations."""

    def part(ids: list[int], positions: list[int], share: float = 1.0) -> Part:
        ids = sorted(ids, key=twin.slot)
        return Part(ids=ids, positions=positions, share=share, masses=masses(twin, ids, scale))

    everywhere = list(range(batch_size))
    online = newest_rows(twin)
    if twin.demo_fraction is None or not twin.pinned:
        pool = part(twin.pinned + online, everywhere)
        return [pool] if pool.can_be_drawn else [], twin.carry
    share = value(twin.demo_fraction, twin.progress)
    owed = twin.carry + batch_size * share
    number = min(math.floor(owed), batch_size)
    for_demonstrations = spread(number, batch_size)
    rest = [p for p in everywhere if p not in for_demonstrations]
    both = [part(twin.pinned, for_demonstrations, share), part(online, rest, 1 - share)]
    both = [part for part in both if part.can_be_drawn]
    if len(both) == 1:
        return [part(both[0].ids, everywhere)], twin.carry
    return both, owed - number


def masses(twin: Twin, ids: list[int], scale: int) -> list[int]:
    """Leaf times 2^scale, rounded down, but at least 1 if there is any."""
    if twin.sampler is None:
        return []
    leaves = [twin.leaves[row_id] for row_id in ids]
    return [max(int(leaf > 0), int(leaf * 2.0**scale)) for leaf in leaves]


def can_be_drawn(twin: Twin, scale: int) -> bool:
    return bool(parts(twin, 1, scale)[0])


def sample(
    twin: Twin, batch_size: int, *, train: bool, scale: int
) -> tuple[list[int], list[float]]:
    """Ids, and weights to float64 precision."""
    found, carry = parts(twin, batch_size, scale)
    if not found:
        raise Refused
    ids, weights = draw(twin, found, batch_size, train=train, scale=scale)
    if train:
        for row_id in ids:
            twin.uses[row_id] += 1
            if row_id not in twin.pinned:
                count(twin.ages, twin.next_id - 1 - row_id)
        twin.progress += 1
        twin.sweep = (twin.sweep + 1) % twin.sweep_length
        twin.carry = carry
    return ids, weights


def sample_range(
    twin: Twin, batch_size: int, start: int, stop: int, *, scale: int
) -> tuple[list[int], list[float]]:
    """From the rows held with ids in [start, stop)."""
    ids = sorted((i for i in twin.rows if start <= i < stop), key=twin.slot)
    everywhere = list(range(batch_size))
    part = Part(ids=ids, positions=everywhere, masses=masses(twin, ids, scale))
    if not part.can_be_drawn:
        raise Refused
    found = draw(twin, [part], batch_size, train=False, scale=scale)
    written = len(range(start, min(stop, twin.next_id)))
    twin.counts["range_rows_gone"] += written - sum(i < FIRST_COPY for i in ids)
    return found


def draw(
    twin: Twin, found: list[Part], batch_size: int, *, train: bool, scale: int
) -> tuple[list[int], list[float]]:
    stream, name = (0, "train") if train else (1, "eval")
    start = twin.counters[name]
    ids = [0] * batch_size
    for part in found:

        def random(bound: int, position: int) -> int:
            return below(bound, twin.seed, start + position, stream)

        for position, row_id in zip(part.positions, draw_part(twin, part, random), strict=True):
            if twin.sampler is not None and twin.sampler.uniform_share:
                share = min(int(twin.sampler.uniform_share * 2.0**63), 2**63 - 1)
                if chance(twin.seed, start + position, stream) < share:
                    row_id = part.ids[random(len(part.ids), position)]
            ids[position] = row_id
    weights = [1.0] * batch_size if twin.sampler is None else weights_of(twin, found, ids, scale)
    twin.counters[name] += batch_size
    twin.counts["samples"] += 1
    twin.counts["draws"] += batch_size
    return ids, weights


def draw_part(twin: Twin, part: Part, random: Callable[[int, int], int]) -> list[int]:
    if twin.sampler is None:
        return [part.ids[random(len(part.ids), position)] for position in part.positions]
    heap, number = Heap(part.masses), len(part.positions)
    ids = []
    for position, stratum in zip(
        part.positions, strata_order(number) if number else [], strict=True
    ):
        low, high = 0, heap.total
        if twin.sampler.stratified:
            low, high = stratum * heap.total // number, (stratum + 1) * heap.total // number
        ids.append(part.ids[heap.find(low + random(high - low, position))])
    return ids


def weights_of(twin: Twin, found: list[Part], ids: list[int], scale: int) -> list[float]:
    """(n P)^-beta over the normaliser, n and P of the part, or of the mixture if it is asked."""
    sampler, uniform = twin.sampler, twin.sampler.uniform_share

    def times_n(part: Part, leaf: float, mass: float) -> float:
        within = (1 - uniform) * mass * len(part.ids) / sum(part.masses) + uniform
        if sampler.mixture_weights and len(found) > 1:
            return within * part.share * sum(len(p.ids) for p in found) / len(part.ids)
        return within

    def exact(part: Part, row_id: int) -> float:
        leaf = twin.leaves[row_id]
        alone = len(found) == 1 and not uniform and sampler.normalize is None
        mass = part.masses[part.ids.index(row_id)] if alone else leaf * 2.0**scale
        return times_n(part, leaf, mass)

    part_of = {position: part for part in found for position in part.positions}
    ratios = [exact(part_of[position], row_id) for position, row_id in enumerate(ids)]
    least = 1.0
    if sampler.normalize == "batch":
        least = min(ratios)
    elif sampler.normalize == "buffer":
        least = min(
            exact(part, row_id)
            for part in found
            for row_id in part.ids
            if twin.leaves[row_id] > 0 and part.share > 0
        )
    raw = [(ratio / least) ** -beta(twin) for ratio in ratios]
    clip = sampler.weight_clip
    twin.counts["clipped_weights"] += sum(weight > clip * (1 + 1e-7) for weight in raw)
    return [min(weight, clip) for weight in raw]
