"""Targets: ratios of medians, told as met, missed or not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relive.bench import startup
from relive.bench.startup import judge_startup
from relive.bench.targets import TARGETS, judge
from relive.bench.workloads import WORKLOADS, Case

if TYPE_CHECKING:
    from pathlib import Path


def figures(**medians: float) -> dict[str, Any]:
    return {name.replace("_", " "): {"cpu": {"median": time}} for name, time in medians.items()}


def verdict(workloads: dict[str, Any], workload: str, case: str, ours: str) -> dict[str, Any]:
    (found,) = (
        found
        for found in judge(workloads)
        if (found["workload"], found["case"], found["ours"]) == (workload, case, ours)
    )
    return found


def test_the_best_peer_is_the_fastest_and_a_floor_is_none() -> None:
    cases = {"per sample 256": figures(relive_batch=30, tianshou=150, cpprb=256, search=10)}
    found = verdict({"W1": {"cases": cases}}, "W1", "per sample 256", "relive batch")
    assert found == {
        "workload": "W1",
        "case": "per sample 256",
        "ours": "relive batch",
        "versus": "tianshou",
        "limit": 0.3,
        "ratio": pytest.approx(0.2),
        "met": True,
    }


def test_a_ratio_above_the_limit_is_missed() -> None:
    cases = {"uniform sample 256": figures(relive_out=20, take=16)}
    found = verdict({"W1": {"cases": cases}}, "W1", "uniform sample 256", "relive out")
    assert (found["ratio"], found["met"]) == (1.25, False)


def test_a_larger_tree_is_compared_with_a_smaller_one() -> None:
    workloads = {
        "W4": {"cases": {"per update 256": figures(relive_buffer=15, cpprb=1)}},
        "W4-100k": {"cases": {"per update 256": figures(relive_buffer=10)}},
    }
    found = verdict(workloads, "W4", "per update 256", "relive buffer")
    assert (found["versus"], found["ratio"], found["met"]) == ("W4-100k", 1.5, True)


@pytest.mark.parametrize("medians", [{}, {"relive": 1.0}, {"cpprb": 1.0}])
def test_what_was_not_measured_is_neither(medians: dict[str, float]) -> None:
    found = verdict(
        {"W2": {"cases": {"uniform sample 256": figures(**medians)}}},
        "W2",
        "uniform sample 256",
        "relive",
    )
    assert (found["ratio"], found["met"]) == (None, None)


def test_workloads_that_were_left_out_have_no_targets() -> None:
    assert {found["workload"] for found in judge({"W3": {"cases": {}}})} == {"W3"}


def test_every_target_names_what_is_measured() -> None:
    for target in TARGETS:
        workload = WORKLOADS[target.workload]
        cases = {
            case.name: case for sampler in workload.samplers for case in workload.cases(sampler)
        }
        case: Case = cases[target.case]
        known = {*case.columns, *WORKLOADS, "best peer", "stable-baselines3"}
        assert target.ours in case.columns
        assert target.versus in known


def test_the_start_is_judged_against_torch_and_a_second() -> None:
    medians = {"import torch": 2.0, "import relive": 2.2, "first sample": 1.5}
    found = judge_startup({name: {"median": time} for name, time in medians.items()})
    assert [(verdict["ratio"], verdict["met"]) for verdict in found] == [(1.1, True), (1.5, False)]


def test_the_start_is_timed_in_new_processes_the_first_of_which_do_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count = f"p = __import__('pathlib').Path({str(tmp_path / 'runs')!r})\n"
    count += "p.write_text((p.read_text() if p.exists() else '') + 'x')\nprint(len(p.read_text()))"
    monkeypatch.setattr(startup, "PROGRAMS", {"import torch": count})
    assert startup.startup(2) == {"import torch": {"median": 2.5, "low": 2.0, "high": 3.0}}
