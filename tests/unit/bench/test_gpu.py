"""The benchmark for GPUs, as far as it goes without one: its sums, and its sections on the CPU."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.gpu import __main__ as program
from benchmarks.gpu import budget, training
from benchmarks.gpu import clock as timing
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.distribution import chi_square, kolmogorov_smirnov, spread
from benchmarks.gpu.goals import judged
from benchmarks.gpu.operations import table
from benchmarks.gpu.page import page
from benchmarks.gpu.report import Report, brief
from benchmarks.gpu.rivals import Cumsum, Rows
from benchmarks.gpu.sections import NEED_CUDA, SECTIONS
from benchmarks.gpu.workload import TINY

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", [name for name in SECTIONS if name not in NEED_CUDA])
def test_a_section_runs_on_small_buffers_of_the_cpu(name):
    json.dumps(SECTIONS[name](CPU, TINY))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_cuda_device_nothing_is_measured(tmp_path, capsys):
    assert main(["--save", str(tmp_path / "gpu.json")]) == 2
    assert "no CUDA device" in capsys.readouterr().out
    assert not (tmp_path / "gpu.json").exists()


def test_a_section_that_fails_is_written_down_and_the_next_one_runs(tmp_path):
    report = Report(tmp_path / "results" / "gpu.json", deadline=100, head={"date": "today"})
    assert not report.run("first", lambda: 1 / 0)
    assert report.run("second", lambda: {"us": 3.0})
    written = json.loads((tmp_path / "results" / "gpu.json").read_text())
    first, second = written["sections"]["first"], written["sections"]["second"]
    assert (written["date"], first["ok"], second["ok"]) == ("today", False, True)
    assert first["error"] == "ZeroDivisionError: division by zero"
    assert "lambda" in first["traceback"]
    assert second["us"] == 3


def test_a_section_that_takes_too_long_is_given_up(tmp_path):
    report = Report(tmp_path / "gpu.json", deadline=100, head={})
    assert not report.run("endless", lambda: [None for _ in iter(int, 1)], limit=0.05)
    assert report.sections["endless"]["error"] == "TimeoutError: took more than 0.05 s"
    assert report.run("next", lambda: {"us": 3.0})


def test_another_process_goes_on_where_one_stopped(tmp_path):
    report = Report(tmp_path / "gpu.json", deadline=100, head={"date": "today"})
    report.run("first", lambda: {"us": 3.0})
    other = Report(tmp_path / "gpu.json", deadline=100, head={"date": "later"})
    other.go_on()
    assert other.results == report.results
    assert other.went_well
    other.run("second", lambda: 1 / 0)
    assert list(json.loads((tmp_path / "gpu.json").read_text())["sections"]) == ["first", "second"]
    assert not other.went_well


def test_a_device_that_is_lost_is_used_again_in_a_new_process(monkeypatch):
    started = []
    monkeypatch.setattr(program.os, "execv", lambda *command: started.append(command))
    program.again(["--tiny", "--go-on"])
    ((path, words),) = started
    assert words == [path, "-m", "benchmarks.gpu", "--go-on", "--tiny"]


def test_a_section_that_ends_its_process_is_written_down_and_the_rest_goes_on(tmp_path):
    report, seen = Report(tmp_path / "gpu.json", deadline=100, head={}), []

    def ends():
        other = Report(tmp_path / "gpu.json", deadline=100, head={})
        other.go_on()  # as the next process does, if nothing comes behind this
        seen.append(other)
        return {}

    report.run("first", lambda: {"us": 3.0})
    report.run("last words", ends)
    (other,) = seen
    assert other.sections["first"]["ok"]
    assert other.sections["last words"] == {"ok": False, "error": "it ended its process"}
    assert "under_way" not in other.results | report.results
    report.results["under_way"] = "first"  # it hung, and was written down before
    report.write()
    other.go_on()
    assert other.sections == report.sections


@pytest.mark.parametrize(("statuses", "status"), [([0], 0), ([-11, -6, 1], 1), ([-9] * 99, 9)])
def test_whatever_ends_a_process_the_rest_goes_on_in_the_next(statuses, status, monkeypatch):
    commands = []

    def run(command, check):
        assert not check
        commands.append(command)
        return SimpleNamespace(returncode=statuses[len(commands) - 1])

    monkeypatch.setattr(program.subprocess, "run", run)
    assert program.watched(["--tiny"]) == status
    assert len(commands) == min(len(statuses), len(SECTIONS) + 1)
    first, *others = (command[3:] for command in commands)
    assert first == ["--unwatched", "--tiny"]
    assert all(words == ["--unwatched", "--go-on", "--tiny"] for words in others)


def test_a_section_that_would_begin_too_late_is_left_out(tmp_path):
    report = Report(tmp_path / "gpu.json", deadline=-1, head={})
    assert not report.run("late", lambda: {"us": 3.0})
    assert report.results["sections"]["late"] == {
        "ok": False,
        "left_out": "there was no time left",
    }


class Clock:
    """Of a host that launches a step in some time, and a device that does it in another."""

    def __init__(self, host, work):
        self.now = self.ready = 0.0  # of the host; when the device has done what it was given
        self.host, self.work = host, work

    def step(self):
        self.now += self.host
        self.give(self.work)

    def give(self, work):
        self.ready = max(self.now, self.ready) + work

    def wait(self, _):
        self.now = max(self.now, self.ready)

    def event(self, enable_timing):
        assert enable_timing
        return Moment(self)


class Moment:
    def __init__(self, clock):
        self.clock = clock

    def record(self):
        self.at = max(self.clock.now, self.clock.ready)

    def query(self):
        return self.clock.now >= self.at

    def elapsed_time(self, end):
        return (end.at - self.at) / 1e3


@pytest.mark.parametrize(("host", "gap"), [(30, 0.0), (100, 0.0), (130, 0.3)])
def test_a_gap_is_what_the_device_waits_for_its_host(host, gap, monkeypatch):
    clock = Clock(host, work=100)
    monkeypatch.setattr(torch.cuda, "Event", clock.event)
    for module in (timing, training):
        monkeypatch.setattr(module, "synchronize", clock.wait)
    monkeypatch.setattr(training, "busy", lambda *_: clock.give(1000))
    scale = replace(TINY, calls=1000)
    found = training.gap(clock.step, torch.device("cuda"), scale)
    assert found == pytest.approx(gap, abs=0.01)


def test_a_result_is_told_in_a_line():
    result = {"ok": True, "us": {"eager": 12.34567, "graph": 3.0}, "rows": 7, "traceback": "..."}
    assert brief(result) == "us: eager 12.35, graph 3; rows 7"


# Draws of two things and of four, how often each was expected, and the tabled p value.
CHI_SQUARE = [
    ([50, 50], [50, 50], 1.0),
    ([60, 40], [50, 50], 0.0455),
    ([30, 20, 25, 25], [25, 25, 25, 25], 0.5724),
    ([100, 0], [50, 50], 0.0),
]


@pytest.mark.parametrize(("drawn", "expected", "p"), CHI_SQUARE)
def test_the_chi_square_test_gives_tabled_values(drawn, expected, p):
    assert chi_square(np.array(drawn), np.array(expected, float)) == pytest.approx(p, abs=1e-4)


def test_the_kolmogorov_smirnov_test_tells_uniform_numbers_from_others():
    uniform = (np.arange(1000) + 0.5) / 1000
    assert kolmogorov_smirnov(uniform) == 1
    # 1.3581 / sqrt(n) is the tabled distance that one sample in twenty exceeds
    assert kolmogorov_smirnov(0.0423 + 0.9577 * uniform) == pytest.approx(0.05, abs=1e-3)
    assert kolmogorov_smirnov(np.zeros(1000)) < 1e-6


def test_draws_are_spread_over_their_share_of_the_mass():
    probabilities, rng = np.array([0.5, 0.2, 0.3]), np.random.default_rng(0)
    ids = np.array([0, 1, 2, 2])
    places = spread(ids, probabilities, rng)
    assert np.all(places >= [0, 0.5, 0.7, 0.7])
    assert np.all(places < [0.5, 0.7, 1, 1])


def test_a_rival_draws_in_proportion_to_priorities():
    torch.manual_seed(0)
    priorities = torch.tensor([1.0, 0.0, 3.0, 0.0, 0.0, 4.0])
    rival = Cumsum(Rows(6, 4000, CPU), priorities.clone(), 4000)
    slots = rival.step(torch.ones(4000)).numpy()
    assert set(slots) == {0, 2, 5}
    drawn = np.bincount(slots, minlength=6)[[0, 2, 5]]
    assert chi_square(drawn, 4000 * np.array([1, 3, 4]) / 8) > 1e-4
    assert rival.rows.out["obs"][:, 0].tolist() == slots.tolist()


def test_a_rival_draws_by_the_priorities_that_it_was_given_last():
    rival = Cumsum(Rows(8, 64, CPU), torch.ones(8), 64)
    rival.step(torch.zeros(64))  # all of them, and their priority becomes eps^alpha
    assert rival.priorities.max() < 1e-3


# Sections as they would be found, and for each goal what is measured and whether it is met.
FOUND = {
    "prioritized step": {"ok": True, "sample and update": {"eager": 90.0, "graph": 24.0}},
    "rivals": {
        "ok": True,
        "1e+05": {"ours": {"graph": 20.0}, "cumsum": {"graph": 40.0}},
        "1e+06": {
            "ours": {"eager": 90.0, "graph": 24.0},
            "cumsum": {"graph": 30.0},
            "torchrl, rebuilt": {"eager": 600.0, "graph": 150.0},
            "torchrl": {"not_measured": "ImportError"},
        },
    },
    "flatness": {"ok": True, "us": {"1e+05": {"graph": 20.0}, "1e+08": {"graph": 70.0}}},
    "gather": {"ok": True, "share_of_copy": 0.75},
    "training step": {
        "ok": True,
        "dqn": {"of eager": 5.0, "of host buffer": 12.0, "gap": 0.01},
        "sac": {"of eager": 3.5, "of host buffer": 8.0, "gap": 0.03},
        "seconds": 3.0,
    },
    "many environments": {"ok": True, "steps_per_s": {"an update every 64 steps": 6e6}},
    "learned": {"ok": True, "seconds": 12.0, "return": 500.0},
    "memory": {"ok": False, "error": "RuntimeError: no", "traceback": "Traceback"},
}
JUDGED = [
    *((24.0, True), (0.16, True), (0.8, True), (3.5, False), (0.75, False)),
    *((3.5, True), (8.0, False), (0.03, False), (6e6, True), (12.0, True)),
]


def test_goals_are_judged_by_what_was_measured():
    goals = judged(FOUND)
    assert [(goal["measured"], goal["met"]) for goal in goals] == [
        *[(pytest.approx(measured), met) for measured, met in JUDGED],
        (None, False),
        (None, False),
    ]
    assert all(goal["measured"] is None for goal in judged({}))
    unlearned = {"learned": {"ok": True, "seconds": 12.0, "return": 474.0}}
    assert all(goal["measured"] is None for goal in judged(unlearned))


def test_the_page_tells_goals_failures_and_figures():
    results = {"date": "today", "machine": {"gpu": "H200"}, "goals": judged(FOUND)}
    written = page({**results, "sections": FOUND})
    for line in (
        "# On H200",
        "| draw, gather and update 256 rows of a million, captured | <= 30 µs | 24 | met |",
        "| 100000 rows of 51 floats | <= 47 MB | not measured | **not met** |",
        "**memory**: RuntimeError: no",
        "| 1e+08 | 70 |",
    ):
        assert line in written.splitlines()


# Of W1 at a million rows: (call, launches, bytes).
BUDGETS = [
    (budget.add(budget.W1, 10**6, 1, prioritized=False), 1, 2 * 192),
    (budget.add(budget.W1, 10**6, 1, prioritized=True), 1, 2 * 192 + 64 * 7),
    (budget.add(budget.W1, 10**6, 1, prioritized=False, on_device=True), 1, 166 + 192),
    (budget.add(budget.W1, 10**6, 64, prioritized=False, on_device=True), 2, 64 * (166 + 192)),
    (budget.sample(budget.W1, 10**6, 256, prioritized=False), 2, 256 * (192 + 182)),
    (
        budget.sample(budget.W1, 10**6, 256, prioritized=True),
        2,
        256 * (192 + 182) + 64 * (3 * 256 + 123 + 16 + 2 + 1),
    ),
    (
        budget.update(10**6, 256),
        1,
        256 * (8 + 4 + 64) + 64 * (3 * 256 + 123 + 16 + 2 + 1),
    ),
]


@pytest.mark.parametrize(("entry", "launches", "moved"), BUDGETS)
def test_a_budget_counts_every_node_that_draws_share_once(entry, launches, moved):
    assert (entry.launches, entry.bytes) == (launches, moved)


def test_the_floor_is_the_time_of_the_bytes():
    entry = budget.Budget(name="copy", launches=1, bytes=4_300_000, depth=1)
    assert entry.microseconds() == pytest.approx(1.0)
    assert entry.microseconds(bandwidth=2.15e12) == pytest.approx(2.0)


def test_the_page_about_gpus_shows_what_is_computed():
    page = (Path(__file__).parents[3] / "docs" / "cuda.md").read_text(encoding="utf-8")
    assert budget.table(budget.budgets()) in page


def test_the_page_about_gpus_shows_the_operations_of_every_agent():
    page = (Path(__file__).parents[3] / "docs" / "cuda.md").read_text(encoding="utf-8")
    assert table() in page


def test_more_rows_than_one_program_takes_in_need_more_launches():
    assert budget.update(10**6, 4096).launches == 1
    assert budget.update(10**6, 4097).launches == 5
