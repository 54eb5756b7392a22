"""Which runs belong together, and what tells groups apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relive.report.groups import by_env, differing, groups_of, labels_of
from relive.report.read import Run


def run_of(**config: Any) -> Run:
    path = Path(f"run-{config.get('seed')}")
    return Run(path=path, config=config, versions={}, records={}, seconds=0.0, torn_lines=0)


def replay(sampler: str, **more: Any) -> dict[str, Any]:
    return {"replay": {"sampler": sampler, **more}}


def test_runs_that_differ_in_seed_place_and_threads_form_a_group() -> None:
    runs = [
        run_of(seed=1, out="a", threads=1, device="cpu", log_every=5, **replay("rank")),
        run_of(seed=2, out="b", threads=2, device="auto", log_every=9, **replay("rank")),
        run_of(seed=1, **replay("uniform")),
    ]
    groups = groups_of(runs)
    assert [(one.label, one.seeds) for one in groups] == [
        ("sampler rank", "2 runs, seeds 1, 2"),
        ("sampler uniform", "1 run, seed 1"),
    ]
    assert [list(one.runs) for one in groups] == [runs[:2], runs[2:]]


def test_groups_stand_in_the_order_in_which_they_were_named() -> None:
    runs = [run_of(seed=seed, **replay(name)) for name, seed in (("b", 2), ("a", 1), ("b", 1))]
    assert [one.label for one in groups_of(runs)] == ["sampler b", "sampler a"]
    assert groups_of(runs)[0].seeds == "2 runs, seeds 2, 1"


def test_a_seed_counts_once_the_run_that_came_furthest() -> None:
    records = {"run_ended": [{"step": 9}]}
    first, whole, last = (
        replace(run_of(seed=3), path=Path(name), records=told)
        for name, told in (("a", {}), ("b", records), ("c", records))
    )
    other = run_of(seed=4)
    (group,) = groups_of([first, whole, other, last])
    assert (group.runs, group.left_out) == ([whole, other], [first, last])
    assert group.seeds == "2 runs, seeds 3, 4; left out, of a seed that is there: a, c"


LABELS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "nothing differs": ([{"a": 1}], ["all runs"]),
    "one setting": ([{"lr": 0.1, "n": 1}, {"lr": 0.01, "n": 1}], ["lr 0.1", "lr 0.01"]),
    "one of two tells all apart": (
        [{"x": 1, "replay.sampler": "a"}, {"x": 2, "replay.sampler": "b"}],
        ["sampler a", "sampler b"],
    ),
    "two are needed": (
        [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}],
        ["a 1", "a 1, b 2", "a 2"],
    ),
    "a last name that two have": (
        [{"x.a": 1, "y.a": 1}, {"x.a": 1, "y.a": 2}, {"x.a": 2, "y.a": 2}],
        ["x a 1, y a 1", "x a 1", "x a 2"],
    ),
    "one that only some have": ([{"a": 1}, {"a": 1, "new": True}], ["new –", "new yes"]),
    "a list": ([{"hidden": [8]}, {"hidden": [8, 8]}], ["hidden 8", "hidden 8, 8"]),
}


@pytest.mark.parametrize("case", LABELS)
def test_a_label_has_as_few_settings_as_tell_all_apart(case: str) -> None:
    settings, labels = LABELS[case]
    assert labels_of(settings) == labels


def test_settings_that_differ_are_listed_those_that_matter_most_first() -> None:
    settings = [{"a": 1, "b": 2, "replay.sampler": "x"}, {"a": 2, "b": 2, "replay.sampler": "y"}]
    assert differing(settings) == ["replay.sampler", "a"]


def test_environments_are_kept_apart() -> None:
    runs = [run_of(env="a", seed=1), run_of(env="b", seed=1), run_of(env="a", seed=2), run_of()]
    assert by_env(runs) == {
        "a": [runs[0], runs[2]],
        "b": [runs[1]],
        "an unknown environment": [runs[3]],
    }
