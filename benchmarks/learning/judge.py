"""From the results of seeds to a verdict."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.learning.tasks import Task

Results = dict[str, dict[str, dict[str, Any]]]
"""Name of a task to seed to what came of the run."""


def scores(task: Task, results: Results) -> dict[int, float]:
    """The return by which each seed that has been run is judged."""
    worst = task.goal is not None and task.goal.worst_episode
    entry = "worst" if worst else "mean"
    of_task = results.get(task.name, {})
    return {
        seed: of_task[str(seed)][task.judged][entry]
        for seed in range(task.seeds)
        if str(seed) in of_task
    }


def reached(task: Task, results: Results) -> bool | None:
    """Whether a task has come to its goal; None while it cannot be told, or if it has none."""
    goal, of_seed = task.goal, scores(task, results)
    if goal is None or len(of_seed) < task.seeds:
        return None
    least = goal.least
    if goal.beside is not None:
        others = scores(goal.beside, results)
        if len(others) < goal.beside.seeds:
            return None
        least *= statistics.fmean(others.values())
    if goal.of == "each":
        return sum(score >= least for score in of_seed.values()) >= goal.enough
    middle = {"median": statistics.median, "mean": statistics.fmean}[goal.of]
    return middle(of_seed.values()) >= least


def asked(task: Task) -> str:
    """The goal in words."""
    goal = task.goal
    if goal is None:
        return ""
    if goal.beside is not None:
        return f"{goal.of} ≥ {goal.least:g} × {goal.beside.name}"
    what = "worst episode" if goal.worst_episode else "return"
    if goal.of == "each":
        return f"{what} ≥ {goal.least:g} for {goal.enough} of {task.seeds}"
    return f"{goal.of} ≥ {goal.least:g}"
