"""Those who listen: files, curves, the terminal."""

import builtins
import io
import json
import math
import sys
from dataclasses import replace

import pytest
from rich.console import Console as Terminal

import relive.training
from relive.errors import MissingExtraError
from relive.storage.saving import save_note
from relive.training import JsonLines, TensorBoard
from relive.training.console import Console
from relive.training.records import (
    EpisodeEnded,
    EpisodesEnded,
    Evaluated,
    ReplayMeasured,
    RunEnded,
    RunResumed,
    RunStarted,
    TrainingProgress,
    as_json,
)
from tests.unit.training.tiny import tiny

PROGRESS = TrainingProgress(
    step=200,
    updates=50,
    loss=0.25,
    td_error=0.5,
    q_mean=1.5,
    grad_norm=2.0,
    actor_loss=-3.0,
    temperature=0.2,
    entropy=-1.0,
    epsilon=0.3,
    beta=0.7,
    fill=0.1,
    seconds=2.0,
    steps_per_second=100.0,
)
RECORDS = [
    RunStarted(step=0, config=tiny().to_json(), versions={"relive": "1.2", "torch": "2.13"}),
    EpisodeEnded(step=150, env=0, episode_return=21.0, length=21),
    PROGRESS,
    ReplayMeasured(
        step=300,
        priority_edges=[0.1, 1.0],
        priority_counts=[3],
        age_counts=[1, 2],
        reuse_counts=[0],
        stats={"size": 3},
    ),
    Evaluated(step=300, returns=(9.0, 11.0), mean=10.0, std=1.0, reference=500.0),
    RunEnded(step=300, updates=75, seconds=3.0, interrupted=False),
]


def tell(sink, records=RECORDS):
    for record in records:
        sink.record(record)
    sink.close()


# -- JSON --------------------------------------------------------------------------------------


def test_every_record_is_one_line_of_json(tmp_path):
    tell(JsonLines(tmp_path / "metrics.jsonl"))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    objects = [json.loads(line) for line in lines]
    assert [o["record"] for o in objects] == [
        "run_started",
        "episode_ended",
        "training_progress",
        "replay_measured",
        "evaluated",
        "run_ended",
    ]
    assert objects[1] == {
        "record": "episode_ended",
        "step": 150,
        "env": 0,
        "episode_return": 21.0,
        "length": 21,
    }


def test_lines_are_on_the_disk_as_soon_as_progress_is(tmp_path):
    sink = JsonLines(tmp_path / "metrics.jsonl")
    for record in RECORDS[:3]:
        sink.record(record)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    sink.close()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_become_null(value):
    record = Evaluated(step=1, returns=(value, 1.0), mean=value, std=0.0, reference=None)
    plain = as_json(record)
    assert plain["returns"] == [None, 1.0]
    assert plain["mean"] is None
    json.dumps(plain, allow_nan=False)


# -- TensorBoard -------------------------------------------------------------------------------


def test_tensorboard_has_a_curve_for_every_number(tmp_path):
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tell(TensorBoard(tmp_path))
    events = reading.EventAccumulator(str(tmp_path))
    events.Reload()
    curves = {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }
    assert curves["training/loss"] == [(200, 0.25)]
    assert curves["episode/return"] == [(150, 21.0)]
    assert curves["evaluation/mean"] == [(300, 10.0)]
    assert {name for name in curves if name.startswith("training/")} == {
        f"training/{name}" for name in as_json(PROGRESS) if name not in {"record", "step"}
    }


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    importing = builtins.__import__

    def without(name, *args, **kwargs):
        if "tensorboard" in name:
            raise ImportError(name)
        return importing(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"relive\[tensorboard\]"):
        TensorBoard(tmp_path)


def test_without_rich_the_extra_of_the_console_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "relive.training.console", None)
    with pytest.raises(MissingExtraError, match=r"relive\[train\]"):
        _ = relive.training.Console
    monkeypatch.undo()
    assert relive.training.Console is Console


# -- terminal ----------------------------------------------------------------------------------


def shown(*, live, records=RECORDS):
    file = io.StringIO()
    tell(Console(Terminal(file=file, force_terminal=live, width=100, color_system=None)), records)
    return file.getvalue()


def test_plain_lines_say_what_happens():
    first, progress, evaluation, end = shown(live=False).splitlines()
    assert first == "dqn on CartPole-v1, proportional replay, seed 0, relive 1.2, torch 2.13"
    for cell in (
        "200",
        "21",
        "loss 0.25",
        "epsilon 0.30",
        "beta 0.70",
        "buffer 10%",
        "steps/s 100",
    ):
        assert cell in progress
    assert evaluation == "greedy return over 2 episodes: 10.0 ± 1.0  (reference 500)"
    assert end == "done: 300 steps and 75 updates in 3.0 s (100 steps/s)"


@pytest.mark.parametrize("error", [None, "ValueError: the arm has gone"])
@pytest.mark.parametrize("live", [False, True])
def test_a_run_that_was_stopped_or_failed_says_how_it_goes_on_if_it_was_saved(
    tmp_path, error, live
):
    out = tmp_path / "[a] long name" / ("x" * 90)
    began = RunStarted(step=0, config=tiny(out=out).to_json(), versions={}, chosen={})
    end = RunEnded(step=7, updates=0, seconds=1.0, interrupted=True, error=error)
    command = f"go on   relive train --resume '{out}'"
    assert command not in shown(live=live, records=[began, end])
    save_note(out / "checkpoint", {})
    assert command in shown(live=live, records=[began, end]).splitlines()
    whole = RunEnded(step=7, updates=0, seconds=1.0, interrupted=False)
    assert "go on" not in shown(live=live, records=[began, whole])


def test_a_slow_run_that_nobody_watches_tells_something_every_minute():
    slow = [
        TrainingProgress(**{**_fields(PROGRESS), "step": step, "seconds": 25.0 * step})
        for step in range(1, 14)  # a line for 15 of the 300 steps would come once in 6 minutes
    ]
    lines = shown(live=False, records=[RECORDS[0], *slow]).splitlines()[1:]
    assert [int(line.split()[1]) for line in lines] == [1, 4, 7, 10, 13]


@pytest.mark.parametrize("live", [False, True])
def test_a_run_whose_steps_take_minutes_says_how_far_it_is(live):
    file = io.StringIO()
    console = Console(Terminal(file=file, width=100, force_terminal=live, color_system=None))
    console.record(RECORDS[0])
    for step in (3, 5):
        console.steps_made(step)
    console.close()
    told = file.getvalue()
    assert ("5/300 steps" if live else "\nstep       5  episodes 0") in told


def test_the_mean_return_goes_on_after_a_break():
    resumed = RunResumed(
        step=100, config=tiny().to_json(), versions={}, episodes=7, last_returns=(11.0, 7.0),
        changed={},
    )  # fmt: skip
    lines = shown(live=False, records=[resumed, RECORDS[1], PROGRESS]).splitlines()
    assert "episodes 8  mean return 13 " in lines[-1]


@pytest.mark.parametrize("live", [False, True])
def test_a_run_that_begins_once_more_is_shown_as_if_there_had_been_none_before(live):
    again = [replace(PROGRESS, step=0, updates=0, loss=None, seconds=0.5)]
    began = [RECORDS[0], *again]
    broke_off = [*RECORDS[:2], replace(PROGRESS, loss=math.nan, seconds=900.0)]
    told = shown(live=live, records=[*broke_off, *began])
    alone = shown(live=live, records=began)
    assert told.endswith(alone)


def test_a_loss_that_is_not_finite_is_told_once():
    broken = [
        TrainingProgress(**{**_fields(PROGRESS), "step": step, "loss": loss})
        for step, loss in ((100, 1.0), (200, math.nan), (300, math.inf))
    ]
    lines = shown(live=False, records=[RECORDS[0], *broken]).splitlines()
    told = [line for line in lines if "the loss is not finite" in line]
    assert [line.split(":")[0] for line in told] == ["the loss is not finite at step 200"]


def test_small_returns_keep_their_digits():
    small = Evaluated(step=300, returns=(-0.1479, -0.1459), mean=-0.1469, std=0.001, reference=None)
    assert "over 2 episodes: -0.147 ± 0.001" in shown(live=False, records=[RECORDS[0], small])


def test_a_run_that_made_no_update_says_so_at_the_end():
    end = replace(RECORDS[-1], updates=0)
    *_, done, last = shown(live=False, records=[*RECORDS[:-1], end]).splitlines()
    assert done.startswith("done: 300 steps and 0 updates")
    assert last.startswith("nothing was learned: the run has made no update; more --total-steps")


def test_a_terminal_that_is_gone_ends_nothing():
    class Gone(io.StringIO):
        tries = 0

        def write(self, _text):
            self.tries += 1
            raise OSError(5, "Input/output error")

    file = Gone()
    tell(Console(Terminal(file=file, width=100, color_system=None)))
    assert file.tries == 1


def test_an_unwatched_run_prints_some_twenty_lines_however_often_it_logs():
    many = [
        TrainingProgress(**{**_fields(PROGRESS), "step": step, "loss": None, "beta": None})
        for step in range(1, 301)
    ]
    lines = shown(live=False, records=[RECORDS[0], *many]).splitlines()
    assert len(lines) == 21
    assert "loss -" in lines[1]
    assert "beta -" in lines[1]


def test_a_terminal_sees_bar_numbers_and_returns():
    view = shown(live=True)
    for cell in ("200/300", "steps", "100/s", "0.25", "0.30", "0.70", "10%", "last returns", "21"):
        assert cell in view


def test_a_run_that_was_stopped_says_so():
    stopped = RunEnded(step=120, updates=5, seconds=1.0, interrupted=True)
    assert "stopped: 120 steps" in shown(live=False, records=[RECORDS[0], stopped])


SUMMARY = EpisodesEnded(
    step=150,
    episodes=40,
    mean_return=21.5,
    least_return=9.0,
    largest_return=57.0,
    mean_length=21.5,
    least_length=9,
    largest_length=57,
)


def test_episodes_that_are_summed_up_are_counted_and_their_mean_is_shown():
    records = [RECORDS[0], SUMMARY, SUMMARY, PROGRESS]
    assert "episodes 80  mean return 21.5" in shown(live=False, records=records)
    assert as_json(SUMMARY)["record"] == "episodes_ended"


def test_a_result_without_reference_stands_alone():
    alone = Evaluated(step=1, returns=(2.0,), mean=2.0, std=0.0, reference=None)
    assert "reference" not in shown(live=False, records=[RECORDS[0], alone])


def _fields(record):
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
