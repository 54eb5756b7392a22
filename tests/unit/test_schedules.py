"""Schedules."""

import math

import pytest

from relive import ConfigError, Linear
from relive.schedules import as_linear


def test_beta_of_the_design_is_reached_at_each_tenth():
    beta = Linear(0.4, 1.0, 500_000)
    expected = [0.40, 0.46, 0.52, 0.58, 0.64, 0.70, 0.76, 0.82, 0.88, 0.94, 1.00, 1.00]
    assert [round(beta(50_000 * k), 6) for k in range(12)] == expected


def test_a_schedule_is_constant_outside_its_steps():
    falling = Linear(1.0, 0.1, 10)
    assert [falling(t) for t in (-5, 0, 10, 1e9)] == pytest.approx([1.0, 1.0, 0.1, 0.1])
    assert falling(10) == falling(1e9)


def test_a_number_is_a_schedule_that_stays():
    assert [as_linear("beta", 0.5)(t) for t in (0, 7)] == [0.5, 0.5]
    assert as_linear("beta", Linear(0.0, 1.0, 3)) == Linear(0.0, 1.0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, math.nan, 1), "finite"),
        ((math.inf, 0.0, 1), "finite"),
        ((0.0, 1.0, 0), "steps >= 1"),
        ((0.0, 1.0, 2.5), "steps >= 1"),
        ((0.0, 1.0, True), "steps >= 1"),
    ],
)
def test_a_schedule_without_an_end_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Linear(*arguments)
