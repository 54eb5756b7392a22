"""The figures as a picture: a panel an operation, a bar a library."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from relive.bench.environments import PEERS
from relive.errors import ConfigError, MissingExtraError

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtraError("matplotlib", extra="report") from error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = (
    "uniform add 1",
    "per add 1",
    "uniform sample 256",
    "per sample 256",
    "per update 256",
    "per step 256",
)
TITLES = {"uniform": "uniform", "per": "prioritized"}
# Read on a white page and on a black one.
TEXT, OURS, PEER, FLOOR = "#7d8590", "#2f81f7", "#8b949e", "#3fb950"
RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "relive",
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.bottom": False,
    "axes.edgecolor": TEXT,
    "ytick.color": TEXT,
    "ytick.left": False,
}
PANEL_WIDTH, BAR_HEIGHT, MARGIN = 4.6, 0.21, 0.55  # inches


def chart(result: dict[str, Any]) -> str:
    """The text of an SVG: microseconds a call of the first workload that was measured.

    Args:
        result: what `compare` returned, with "machine" if it is to be named.

    Raises:
        ConfigError: none of the operations of the chart was measured.
    """
    name = next(iter(result["workloads"]), "")
    workload = result["workloads"].get(name, {"cases": {}})
    panels = [case for case in PANELS if workload["cases"].get(case)]
    if not panels:
        raise ConfigError(f"nothing to draw: none of {', '.join(PANELS)} was measured")
    bars = [bars_of(workload["cases"][case]) for case in panels]
    most = [max(map(len, bars[first : first + 2])) for first in range(0, len(bars), 2)]
    height = sum(most) * BAR_HEIGHT + (len(most) + 1) * MARGIN
    with mpl.rc_context(RC):
        figure = Figure(figsize=(2 * PANEL_WIDTH, height), layout="constrained")
        grid = figure.add_gridspec(len(most), 2, height_ratios=most)
        for place, (case, lengths) in enumerate(zip(panels, bars, strict=True)):
            axes = figure.add_subplot(grid[place // 2, place % 2])
            axes.set_ylim(0.5 - most[place // 2], 0.5)
            _draw(axes, case, lengths)
        processor = result.get("machine", {}).get("processor", "")
        figure.suptitle(
            f"Microseconds of CPU time a call, {name}: {workload['title']}. "
            f"Shorter is faster. {processor}",
            fontsize=8.5,
        )
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue()


def bars_of(figures: dict[str, Any]) -> list[tuple[str, float]]:
    """Columns of a case from the fastest to the slowest; without the search of a cumulated sum."""
    times = {name: found["cpu"]["median"] for name, found in figures.items() if name != "search"}
    return sorted(times.items(), key=lambda bar: bar[1])


def colour(column: str) -> str:
    """Ours, a peer's, or a floor's."""
    if column in PEERS:
        return PEER
    return OURS if column.startswith("relive") else FLOOR


def _draw(axes: Axes, case: str, bars: list[tuple[str, float]]) -> None:
    sampler, kind, rows = case.split()
    names, times = zip(*bars, strict=True)
    places = range(0, -len(bars), -1)
    axes.barh(places, times, color=[colour(name) for name in names], height=0.72)
    for place, time in zip(places, times, strict=True):
        axes.text(time, place, f" {time:.3g}" if time < 1000 else f" {time:.0f}", va="center")
    axes.set_yticks(places, [name.replace(" out", " out=") for name in names])
    axes.set_xticks([])
    axes.set_xlim(0, max(times) * 1.15)
    axes.set_title(f"{kind} {rows}, {TITLES[sampler]}", loc="left", fontweight="bold", fontsize=8.5)
