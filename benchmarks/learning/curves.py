"""Returns in training as a figure: a panel a task, the mean of its seeds between its extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.learning.judge import Results
    from benchmarks.learning.tasks import Task

OURS, THEIRS, GREY = "#2463eb", "#d9600a", "#888888"
COLUMNS = 4


def draw(tasks: Sequence[Task], results: Results, path: Path) -> None:
    """Writes the figure of the tasks that have results, as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "relive"  # the same results, the same file
    from matplotlib import pyplot as plt

    shown = [task for task in tasks if task.name in results and not task.peer]
    if not shown:
        return
    rows = -(-len(shown) // COLUMNS)
    figure, grid = plt.subplots(
        rows, COLUMNS, figsize=(3.2 * COLUMNS, 2.5 * rows), squeeze=False, layout="constrained"
    )
    for axes in grid.flat[len(shown) :]:
        axes.axis("off")
    for axes, task in zip(grid.flat, shown, strict=False):
        line(axes, results[task.name], OURS, "relive")
        beside = task.goal.beside if task.goal else None
        if beside is not None and beside.peer and beside.name in results:
            line(axes, results[beside.name], THEIRS, "Stable-Baselines3")
            axes.legend(frameon=False, fontsize=7)
        elif task.goal and not task.goal.beside:
            axes.axhline(task.goal.least, color=GREY, linewidth=0.8, linestyle="--")
        axes.set_title(task.name, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1000:g}k")
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("environment steps", fontsize=8)
    figure.supylabel("return in training", fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def line(axes: Any, of_seed: dict[str, dict[str, Any]], colour: str, label: str) -> None:
    """The mean of the seeds, and the space between the lowest and the highest."""
    steps, returns = points(of_seed)
    axes.plot(steps, returns.mean(0), color=colour, linewidth=1.4, label=label)
    axes.fill_between(steps, returns.min(0), returns.max(0), color=colour, alpha=0.18, linewidth=0)


def points(of_seed: dict[str, dict[str, Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Steps `[P]` and returns `[seeds, P]`; where no episode ended, the line goes straight on."""
    curves = [
        np.array([(step, np.nan if value is None else value) for step, value in run["curve"]])
        for run in of_seed.values()
    ]
    steps = curves[0][:, 0]
    returns = [
        np.interp(steps, curve[known, 0], curve[known, 1])
        for curve in curves
        for known in [~np.isnan(curve[:, 1])]
    ]
    return steps, np.array(returns)
