"""The pictures of a report, each as the text of an inline SVG.

A picture is drawn in stand-in colours, which become CSS variables in its text: one picture serves
a light and a dark page. Its words stay text, set in the font of the page. Nothing in a picture
depends on the time or on chance: equal data give equal text.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.errors import MissingExtraError
from relive.numbers import short
from relive.report.series import moving_average, moving_window, thinned

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
except ImportError as error:
    raise MissingExtraError("matplotlib", extra="report") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from numpy.typing import NDArray

    Series = NDArray[np.float64]
    Evaluation = tuple[float, float, float]

# The stand-in colours and the CSS variables that they become; `style.css` gives those values.
TEXT, GRID, FIRST, SECOND, THIRD = "#010101", "#020202", "#030303", "#040404", "#050505"
VARIABLES = {
    TEXT: "var(--muted)",
    GRID: "var(--line)",
    FIRST: "var(--first)",
    SECOND: "var(--second)",
    THIRD: "var(--third)",
}
RC: Any = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": GRID,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GRID,
    "xtick.labelcolor": TEXT,
    "ytick.color": GRID,
    "ytick.labelcolor": TEXT,
    "ytick.left": False,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
    "legend.frameon": False,
    "legend.labelcolor": TEXT,
    "legend.handlelength": 1.5,
}
# Inches, 72 units each; the same scale wherever a picture stands in the page.
PAGE, HALF_OF_PAGE, THIRD_OF_PAGE = (10.2, 3.5), (4.9, 2.4), (3.15, 2.4)
MOST_DOTS = 1500


def learning(
    episodes: tuple[Series, Series], evaluations: Sequence[Evaluation], reference: float | None
) -> str:
    """Returns of training episodes, their moving average, greedy evaluations and the reference.

    Args:
        episodes: Environment step and return of each episode, [T] each.
        evaluations: Step, mean and standard deviation of each greedy evaluation.
        reference: The known result for the environment, None if there is none.

    Returns:
        The text of an SVG.
    """
    steps, returns = episodes
    window = moving_window(len(returns))

    def draw(axes: Axes) -> None:
        dots = slice(None, None, 1 + len(steps) // MOST_DOTS)
        axes.plot(steps[dots], returns[dots], ".", c=FIRST, alpha=0.3, ms=4.5, mew=0)
        average = thinned(steps[window - 1 :], moving_average(returns, window))
        axes.plot(*average, c=FIRST, lw=2.2, label=f"training, mean of {window} episodes")
        if reference is not None:
            axes.axhline(reference, c=THIRD, lw=1.4, ls=(0, (5, 3)), label="reference")
        if evaluations:
            at, means, deviations = np.array(evaluations, dtype=np.float64).T
            label = "greedy evaluation ± deviation"
            line = axes.errorbar(
                at, means, deviations, fmt="D", c=SECOND, ms=6, capsize=4, label=label
            )
            for part in line.get_children():
                part.set(clip_on=False, zorder=5)
        axes.set_ylabel("episode return")
        axes.margins(y=0.06)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        _step_axis(axes)

    return _picture("learning", PAGE, draw)


def lines(name: str, series: Sequence[tuple[str, Series, Series]], *, log: bool = False) -> str:
    """Up to three numbers over environment steps.

    Args:
        name: Name of the picture, unique in the page.
        series: Label, steps [T] and values [T] of each line.
        log: Whether the vertical axis is logarithmic.

    Returns:
        The text of an SVG.
    """

    def draw(axes: Axes) -> None:
        for (label, steps, values), colour in zip(series, (FIRST, SECOND, THIRD), strict=False):
            axes.plot(*thinned(steps, values), c=colour, label=label)
        if log:
            axes.set_yscale("log")
            _log_ticks(axes.yaxis, np.concatenate([y[y > 0] for _, _, y in series]))
        else:
            axes.yaxis.set_major_locator(MaxNLocator(5))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
            if min(y.min() for _, _, y in series) >= 0:
                axes.set_ylim(bottom=0)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        _step_axis(axes)

    return _picture(name, HALF_OF_PAGE, draw)


def priorities(
    edges: NDArray[np.float64], counts: NDArray[np.int64], size: tuple[float, float]
) -> str:
    """How many rows have which priority, both axes logarithmic.

    Args:
        edges: Edges of the bins, ascending and positive, one more than counts.
        counts: Rows in each bin.
        size: Inches.

    Returns:
        The text of an SVG.
    """

    def draw(axes: Axes) -> None:
        axes.stairs(counts, edges, fill=True, color=FIRST, alpha=0.85, baseline=0.5)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
        _log_ticks(axes.xaxis, edges[[0, -1]])
        _log_ticks(axes.yaxis, np.array([0.5, counts.max()]))
        axes.set_xlabel("priority")
        axes.set_ylabel("rows")

    return _picture("priorities", size, draw)


def doublings(name: str, counts: Sequence[int], xlabel: str, size: tuple[float, float]) -> str:
    """A histogram whose bins double: bin 0 counts the value 0, bin k counts [2^(k-1), 2^k).

    Args:
        name: Name of the picture, unique in the page.
        counts: Count of each bin; empty ones at the end are left out.
        xlabel: What is counted.
        size: Inches.

    Returns:
        The text of an SVG; the bars are shares of the whole in percent.
    """
    filled = np.trim_zeros(np.asarray(counts, dtype=np.float64), "b")
    labels = ["0", *(short(2.0 ** (k - 1)) for k in range(1, len(filled)))]

    def draw(axes: Axes) -> None:
        at = np.arange(len(filled))
        axes.bar(at, 100 * filled / max(filled.sum(), 1), width=0.86, color=FIRST, alpha=0.85)
        every = 1 + int(len(filled) / (2.6 * size[0]))
        axes.set_xticks(at[::every], labels[::every])
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
        axes.set_xlabel(xlabel)

    return _picture(name, size, draw)


def _log_ticks(axis: Axis, values: Series) -> None:
    """Plain numbers on a logarithmic axis: about five, whatever the range."""
    decades = np.log10(values.max() / values.min())
    if decades > 2:
        axis.set_major_locator(LogLocator(numticks=6))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades > 0.7 else range(1, 10)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_formatter(NullFormatter())


def _step_axis(axes: Axes) -> None:
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: short(step)))
    axes.set_xlabel("environment steps")


def _picture(name: str, size: tuple[float, float], draw: Callable[[Axes], None]) -> str:
    """Lets `draw` draw on axes of a size in inches; the text of the picture."""
    with mpl.rc_context(RC | {"svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return _inline(text.getvalue(), name)


def _inline(text: str, name: str) -> str:
    """Makes a file's SVG fit for a page: no prologue, ids of its own, colours and size from CSS."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(
        r'<svg [^>]*?viewBox="([^"]+)"[^>]*>',
        rf'<svg role="img" aria-label="{name}" viewBox="\1">',
        text,
        count=1,
    )
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font-family: [^;\"]+; ?", "", text).replace("xlink:href", "href")
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return text
