"""The runs of `make learn`: how they are made, read and judged."""

import dataclasses
import json

import pytest

from benchmarks.learning import __main__ as program
from benchmarks.learning import curves, judge, runs, tables
from benchmarks.learning.tasks import COMPARISON, GOALS, Goal, Task

TINY = Task(
    name="tiny",
    words="dqn --env CartPole-v1 --total-steps 120 --learning-starts 40 --agent.hidden 8",
    seeds=2,
    episodes=2,
    goal=Goal(least=5, enough=2),
)


def results_of(*returns, name="tiny"):
    """Results of seeds with these greedy and training returns."""
    return {
        name: {
            str(seed): {
                "greedy": {"mean": value, "worst": value - 10, "std": 1.0, "episodes": 3},
                "training": {"mean": value / 2, "episodes": 3},
                "seconds": 60.0,
            }
            for seed, value in enumerate(returns)
        }
    }


@pytest.mark.parametrize(
    ("goal", "returns", "expected"),
    [
        (Goal(least=10), [10, 10, 10, 10, 0], True),
        (Goal(least=10), [10, 10, 10, 9.9, 0], False),
        (Goal(least=10), [10, 10, 10, 10], None),  # a seed is missing
        (Goal(least=10, of="median"), [0, 0, 10, 50, 50], True),
        (Goal(least=10, of="median"), [0, 0, 9, 50, 50], False),
        (Goal(least=10, of="mean"), [0, 0, 0, 0, 50], True),
        (Goal(least=10, of="mean"), [0, 0, 0, 0, 49], False),
        (Goal(least=10, worst_episode=True), [20, 20, 20, 20, 0], True),
        (Goal(least=10, worst_episode=True), [20, 20, 20, 19, 0], False),
        (None, [10, 10, 10, 10, 10], None),
    ],
)
def test_a_goal_is_reached_by_so_many_seeds_their_median_or_their_mean(goal, returns, expected):
    task = dataclasses.replace(TINY, seeds=5, goal=goal)
    assert judge.reached(task, results_of(*returns)) is expected


def test_returns_in_training_count_where_the_task_says_so():
    task = dataclasses.replace(TINY, judged="training", goal=Goal(least=10, enough=2))
    assert judge.reached(task, results_of(20, 20)) is True
    assert judge.reached(task, results_of(20, 19)) is False


@pytest.mark.parametrize(("ours", "expected"), [(9.0, True), (8.9, False)])
def test_a_goal_beside_another_run_is_a_factor_of_its_mean(ours, expected):
    other = dataclasses.replace(TINY, name="other", goal=None)
    task = dataclasses.replace(TINY, goal=Goal(least=0.9, of="mean", beside=other))
    results = results_of(ours, ours) | results_of(5, 15, name="other")
    assert judge.reached(task, results) is expected
    assert judge.reached(task, results_of(ours, ours)) is None
    shown = tables.goals([task], results)  # also without the other in the table, as with --only
    assert f"mean ≥ 0.9 × other | {tables.VERDICTS[expected]} |" in shown


@pytest.mark.parametrize("task", [*GOALS, *COMPARISON], ids=lambda task: task.name)
def test_the_settings_of_every_task_can_be_read(task):
    if not task.peer:
        from relive.cli.train import settings

        words = runs.commands(task, 0)[-1]
        given = settings(words[words.index("train") + 1 :])
        assert given.eval_episodes == task.episodes
        assert given.seed == 0


def test_names_of_tasks_are_their_own():
    names = [task.name for task in (*GOALS, *COMPARISON)]
    assert len(names) == len(set(names))


def test_a_run_is_made_once_goes_on_when_it_was_stopped_and_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RUNS", tmp_path)
    found = runs.make(TINY, 1)
    assert found["steps"] == 120
    assert found["greedy"]["episodes"] == 2
    assert len(found["curve"]) == runs.POINTS
    # a second call makes nothing
    monkeypatch.setattr(runs.subprocess, "run", pytest.fail)
    assert runs.make(TINY, 1) == found
    # one that was stopped is gone on with
    path = tmp_path / "tiny" / "1" / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]) + '{"record": "ru')
    assert not runs.has_ended(path.parent)
    assert runs.commands(TINY, 1)[0][1:3] == ["train", "--resume"]


def test_a_run_that_fails_says_where_its_output_is(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RUNS", tmp_path)
    broken = dataclasses.replace(TINY, words="dqn --env Nowhere-v0")
    with pytest.raises(RuntimeError, match=r"Nowhere-v0 .* failed; see .*0\.log"):
        runs.make(broken, 0)
    assert "Nowhere-v0" in (tmp_path / "tiny" / "0.log").read_text()


def test_results_are_kept_a_line_a_run_and_the_table_says_what_was_missed(
    tmp_path, monkeypatch, capsys
):
    path = tmp_path / "learning.json"
    monkeypatch.setattr(program, "RESULTS", path)
    monkeypatch.setattr(program, "write_pages", lambda _results: None)
    for seed, run in results_of(6, 4)["tiny"].items():
        program.keep(TINY, int(seed), run)
    assert json.loads(path.read_text()) == results_of(6, 4)
    assert len(path.read_text().splitlines()) == 6
    shown = tables.goals([TINY], program.load())
    assert "| tiny | 2 greedy | 6.0, 4.0 | return ≥ 5 for 2 of 2 | **no** | 1.0 |" in shown
    monkeypatch.setattr(program, "GOALS", (TINY,))
    monkeypatch.setattr("sys.argv", ["learning", "--show"])
    assert program.main() == 1
    assert "missed: tiny" in capsys.readouterr().out


def test_the_pages_show_the_results_that_are_kept():
    results = program.load()
    folder = program.RESULTS.parent
    assert (folder / "learning.md").read_text() == tables.goals(GOALS, results) + "\n"
    assert (folder / "samplers.md").read_text() == tables.comparison(COMPARISON, results) + "\n"


def test_curves_are_drawn_for_what_has_results(tmp_path):
    run = {"curve": [[10, None], [20, 1.0], [30, None], [40, 3.0]], "seconds": 1.0}
    steps, returns = curves.points({"0": run})
    assert steps.tolist() == [10, 20, 30, 40]
    assert returns.tolist() == [[1.0, 1.0, 2.0, 3.0]]
    curves.draw([TINY], {"tiny": {"0": run}}, tmp_path / "first.svg")
    curves.draw([TINY], {"tiny": {"0": run}}, tmp_path / "again.svg")
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()
