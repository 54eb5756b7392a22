"""How fast the buffer is, beside its floors."""

from __future__ import annotations

import pytest
import torch

from relive.diagnosis import speed
from relive.diagnosis.speed import Speed, judged, measure


def test_operations_are_checked_and_timed_beside_their_floors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speed, "CAPACITY", 2000)
    monkeypatch.setattr(speed, "TASK", {**speed.TASK, "capacity": 2000})
    threads = torch.get_num_threads()
    both, add = measure(rounds=2, seconds=0.001)
    assert both.what == "sample 256 and update their priorities"
    assert add.what == "add one step"
    assert all(one.microseconds > 0 and one.floor > 0 for one in (both, add))
    assert torch.get_num_threads() == threads


def test_times_are_set_beside_the_floor_of_the_same_rows() -> None:
    times = {"sample": 16.0, "update": 8.0, "copy": 7.0, "scatter": 1.0, "add": 6.0, "assign": 2.0}
    both, add = judged(times)
    assert (both.microseconds, both.floor, both.ratio) == (24.0, 8.0, 3.0)
    assert add.ratio == 3.0


@pytest.mark.parametrize(
    ("taken", "verdict"),
    [
        (21.0, "2.1x the floor; expected 1.5-4x"),
        (10.0, "1.0x the floor; expected 1.5-4x"),
        (50.0, "5.0x the floor; expected 1.5-4x: slow here, or the machine is busy"),
    ],
)
def test_a_verdict_is_plain(taken: float, verdict: str) -> None:
    one = Speed(what="x", microseconds=taken, floor=10.0, floor_is="y", expected=(1.5, 4.0))
    assert one.verdict == verdict


def test_rings_are_not_made_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "free_memory", lambda _: 10**6)
    assert not speed.has_room()
    monkeypatch.setattr(speed, "free_memory", lambda _: None)
    assert speed.has_room()
