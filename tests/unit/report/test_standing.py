"""Where a run stands."""

from __future__ import annotations

from typing import Any

import pytest

from relive.report.standing import Standing
from tests.unit.report.conftest import (
    CONFIG,
    ENDED,
    EPISODES,
    EVALUATED,
    MEASURED,
    PROGRESS,
    STARTED,
    WHOLE,
)


def after(*records: dict[str, Any]) -> Standing:
    standing = Standing()
    for record in records:
        standing.take(record)
    return standing


def test_it_knows_how_far_a_run_is_and_what_was_last() -> None:
    standing = after(*WHOLE)
    assert standing.config == CONFIG
    assert (standing.step, standing.episodes, standing.seconds) == (1200, 60, 6.0)
    assert list(standing.last_returns) == [2.0 * i for i in range(41, 61)]
    assert standing.progress == PROGRESS[-1]
    assert list(standing.evaluations) == [EVALUATED]
    assert (standing.measured, standing.ended) == (MEASURED, ENDED)
    assert standing.traces["loss"].points()[1].tolist() == [0.5 / i for i in range(2, 12)]
    assert standing.log_seconds == 0.5
    assert standing.window == 3


def test_speed_is_that_of_the_last_intervals_and_of_the_whole_run_at_its_end() -> None:
    slow = [{**PROGRESS[0], "step": i, "steps_per_second": v} for i, v in enumerate([9, 9, 1, 4])]
    assert after(STARTED).speed is None
    assert after(STARTED, *PROGRESS).speed == pytest.approx(200)
    assert after(STARTED, *slow).speed == pytest.approx(4 / (1 / 9 + 1 / 9 + 1 + 1 / 4))
    assert after(STARTED, *PROGRESS, ENDED).speed == pytest.approx(1200 / 6)


def test_before_the_first_record_nothing_is_known() -> None:
    standing = after()
    assert (standing.step, standing.episodes, standing.speed) == (0, 0, None)
    assert standing.window == 1


def test_an_episode_without_a_return_is_left_out() -> None:
    assert after(STARTED, {**EPISODES[0], "episode_return": None}).episodes == 0


def test_a_resumed_run_goes_on() -> None:
    again = {**STARTED, "record": "run_resumed", "step": 1200, "versions": {"torch": "2.14.0"}}
    resumed = after(*WHOLE[:-3], again)
    assert resumed.ended is None
    assert resumed.versions == {"torch": "2.14.0"}
    assert resumed.episodes == 60
    assert list(resumed.last_returns) == [2.0 * i for i in range(41, 61)]
