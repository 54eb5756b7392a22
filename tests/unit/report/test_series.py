"""Averages of neighbours, and bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

from relive.report.series import MOST_POINTS, Trace, moving_average, moving_window, thinned


@pytest.mark.parametrize(
    ("values", "window", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0], 2, [1.5, 2.5, 3.5]),
        ([1.0, 2.0, 6.0], 3, [3.0]),
        ([1.0, 2.0], 1, [1.0, 2.0]),
        ([1.0], 2, []),
        ([], 1, []),
    ],
)
def test_a_moving_average_is_the_mean_of_neighbours(
    values: list[float], window: int, expected: list[float]
) -> None:
    assert moving_average(np.array(values), window).tolist() == expected


@pytest.mark.parametrize(("count", "window"), [(0, 1), (1, 1), (60, 3), (400, 20), (10_000, 100)])
def test_the_window_of_the_moving_average_grows_with_the_run(count: int, window: int) -> None:
    assert moving_window(count) == window


@pytest.mark.parametrize("count", [0, 1, 600, 601, 1200, 99_999])
def test_a_long_line_is_thinned_to_means_of_neighbours(count: int) -> None:
    x = np.arange(float(count))
    thin_x, thin_y = thinned(x, 2 * x)
    assert len(thin_x) == len(thin_y) == min(count, MOST_POINTS)
    np.testing.assert_allclose(thin_y, 2 * thin_x)
    assert (np.diff(thin_x) > 0).all()
    if count:
        assert thin_x[0] < count / 300
        assert thin_x[-1] > count - 1 - count / 300


@pytest.mark.parametrize("count", [1, 7, 8, 9, 31, 1000])
def test_a_trace_keeps_means_of_equal_runs_and_forgets_nothing(count: int) -> None:
    trace = Trace(most=8)
    for step in range(count):
        trace.add(step, 3.0 * step)
    steps, values = trace.points()
    assert len(steps) <= 8
    assert trace.count == count
    np.testing.assert_allclose(values, 3 * steps)
    weights = np.full(len(steps), trace.run)
    weights[-1] = count - weights[:-1].sum()
    assert (weights @ values) / count == pytest.approx(3 * (count - 1) / 2)
