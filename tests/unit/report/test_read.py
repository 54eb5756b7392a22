"""A run directory as data, whole or broken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from relive.errors import InputError
from relive.report.read import read_run
from tests.unit.report.conftest import CONFIG, ENDED, EPISODES, EVALUATED, PROGRESS, STARTED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.report.conftest import MakeRun


def test_a_whole_run_is_read_by_kind_and_in_order(make_run: MakeRun) -> None:
    run = read_run(make_run())
    assert {kind: len(records) for kind, records in run.records.items()} == {
        "run_started": 1,
        "episode_ended": 60,
        "training_progress": 11,
        "replay_measured": 1,
        "evaluated": 1,
        "run_ended": 1,
    }
    assert run.config == CONFIG
    assert run.versions == {"relive": "0.1.0", "torch": "2.13.0"}
    assert (run.steps, run.finished, run.torn_lines) == (1200, True, 0)
    assert run.last("evaluated") == EVALUATED
    assert run.last("nothing") is None


def test_a_series_leaves_out_what_is_missing_or_not_finite(make_run: MakeRun) -> None:
    values = [1.0, None, float("nan"), float("inf"), 5, 1e300]
    progress = [{"record": "training_progress", "step": i, "loss": v} for i, v in enumerate(values)]
    run = read_run(make_run([STARTED, *progress, {"record": "training_progress", "step": 9}]))
    steps, losses = run.series("training_progress", "loss")
    assert (steps.tolist(), losses.tolist()) == ([0.0, 4.0], [1.0, 5.0])
    assert run.series("evaluated", "mean")[0].size == 0


@pytest.mark.parametrize(
    "tail", ['{"record": "episode_en', "\x00\x00", '{"record": "x"}', "[]", "3"]
)
def test_a_last_line_that_was_cut_off_is_skipped_and_counted(make_run: MakeRun, tail: str) -> None:
    run = read_run(make_run([STARTED, *EPISODES], tail=tail))
    assert (len(run.records["episode_ended"]), run.torn_lines) == (60, 1)


def test_a_character_cut_in_half_counts_as_a_cut_off_line(make_run: MakeRun) -> None:
    path = make_run([STARTED])
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"record": "\xc3')
    assert read_run(path).torn_lines == 1


def test_a_broken_line_before_the_last_is_refused_by_its_number(make_run: MakeRun) -> None:
    path = make_run([STARTED], tail="{oops\n" + json.dumps(ENDED) + "\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2 is no record.*\{oops"):
        read_run(path)


@pytest.mark.parametrize(
    ("records", "finished"),
    [
        ([STARTED, ENDED], True),
        ([STARTED, {**ENDED, "interrupted": True}], False),
        ([STARTED, *PROGRESS], False),
    ],
)
def test_a_run_is_finished_if_it_came_to_its_end(
    make_run: MakeRun, records: list[dict[str, object]], finished: bool
) -> None:
    assert read_run(make_run(records)).finished is finished


def test_a_resumed_run_reads_as_one(make_run: MakeRun) -> None:
    again = {**STARTED, "record": "run_resumed", "step": 600, "versions": {"torch": "2.14.0"}}
    run = read_run(make_run([STARTED, *EPISODES, again, *PROGRESS, ENDED]))
    assert run.finished
    assert run.versions == {"torch": "2.14.0"}
    assert run.records["episode_ended"] == EPISODES
    assert run.seconds == ENDED["seconds"]


def test_without_config_json_the_settings_come_from_the_first_record(make_run: MakeRun) -> None:
    assert read_run(make_run(config=None)).config == CONFIG


@pytest.mark.parametrize(
    ("text", "message"), [("{", "config.json is no JSON"), ("[1]", "a JSON object, got list")]
)
def test_a_broken_config_is_refused(make_run: MakeRun, text: str, message: str) -> None:
    path = make_run()
    (path / "config.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_run(path)


def test_a_directory_that_is_no_run_is_refused_and_runs_near_it_are_named(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run()
    for wrong in (tmp_path, tmp_path / "ruin"):
        with pytest.raises(InputError) as refused:
            read_run(wrong)
        assert str(refused.value) == (
            f"{wrong} is not a run directory: it has no metrics.jsonl; these are: {run}"
        )


def test_without_any_run_nearby_the_refusal_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`relive train` makes one"):
        read_run(tmp_path / "a" / "b")
