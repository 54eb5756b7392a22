"""Makes the runs of a table that have not been made, a process a core, and judges them.

    python -m benchmarks.learning                   # the goals; hours
    python -m benchmarks.learning --samplers        # one setting, four ways to draw
    python -m benchmarks.learning --only pendulum   # those whose name holds it
    python -m benchmarks.learning --show            # nothing is run

A run lies in runs/learn/TASK/SEED. What is stopped goes on where it was when it is called again.
Results are kept in results/learning.json, with tables beside it and curves in docs/images; a run
that is there and not in runs/learn is made again unless `--missing` is given. Ends with status 1 if
a goal was missed or a run failed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.learning import curves, judge, tables
from benchmarks.learning.runs import make
from benchmarks.learning.tasks import COMPARISON, GOALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.learning.judge import Results
    from benchmarks.learning.tasks import Task

RESULTS = Path(__file__).parents[1] / "results" / "learning.json"
CURVES = Path(__file__).parents[2] / "docs" / "images" / "learning.svg"
WRITING = threading.Lock()


def main() -> int:
    """Runs, writes, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samplers", action="store_true", help="the table of samplers")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="tasks whose name holds one of these"
    )
    parser.add_argument("--seeds", type=int, help="no more than so many seeds of each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--missing", action="store_true", help="leave out what has a result")
    parser.add_argument("--show", action="store_true", help="print the table, run nothing")
    options = parser.parse_args()
    table = COMPARISON if options.samplers else GOALS
    tasks = [task for task in table if any(word in task.name for word in options.only)]
    failed = 0 if options.show else run_all(tasks, options.seeds, options.jobs, options.missing)
    results = load()
    write_pages(results)
    if options.samplers:
        print(tables.comparison(tasks, results))
        return int(failed > 0)
    print(tables.goals(tasks, results))
    missed = [task.name for task in tasks if judge.reached(task, results) is False]
    print(f"\nmissed: {', '.join(missed) or 'none'}")
    return int(bool(missed) or failed > 0)


def run_all(tasks: Sequence[Task], seeds: int | None, jobs: int, missing: bool) -> int:
    """Makes the runs and keeps their results; how many failed."""
    known = load()
    # seed by seed, so that a table that is stopped has a little of everything
    pairs = [
        (task, seed)
        for seed in range(max((task.seeds for task in tasks), default=0))
        for task in tasks
        if seed < min(task.seeds, seeds or task.seeds)
        and not (missing and str(seed) in known.get(task.name, {}))
    ]
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(make, task, seed): (task, seed) for task, seed in pairs}
        for done in as_completed(running):
            task, seed = running[done]
            try:
                result = done.result()
            except RuntimeError as error:
                failed += 1
                print(f"{task.name} {seed}: {error}", flush=True)
                continue
            keep(task, seed, {**result, "date": dt.datetime.now(dt.UTC).date().isoformat()})
            print(f"{task.name} {seed}: {result[task.judged]['mean']:.1f}", flush=True)
    return failed


def write_pages(results: Results) -> None:
    """Writes what the documentation shows of the results."""
    pages = {
        "learning.md": tables.goals(GOALS, results),
        "samplers.md": tables.comparison(COMPARISON, results),
    }
    for name, text in pages.items():
        RESULTS.with_name(name).write_text(text + "\n", encoding="utf-8")
    curves.draw(GOALS, results, CURVES)


def load() -> Results:
    """All results that are kept."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def keep(task: Task, seed: int, result: dict[str, object]) -> None:
    """Adds a result; the file is replaced in one step."""
    with WRITING:
        results = load()
        results.setdefault(task.name, {})[str(seed)] = result
        ordered = {name: dict(sorted(results[name].items())) for name in sorted(results)}
        unfinished = RESULTS.with_suffix(".part")
        unfinished.write_text(dumped(ordered), encoding="utf-8")
        unfinished.replace(RESULTS)


def dumped(results: Results) -> str:
    """As JSON, a line a run: a diff shows what was run."""
    tasks = []
    for name, of_task in results.items():
        runs = ",\n".join(f'  "{seed}": {json.dumps(run)}' for seed, run in of_task.items())
        tasks.append(f'"{name}": {{\n{runs}\n}}')
    return "{\n" + ",\n".join(tasks) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
