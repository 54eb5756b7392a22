"""Values over environment steps: averages of neighbours, and fewer points where there are many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Series = NDArray[np.float64]

MOST_POINTS = 600  # of one line: a page shows no more


def moving_window(count: int) -> int:
    """Episodes in the moving average of `count` episodes: a twentieth, between 1 and 100."""
    return min(max(count // 20, 1), 100)


def moving_average(values: Series, window: int) -> Series:
    """Mean of each run of `window` neighbours: [T] to [T - window + 1]."""
    if len(values) < window:
        return values[:0]
    sums = np.cumsum(np.concatenate(([0.0], values)))
    return np.asarray((sums[window:] - sums[:-window]) / window)


def thinned(x: Series, y: Series) -> tuple[Series, Series]:
    """At most `MOST_POINTS` points of a line, each the mean of a run of neighbours."""
    if len(x) <= MOST_POINTS:
        return x, y
    starts = np.linspace(0, len(x), MOST_POINTS, endpoint=False).astype(np.intp)
    lengths = np.diff(np.append(starts, len(x)))
    return np.add.reduceat(x, starts) / lengths, np.add.reduceat(y, starts) / lengths


class Trace:
    """A number over steps in bounded memory: means of runs of neighbours.

    A run is one value at first. Whenever `most` runs are full, neighbours are merged in pairs and
    runs become twice as long, so that what is kept is spread evenly over what was given.

    Args:
        most: Runs kept, an even number.
    """

    def __init__(self, most: int = 1024) -> None:
        self.run = 1  # values in one of them
        self._most = most
        self._means: list[tuple[float, float]] = []
        self._count, self._step, self._value = 0, 0.0, 0.0

    def add(self, step: float, value: float) -> None:
        """Adds a value; steps ascend."""
        self._count, self._step, self._value = (
            self._count + 1,
            self._step + step,
            self._value + value,
        )
        if self._count < self.run:
            return
        self._means.append((self._step / self._count, self._value / self._count))
        self._count, self._step, self._value = 0, 0.0, 0.0
        if len(self._means) == self._most:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in pairs]
            self.run *= 2

    @property
    def count(self) -> int:
        """Values that were given."""
        return len(self._means) * self.run + self._count

    def points(self) -> tuple[Series, Series]:
        """Steps and values [T], the last run as far as it goes."""
        means = list(self._means)
        if self._count:
            means.append((self._step / self._count, self._value / self._count))
        points = np.array(means, dtype=np.float64).reshape(-1, 2)
        return points[:, 0], points[:, 1]
