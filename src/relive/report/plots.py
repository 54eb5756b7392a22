"""The pictures of one run, each as the text of an inline SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relive.report.canvas import (
    FIRST,
    HALF_OF_PAGE,
    PAGE,
    SECOND,
    THIRD,
    doubling_ticks,
    log_ticks,
    picture,
    plain_ticks,
    share_ticks,
    step_axis,
)
from relive.report.series import moving_average, moving_window, thinned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Series = NDArray[np.float64]
    Evaluation = tuple[float, float, float]

MOST_DOTS = 1500


def learning(
    episodes: tuple[Series, Series],
    evaluations: Sequence[Evaluation],
    reference: float | None,
    *,
    name: str = "learning",
    size: tuple[float, float] = PAGE,
) -> str:
    """Returns of training episodes, their moving average, greedy evaluations and the reference.

    Args:
        episodes: Environment step and return of each episode, [T] each.
        evaluations: Step, mean and standard deviation of each greedy evaluation.
        reference: The known result for the environment, None if there is none.
        name: Name of the picture, unique in the page.
        size: Inches.

    Returns:
        The text of an SVG.
    """
    steps, returns = episodes
    window = moving_window(len(returns))

    def draw(axes: Axes) -> None:
        dots = slice(None, None, 1 + len(steps) // MOST_DOTS)
        axes.plot(steps[dots], returns[dots], ".", c=FIRST, alpha=0.3, ms=4.5, mew=0)
        average = thinned(steps[window - 1 :], moving_average(returns, window))
        what = f"mean of {window} episodes" if window > 1 else "each episode"
        axes.plot(*average, c=FIRST, lw=2.2, label=f"training, {what}")
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
        columns = 3 if size[0] > HALF_OF_PAGE[0] else 1
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns)
        step_axis(axes)

    return picture(name, size, draw)


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
            log_ticks(axes.yaxis, np.concatenate([y[y > 0] for _, _, y in series]))
        else:
            plain_ticks(axes.yaxis)
            if min(y.min() for _, _, y in series) >= 0:
                axes.set_ylim(bottom=0)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        step_axis(axes)

    return picture(name, HALF_OF_PAGE, draw)


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
        log_ticks(axes.xaxis, edges[[0, -1]])
        log_ticks(axes.yaxis, np.array([0.5, counts.max()]))
        axes.set_xlabel("priority")
        axes.set_ylabel("rows")

    return picture("priorities", size, draw)


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

    def draw(axes: Axes) -> None:
        at = np.arange(len(filled))
        axes.bar(at, 100 * filled / max(filled.sum(), 1), width=0.86, color=FIRST, alpha=0.85)
        share_ticks(axes.yaxis)
        doubling_ticks(axes, len(filled), xlabel)

    return picture(name, size, draw)
