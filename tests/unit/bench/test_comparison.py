"""The run: who is asked for what, and what becomes of those that fail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pytest

from relive.bench import WORKLOADS, Plan, comparison
from relive.bench.comparison import compare, figure
from relive.bench.processes import SideLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.bench.workloads import Workload

QUICK = Plan(rounds=2, seconds=0.001)
SMALL = WORKLOADS["W2"].quick()


class Pretended:
    """A worker that answers from a function; `asked` holds every request of all of them."""

    asked: list[tuple[str, str, dict[str, Any]]]
    replies: Callable[[str, str, dict[str, Any]], dict[str, Any]]

    def __init__(self, side: str, python: str) -> None:
        self.side, self.python = side, python

    def ask(self, action: str, **request: Any) -> dict[str, Any]:
        self.asked.append((self.side, action, request))
        return type(self).replies(self.side, action, request)

    def close(self) -> None:
        self.asked.append((self.side, "close", {}))

    def __enter__(self) -> Self:
        return self


def pretend(
    monkeypatch: pytest.MonkeyPatch, replies: Callable[[str, str, dict[str, Any]], dict[str, Any]]
) -> list[tuple[str, str, dict[str, Any]]]:
    """Replace the workers; returns what they will be asked."""
    asked: list[tuple[str, str, dict[str, Any]]] = []
    members = {"asked": asked, "replies": staticmethod(replies)}
    monkeypatch.setattr(comparison, "SideProcess", type("Fake", (Pretended,), members))
    return asked


def well(_side: str, action: str, request: dict[str, Any]) -> dict[str, Any]:
    """What a worker without faults answers."""
    if action == "open":
        return {"versions": {"numpy": "2"}}
    return {"calls": 10, "cpu": 1e-4, "wall": 2e-4} if action == "time" else {}


def one(workload: Workload, plan: Plan) -> dict[str, Any]:
    measured: dict[str, Any] = compare([workload], plan)["workloads"][workload.name]
    return measured


def test_sides_take_turns_and_each_round_starts_with_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = pretend(monkeypatch, well)
    workload = replace(SMALL, samplers=("uniform",))
    measured = one(workload, Plan(rounds=3, pythons={"cpprb": "python"}))
    assert measured["skipped"] == {}
    adds = [
        side
        for side, action, request in asked
        if action == "time" and request["operation"] == {"kind": "add", "rows": 1, "variant": ""}
    ]
    assert adds == ["relive", "cpprb", "cpprb", "relive", "relive", "cpprb"]
    assert [side for side, action, _ in asked if action == "open"] == ["relive", "floors", "cpprb"]
    found = measured["cases"]["uniform add 1"]["cpprb"]
    assert found["cpu"]["median"] == pytest.approx(10)
    assert (found["calls"], found["rounds"]) == (10, 3)


def test_everything_is_checked_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend(monkeypatch, well)
    one(SMALL, QUICK)
    checked = set()
    for side, action, request in asked:
        operation = str(request.get("operation"))
        if action == "check":
            checked.add((side, operation))
        assert action != "time" or (side, operation) in checked


def test_a_wrong_operation_is_not_timed_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def replies(side: str, action: str, request: dict[str, Any]) -> dict[str, Any]:
        wrong = action == "check" and request["operation"]["kind"] == "sample_out"
        return {"error": "weights differ"} if wrong else well(side, action, request)

    pretend(monkeypatch, replies)
    measured = one(SMALL, QUICK)
    assert "relive" in measured["cases"]["uniform sample 32"]
    assert "relive out" not in measured["cases"]["uniform sample 32"]
    assert measured["skipped"]["relive uniform sample 32 (relive out)"] == "weights differ"


def test_a_side_that_is_lost_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def replies(side: str, action: str, request: dict[str, Any]) -> dict[str, Any]:
        if side == "cpprb" and action == "time":
            raise SideLostError("killed")
        return well(side, action, request)

    asked = pretend(monkeypatch, replies)
    measured = one(SMALL, Plan(rounds=3, pythons={"cpprb": "python"}))
    assert list(measured["skipped"].values()) == ["killed"]
    assert [action for side, action, _ in asked if side == "cpprb"].count("time") == 1
    assert "relive batch" in measured["cases"]["per step 32"]
    assert asked.count(("cpprb", "close", {})) == 1


def test_a_side_that_is_lost_starts_again_with_the_next_workload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def replies(side: str, action: str, request: dict[str, Any]) -> dict[str, Any]:
        if side == "cpprb" and action == "setup" and request["task"]["obs_shape"] == [4]:
            raise SideLostError("out of memory")
        return well(side, action, request)

    asked = pretend(monkeypatch, replies)
    plan = Plan(rounds=1, pythons={"cpprb": "python"})
    found = compare([SMALL, WORKLOADS["W4-100k"].quick()], plan)["workloads"]
    assert found["W2"]["skipped"] == {"cpprb uniform": "out of memory"}
    assert "cpprb" in found["W4-100k"]["cases"]["per add 1"]
    assert asked.count(("relive", "open", {})) == 2
    assert asked.count(("relive", "close", {})) == 1


def test_a_library_that_cannot_be_imported_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def replies(side: str, action: str, request: dict[str, Any]) -> dict[str, Any]:
        missing = {"error": "ModuleNotFoundError: No module named 'cpprb'"}
        return missing if side == "cpprb" else well(side, action, request)

    asked = pretend(monkeypatch, replies)
    measured = one(SMALL, Plan(rounds=1, pythons={"cpprb": "python"}))
    assert measured["skipped"] == {"cpprb": "ModuleNotFoundError: No module named 'cpprb'"}
    assert [action for side, action, _ in asked if side == "cpprb"] == ["open", "close"]


def test_without_room_for_all_rings_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend(monkeypatch, well)
    monkeypatch.setattr(comparison, "free_memory", lambda: 10**9)
    measured = one(WORKLOADS["W3"], QUICK)
    assert measured["cases"] == {}
    (why,) = measured["skipped"].values()
    assert why.startswith("their rings need 4.5 GB together, 1.0 GB are free")
    assert asked == []


def test_a_figure_is_microseconds_of_one_call() -> None:
    rounds = [{"calls": 2, "cpu": second, "wall": 1.0} for second in (1e-6, 3e-6, 8e-6)]
    found = figure(rounds)
    assert found["cpu"]["median"] == pytest.approx(1.5)
    assert (found["cpu"]["low"], found["cpu"]["high"]) == pytest.approx((0.5, 4.0))
    assert found["cpu"]["quartiles"] == pytest.approx([1.0, 2.75])
    assert figure(rounds[:1])["cpu"]["quartiles"] == pytest.approx([0.5, 0.5])
