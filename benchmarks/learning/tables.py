"""Results as Markdown."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.learning import judge
from benchmarks.learning.runs import command_shown
from benchmarks.learning.tasks import SAMPLERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.learning.judge import Results
    from benchmarks.learning.tasks import Task

VERDICTS = {True: "yes", False: "**no**", None: ""}


def goals(tasks: Sequence[Task], results: Results) -> str:
    """A row a task: its seeds, what was asked, whether it was reached."""
    lines = [
        "| run | judged by | seeds 0, 1, … | asked | reached | minutes a run |",
        "| --- | --- | --- | --- | --- | ---: |",
    ]
    for task in tasks:
        of_seed = judge.scores(task, results)
        if not of_seed:
            continue
        shown = ", ".join(_short(score) for score in of_seed.values())
        by = "last 100 of training" if task.judged == "training" else f"{task.episodes} greedy"
        minutes = statistics.median(run["seconds"] for run in results[task.name].values()) / 60
        verdict = VERDICTS[judge.reached(task, results)]
        lines.append(
            f"| {task.name} | {by} | {shown} | {judge.asked(task)} | {verdict} | {minutes:.1f} |"
        )
    commands = [f"{command_shown(task)}" for task in tasks if judge.scores(task, results)]
    return "\n".join([*lines, "", "```sh", *commands, "```"])


def comparison(tasks: Sequence[Task], results: Results) -> str:
    """A row an environment, a column a sampler: mean over the seeds, least and largest."""
    lines = [
        "| | " + " | ".join(SAMPLERS) + " |",
        "| --- |" + " ---: |" * len(SAMPLERS),
    ]
    names = dict.fromkeys(task.name.split("-")[1] for task in tasks)
    for name in names:
        cells = []
        for sampler in SAMPLERS:
            task = next(t for t in tasks if t.name == f"samplers-{name}-{sampler.lower()}")
            scores = list(judge.scores(task, results).values())
            cells.append(_spread(scores, task.seeds) if scores else "")
        if any(cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spread(scores: Sequence[float], seeds: int) -> str:
    """The mean, least and largest, and how many of the seeds these are unless all."""
    some = "" if len(scores) == seeds else f"; {len(scores)} of {seeds} seeds"
    ends = f"{_short(min(scores))} to {_short(max(scores))}"
    return f"{_short(statistics.fmean(scores))} ({ends}{some})"


def _short(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")
