"""The mean over runs and its interval."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from relive.report.curves import POINTS, interval, mean_curve, smoothed


def line(start: float, stop: float, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    steps = np.arange(start, stop + 1, 10.0)
    return steps, 2 * steps + offset


def test_the_mean_is_taken_where_all_runs_are() -> None:
    curve = mean_curve([line(0, 100), line(20, 200, offset=10.0), line(10, 90, offset=20.0)])
    assert curve is not None
    assert (curve.steps[0], curve.steps[-1], len(curve.steps)) == (20.0, 90.0, POINTS)
    np.testing.assert_allclose(curve.mean, 2 * curve.steps + 10)
    assert curve.count == 3


def test_a_single_run_has_no_band() -> None:
    curve = mean_curve([line(0, 100), (np.empty(0), np.empty(0))])
    assert curve is not None
    assert (curve.low, curve.high, curve.count) == (None, None, 1)
    assert interval(np.ones((1, 3))) is None


@pytest.mark.parametrize(
    "runs", [[], [(np.empty(0), np.empty(0))], [line(0, 50), line(60, 100)]], ids=len
)
def test_runs_that_share_no_step_have_no_mean(runs: list[tuple[np.ndarray, np.ndarray]]) -> None:
    assert mean_curve(runs) is None


def test_a_single_step_is_a_curve_too() -> None:
    curve = mean_curve([(np.array([5.0]), np.array([1.0])), line(0, 10)])
    assert curve is not None
    assert (curve.steps.tolist(), curve.mean.tolist()) == ([5.0], [5.5])


def test_the_interval_is_that_of_all_resamples() -> None:
    values = np.array([3.0, 5.0, 10.0, 11.0, 20.0, 24.0])
    means = [np.mean(drawn) for drawn in itertools.product(values, repeat=len(values))]
    low, high = interval(values[:, None])
    spread = values.std() / np.sqrt(len(values))
    assert low[0] == pytest.approx(np.quantile(means, 0.025), abs=spread / 4)
    assert high[0] == pytest.approx(np.quantile(means, 0.975), abs=spread / 4)


def test_the_interval_is_the_same_every_time_and_lies_within_the_values() -> None:
    values = np.random.default_rng(1).normal(size=(3, 50))
    first, second = interval(values), interval(values)
    np.testing.assert_array_equal(first, second)
    low, high = first
    assert (low <= values.mean(axis=0)).all()
    assert (values.mean(axis=0) <= high).all()
    assert (values.min(axis=0) <= low + 1e-12).all()
    assert (high <= values.max(axis=0) + 1e-12).all()


def test_runs_that_agree_have_no_spread() -> None:
    low, high = interval(np.full((4, 2), 7.0))
    np.testing.assert_allclose([low, high], 7.0)


def test_an_average_stands_at_its_last_episode() -> None:
    steps, values = smoothed((np.array([1.0, 2.0, 5.0]), np.array([1.0, 3.0, 8.0])), 2)
    assert (steps.tolist(), values.tolist()) == ([2.0, 5.0], [2.0, 5.5])
