"""The figures as rows of text, for a table of any kind."""

from __future__ import annotations

from typing import Any

from relive.bench.environments import PEERS
from relive.bench.targets import best_peer, median
from relive.bench.workloads import ENVS, FLOORS_OF, VARIANTS, column

HEADINGS = {"stable-baselines3": "sb3"}
FLOOR_NAMES = tuple(dict.fromkeys(name for names in FLOORS_OF.values() for name in names))
NOTHING = "·"


def times_of(workload: dict[str, Any], sampler: str) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: microseconds of CPU time a call, ratios at the right.

    "to best" is ours to the fastest peer, with a new batch and with `out=`; "to copy" is `out=` to
    the copy of the same bytes, "to take" to one `np.take` with its draw. "add 64 envs" is one step
    of 64 environments, which is what Stable-Baselines3 is given too, "add 64" are steps of one.
    """
    cases = {
        name.removeprefix(f"{sampler} "): figures
        for name, figures in workload["cases"].items()
        if name.startswith(sampler)
    }
    present = {name for figures in cases.values() for name in figures}
    others = [name for name in (*PEERS, *FLOOR_NAMES) if name in present]
    floors = [name for name in ("copy", "take") if name in present]
    headings = ["operation", "relive", "out=", *(HEADINGS.get(name, name) for name in others)]
    rows = []
    for case, figures in cases.items():
        for variant in (*VARIANTS[sampler], *(v for v in (ENVS,) if column(v) in figures)):
            ours = column(variant)
            shown = [microseconds(figures, name) for name in (ours, f"{ours} out", *others)]
            rows.append([f"{case} {variant}".strip(), *shown, *_ratios(figures, ours, floors)])
    return [*headings, "to best", *(f"to {floor}" for floor in floors)], rows


def microseconds(figures: dict[str, Any], name: str) -> str:
    """The median of a column.

    >>> microseconds({"copy": {"cpu": {"median": 6.318}}}, "copy")
    '6.32'
    """
    time = median(figures, name)
    if time is None:
        return NOTHING
    return f"{time:.3g}" if time < 1000 else f"{time:.0f}"


def verdict_of(verdict: dict[str, Any]) -> list[str]:
    """A target as a row: where, what, against what, limit, ratio."""
    found = verdict["ratio"]
    return [
        verdict["workload"],
        verdict["case"],
        verdict["ours"],
        verdict["versus"],
        f"{verdict['limit']:.3g}",
        NOTHING if found is None else f"{found:.2f}",
    ]


def _ratios(figures: dict[str, Any], ours: str, floors: list[str]) -> list[str]:
    fresh, out = median(figures, ours), median(figures, f"{ours} out")
    _, best = best_peer(figures)
    to_best = " ".join(ratio(time, best) for time in (fresh, out) if time is not None)
    to_floors = [ratio(out, median(figures, floor)) for floor in floors]
    return [to_best if best else NOTHING, *to_floors]


def ratio(time: float | None, other: float | None) -> str:
    """Two digits, or that there is none.

    >>> ratio(3.0, 4.0), ratio(3.0, None)
    ('0.75', '·')
    """
    return f"{time / other:.2f}" if time is not None and other else NOTHING
