"""One side of the benchmark, in a process of its own: answers requests with figures.

    python worker.py SIDE            SIDE names a file of `sides`

Needs NumPy and the library of the side, nothing of relive: any interpreter can run it. Requests
and answers are JSON, one a line:

    {"do": "open"}                                   -> {"versions": {...}}
    {"do": "setup", "task": {...}, "sampler": ...}   -> {}           the ring is full, if it was {}
    {"do": "check", "operation": {...}}              -> {}           what it does was right
    {"do": "time", "operation": {...}, "seconds": s} -> {"calls": n, "cpu": s, "wall": s}
    {"do": "forget"}                                 -> {}           what was prepared is dropped

An answer with "skip" says why a side has no such operation, one with "error" what was wrong.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from relive.bench.rows import Task

WARM_UP = 0.1  # of the calls that are timed


class Skip(Exception):  # noqa: N818 - not an error
    """Why a side has no such operation."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What is timed: `kind` is a method of the side, `rows` how many rows a call deals with."""

    kind: str
    rows: int
    variant: str = ""


class Worker:
    """Carries out requests for one side."""

    def __init__(self, side: Any) -> None:
        self.side = side
        self.task: Task | None = None
        self.calls: dict[Operation, tuple[Callable[[], Any], int]] = {}

    def open(self) -> dict[str, Any]:
        """Versions of the packages that matter."""
        from importlib.metadata import version

        return {"versions": {name: version(name) for name in self.side.PACKAGES}}

    def setup(self, task: dict[str, Any], sampler: str) -> dict[str, Any]:
        """Fill the side's ring; what there was before is dropped first."""
        self.calls.clear()
        self.side.close()
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # so that libraries and what they hold are not looked through again
        if sampler not in getattr(self.side, "SAMPLERS", (sampler,)):
            raise Skip(f"draws {', '.join(self.side.SAMPLERS)} only")
        self.task = module("rows").Task(**task)
        self.side.setup(self.task, sampler)
        return {}

    def forget(self) -> dict[str, Any]:
        """Drop what was prepared for the operations so far."""
        self.calls.clear()
        return {}

    def check(self, operation: dict[str, Any]) -> dict[str, Any]:
        """Prepare an operation, do it, and look at what it did."""
        what = Operation(**operation)
        make = getattr(self.side, what.kind, None)
        if make is None:
            raise Skip(f"cannot {what.kind}")
        call = make(what)
        result = call()
        read = getattr(self.side, f"read_{what.kind}", None)
        if read is not None and self.task is not None:
            self.task.check(read(result), what.rows)
        verify = getattr(self.side, "verify", None)
        if verify is not None:
            verify(what, call)
        self.calls[what] = call, 0
        return {}

    def time(self, operation: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Time as many calls as take about `seconds`, after a few that are not timed."""
        what = Operation(**operation)
        call, count = self.calls[what]
        if count == 0:
            count = calls_in(call, seconds)
            self.calls[what] = call, count
        gc.disable()
        run(call, max(1, round(count * WARM_UP)))
        cpu, wall = run(call, count)
        gc.enable()
        return {"calls": count, "cpu": cpu, "wall": wall}


def run(call: Callable[[], Any], count: int) -> tuple[float, float]:
    """Seconds of CPU and by the clock that `count` calls take."""
    repeat = range(count)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in repeat:
        call()
    return time.process_time() - cpu, time.perf_counter() - wall


def calls_in(call: Callable[[], Any], seconds: float) -> int:
    """How many calls take about `seconds` of CPU time."""
    count = 1
    while (taken := run(call, count)[0]) < seconds / 4:
        count *= 2
    return max(1, round(count * seconds / taken))


def module(name: str) -> ModuleType:
    """A file beside this one, by its path: relive need not be installed."""
    spec = importlib.util.spec_from_file_location(
        name.replace("/", "_"), Path(__file__).parent / f"{name}.py"
    )
    if spec is None or spec.loader is None:
        raise FileNotFoundError(name)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def answer(name: str, worker: Worker | None, request: dict[str, Any]) -> tuple[Worker | None, Any]:
    """Carry out one request."""
    action = request.pop("do")
    try:
        if worker is None:
            worker = Worker(module(f"sides/{name}").Side())
        return worker, getattr(worker, action)(**request)
    except Skip as why:
        return worker, {"skip": str(why)}
    except Exception as error:  # whatever a library raises is its answer
        return worker, {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answer until the input ends. What libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker: Worker | None = None
    for line in sys.stdin:
        worker, reply = answer(sys.argv[1], worker, json.loads(line))
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
