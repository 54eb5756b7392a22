"""What the twin makes of TD errors: leaves and, by rank, ranks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.properties.twin import Refused, float32

if TYPE_CHECKING:
    from tests.properties.twin import Twin

SMALLEST_LEAF, LARGEST_LEAF = 2.0**-40, 2.0**40


def update(twin: Twin, ids: list[int], values: list[float], *, as_leaves: bool) -> None:
    """`values` are float32 numbers."""
    bad = [is_bad(twin, number, as_leaves) for number in values]
    if not all(map(twin.is_known, ids)) or (twin.sampler.bad_priority == "raise" and any(bad)):
        raise Refused
    twin.counts["priority_updates"] += len(ids)
    twin.counts["bad_priorities"] += sum(bad)
    twin.counts["stale_updates"] += sum(row_id not in twin.rows for row_id in ids)
    held = [entry for entry in zip(ids, values, bad, strict=True) if entry[0] in twin.rows]
    if twin.ranked:
        note_errors(twin, held)
    else:
        set_leaves(twin, held, as_leaves)


def is_bad(twin: Twin, number: float, as_leaves: bool) -> bool:
    if as_leaves and twin.ranked and number == math.inf:
        return False  # as read of a row that has never been updated
    return not math.isfinite(number) or (as_leaves and number < 0)


def set_leaves(twin: Twin, entries: list[tuple[int, float, bool]], as_leaves: bool) -> None:
    substitute = twin.max_leaf or 1.0
    decided: dict[int, float] = {}
    placeholders: set[int] = set()  # rows whose last number was bad
    for row_id, number, is_bad in entries:
        if not is_bad:
            decided[row_id] = leaf_of(twin, row_id, number, as_leaves)
            placeholders.discard(row_id)
        elif twin.sampler.bad_priority == "max":
            decided[row_id] = substitute
            placeholders.add(row_id)
        else:
            decided.pop(row_id, None)
    for row_id, leaf in decided.items():
        read_and_written_back = as_leaves and leaf == twin.leaves[row_id]
        if row_id not in placeholders and not read_and_written_back:
            twin.max_leaf = max(twin.max_leaf, leaf)
        twin.leaves[row_id] = leaf


def leaf_of(twin: Twin, row_id: int, number: float, as_leaves: bool) -> float:
    sampler = twin.sampler
    if as_leaves:
        exact, is_zero = number, number == 0
    else:
        magnitude = abs(number) + sampler.eps
        magnitude += sampler.demo_bonus if row_id in twin.pinned else 0.0
        exact = magnitude**sampler.alpha
        is_zero = magnitude == 0 and sampler.alpha > 0
    if is_zero:
        return 0.0
    leaf = float32(min(exact, 1e38))
    held = min(max(leaf, SMALLEST_LEAF), LARGEST_LEAF)
    twin.counts["clamped_priorities"] += held != leaf
    return held


def note_errors(twin: Twin, entries: list[tuple[int, float, bool]]) -> None:
    """The last number for a row decides; now and then all rows are ranked anew."""
    substitute = twin.max_leaf or math.inf
    for row_id, (number, is_bad) in {i: (number, bad) for i, number, bad in entries}.items():
        if not is_bad:
            twin.errors[row_id] = abs(number)
            if math.isfinite(number):
                twin.max_leaf = max(twin.max_leaf, abs(number))
        elif twin.sampler.bad_priority == "max":
            twin.errors[row_id] = substitute
    twin.updates += 1
    if twin.updates >= twin.sampler.resort_every:
        twin.updates = 0
        twin.counts["sorts"] += 1
        rank(twin)


def rank(twin: Twin) -> None:
    """By falling error, of equals the newer first."""
    order = sorted(twin.rows, key=lambda row_id: (-twin.errors[row_id], -row_id))
    for number, row_id in enumerate(order, 1):
        twin.leaves[row_id] = max(float32(number**-twin.sampler.alpha), SMALLEST_LEAF)
