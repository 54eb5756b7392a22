"""The pictures that show several groups of runs at once.

A group has its colour and its line: seven colours that colour-blind readers can tell apart, five
kinds of line, so that two groups differ in both, or at least in one, up to the thirty-fifth.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relive.numbers import NARROW_SPACE
from relive.report.canvas import (
    GROUPS,
    HALF_OF_PAGE,
    TEXT,
    VARIABLES,
    doubling_ticks,
    log_ticks,
    picture,
    plain_ticks,
    share_ticks,
    step_axis,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from relive.report.curves import Curve

    Series = NDArray[np.float64]

DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1, 1.4), (6, 2, 1, 2), (3, 1, 1, 1, 1, 1))
MARKERS = "oDs^vP"


class Result(NamedTuple):
    """How the runs of a group ended: what each reached, the mean, and its interval."""

    label: str
    values: Series
    mean: float
    ends: tuple[float, float] | None


def look(index: int) -> dict[str, Any]:
    """Colour and line of a group."""
    dashes = DASHES[index % len(DASHES)]
    return {"c": GROUPS[index % len(GROUPS)], "ls": (0, dashes) if dashes else "-"}


def key(index: int) -> str:
    """A piece of the line of a group, for a legend in HTML."""
    colour = VARIABLES[GROUPS[index % len(GROUPS)]]
    dashes = " ".join(f"{2.4 * dash:g}" for dash in DASHES[index % len(DASHES)])
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        '<svg viewBox="0 0 30 10" aria-hidden="true">'
        f'<line x1="1" x2="29" y1="5" y2="5" stroke="{colour}" stroke-width="3"{dashed} /></svg>'
    )


def curves(
    name: str,
    groups: Sequence[tuple[int, Curve]],
    *,
    size: tuple[float, float] = HALF_OF_PAGE,
    log: bool = False,
    ylabel: str = "",
    reference: float | None = None,
) -> str:
    """Means over runs with their intervals.

    Args:
        name: Name of the picture, unique in the page.
        groups: Index and curve of each.
        size: Inches.
        log: Whether the vertical axis is logarithmic.
        ylabel: What is on it.
        reference: The known result, None if there is none.

    Returns:
        The text of an SVG.
    """

    def draw(axes: Axes) -> None:
        for index, curve in groups:
            style = look(index)
            style["marker"] = "o" if len(curve.steps) == 1 else ""
            axes.plot(curve.steps, curve.mean, **style)
            if curve.low is not None and curve.high is not None:
                band = curve.steps, curve.low, curve.high
                axes.fill_between(*band, color=style["c"], alpha=0.16, lw=0)
        if reference is not None:
            axes.axhline(reference, c=TEXT, lw=1.4, ls=(0, (5, 3)))
        if log:
            axes.set_yscale("log")
            means = np.concatenate([curve.mean for _, curve in groups])
            log_ticks(axes.yaxis, means[means > 0])
        else:
            plain_ticks(axes.yaxis)
        axes.set_ylabel(ylabel)
        step_axis(axes)

    return picture(name, size, draw)


def results(name: str, groups: Sequence[tuple[int, Result]], reference: float | None) -> str:
    """What each run reached, a dot each; the means and their intervals.

    Args:
        name: Name of the picture, unique in the page.
        groups: Index and result of each.
        reference: The known result, None if there is none.

    Returns:
        The text of an SVG.
    """
    size = HALF_OF_PAGE[0], max(1.5, 0.75 + 0.42 * len(groups))

    def draw(axes: Axes) -> None:
        for row, (index, result) in enumerate(groups):
            colour, marker = look(index)["c"], MARKERS[index % len(MARKERS)]
            if result.ends is not None:
                axes.plot(result.ends, (row, row), c=colour, lw=7, alpha=0.3)
            axes.plot(result.values, [row] * len(result.values), marker, c=colour, ms=5, mew=0)
            axes.plot(result.mean, row, "|", c=colour, ms=17, mew=2.5)
        if reference is not None:
            axes.axvline(reference, c=TEXT, lw=1.4, ls=(0, (5, 3)))
        axes.set_yticks(range(len(groups)), [shortened(one.label) for _, one in groups])
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.grid(visible=False)
        axes.margins(x=0.06)
        plain_ticks(axes.xaxis)
        axes.set_xlabel("mean return of greedy episodes")

    return picture(name, size, draw)


def priorities(
    name: str, groups: Sequence[tuple[int, Series, Series]], size: tuple[float, float]
) -> str:
    """Shares of rows by priority.

    Args:
        name: Name of the picture, unique in the page.
        groups: Index, edges of bins [K + 1] and percent of the rows in each [K].
        size: Inches.

    Returns:
        The text of an SVG.
    """

    def draw(axes: Axes) -> None:
        for index, edges, shares in groups:
            axes.stairs(shares, edges, baseline=None, lw=1.8, **_stairs(index))
        axes.set_xscale("log")
        log_ticks(axes.xaxis, np.concatenate([edges for _, edges, _ in groups]))
        axes.set_ylim(bottom=0)
        share_ticks(axes.yaxis)
        axes.set_xlabel("priority")

    return picture(name, size, draw)


def doublings(
    name: str, groups: Sequence[tuple[int, Series]], xlabel: str, size: tuple[float, float]
) -> str:
    """Histograms whose bins double, one over the other.

    Args:
        name: Name of the picture, unique in the page.
        groups: Index and percent in each bin; as many bins for all.
        xlabel: What is counted.
        size: Inches.

    Returns:
        The text of an SVG.
    """
    count = 1 + max(int(np.flatnonzero(shares)[-1]) for _, shares in groups)

    def draw(axes: Axes) -> None:
        edges = np.arange(count + 1) - 0.5
        for index, shares in groups:
            axes.stairs(shares[:count], edges, baseline=None, lw=1.8, **_stairs(index))
        axes.set_ylim(bottom=0)
        share_ticks(axes.yaxis)
        doubling_ticks(axes, count, xlabel)

    return picture(name, size, draw)


def shortened(label: str, most: int = 26) -> str:
    r"""A label for an axis, in two lines if it is long; a dollar would begin a formula.

    >>> shortened("sampler rank"), shortened("sampler rank, lr 1, n step 3", 12), shortened("$x")
    ('sampler rank', 'sampler\nrank, lr 1,…', '\\$x')
    >>> shortened("steps 6\u202f000") == "steps 6\u202f000"  # a space, and not printable to Python
    True
    """
    plain = "".join(
        letter if letter.isprintable() or letter == NARROW_SPACE else "?" for letter in label
    )
    return "\n".join(wrap(plain, most, max_lines=2, placeholder="…")).replace("$", r"\$")


def _stairs(index: int) -> dict[str, Any]:
    style = look(index)
    return {"color": style["c"], "linestyle": style["ls"]}
