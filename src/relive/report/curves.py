"""The mean over runs, and how sure it is: percentiles of the bootstrap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relive.report.series import moving_average

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Series = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 2000
POINTS = 240  # of a curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The mean of several runs over environment steps.

    Attributes:
        steps: [T], ascending.
        mean: [T].
        low: Lower end of the interval of the mean [T]; None for a single run.
        high: Upper end.
        count: Runs.
    """

    steps: Series
    mean: Series
    low: Series | None
    high: Series | None
    count: int


def interval(values: Series, confidence: float = CONFIDENCE) -> tuple[Series, Series] | None:
    """The bootstrap's percentile interval of the mean over runs (Efron 1979).

    The runs are drawn with replacement, 2000 times, the same every time; the interval holds the
    middle 95 % of the means. With few runs it is narrower than it should be: of three, it reaches
    from the least to the largest at most.

    Args:
        values: One row a run [S, T].
        confidence: Share of the means in it.

    Returns:
        Lower and upper end [T]; None for a single run.
    """
    count = len(values)
    if count < 2:
        return None
    drawn = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    shares = np.stack([(drawn == run).mean(axis=1) for run in range(count)], axis=1)
    tails = (1 - confidence) / 2, (1 + confidence) / 2
    low, high = np.quantile(shares @ values, tails, axis=0)
    return low, high


def mean_curve(runs: Sequence[tuple[Series, Series]]) -> Curve | None:
    """The mean of the values of several runs, each a line through its points.

    Args:
        runs: Steps and values of each, [T] each, of any number; runs without a point are left out.

    Returns:
        The curve from the step where the last of them begins to that where the first of them ends;
        None if there is no such step.
    """
    runs = [run for run in runs if len(run[0])]
    if not runs:
        return None
    start, stop = max(steps[0] for steps, _ in runs), min(steps[-1] for steps, _ in runs)
    if start > stop:
        return None
    grid = np.linspace(start, stop, POINTS if stop > start else 1)
    values = np.stack([np.interp(grid, *run) for run in runs])
    ends = interval(values)
    low, high = ends if ends is not None else (None, None)
    return Curve(steps=grid, mean=values.mean(axis=0), low=low, high=high, count=len(runs))


def smoothed(run: tuple[Series, Series], window: int) -> tuple[Series, Series]:
    """The moving average of a run, at the step of the last value in it."""
    steps, values = run
    return steps[window - 1 :], moving_average(values, window)
