"""What the buffers of several runs held, taken together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from relive.report.read import Run

    Series = NDArray[np.float64]

PER_DECADE = 4  # bins of priorities


def counters(run: Run) -> dict[str, Any]:
    """The counters of the buffer of a run, by name; none if it was not measured."""
    stats = (run.last("replay_measured") or {}).get("stats", {})
    return {name: value for name, value in stats.items() if not isinstance(value, list)}


def shares_of(runs: Sequence[Run], key: str) -> Series | None:
    """Percent in each bin, all runs together; None if nothing was counted."""
    found = [
        np.array(bins, dtype=np.float64)
        for run in runs
        if (bins := (run.last("replay_measured") or {}).get(key))
    ]
    total = np.zeros(max(map(len, found), default=0))
    for bins in found:
        total[: len(bins)] += bins
    return 100 * total / total.sum() if total.sum() > 0 else None


def priorities_of(runs: Sequence[Run]) -> tuple[Series, Series] | None:
    """Edges of bins, and percent of the rows in each, all runs together."""
    found: dict[float, float] = {}
    for run in runs:
        measured = run.last("replay_measured") or {}
        if measured.get("priority_counts"):
            edges = np.array(measured["priority_edges"], dtype=np.float64)
            counts = np.array(measured["priority_counts"], dtype=np.float64)
            common, inside = rebinned(edges, counts)
            places = np.round(PER_DECADE * np.log10(common[:-1])).tolist()
            for place, count in zip(places, inside.tolist(), strict=True):
                found[place] = found.get(place, 0.0) + count
    filled = [place for place, count in found.items() if count > 0]
    if not filled:
        return None
    whole = np.arange(min(filled), max(filled) + 1)
    counts = np.array([found.get(place, 0.0) for place in whole])
    return 10 ** (np.append(whole, whole[-1] + 1) / PER_DECADE), 100 * counts / counts.sum()


def rebinned(edges: Series, counts: Series) -> tuple[Series, Series]:
    """Counts in bins of a quarter of a decade each, whatever the bins were: [K + 1] and [K].

    What lay in a bin is spread evenly over it, on the logarithmic scale.
    """
    places = PER_DECADE * np.log10(edges)
    common = np.arange(np.floor(places[0] + 1e-9), np.ceil(places[-1] - 1e-9) + 1)
    below = np.interp(common, places, np.concatenate(([0.0], np.cumsum(counts))))
    return 10 ** (common / PER_DECADE), np.diff(below)
