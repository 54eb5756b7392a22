"""How long the library takes to be there: its import, then a buffer with its first batch."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import Any

from relive.bench.processes import ONE_THREAD

CLOCK = "from time import perf_counter as t; a = t(); {work}; print(t() - a)"
FIRST_SAMPLE = """
import torch
from time import perf_counter as t
from relive import Field, Proportional, ReplayBuffer
a = t()
fields = {"obs": Field((17,)), "action": Field((6,))}
buffer = ReplayBuffer(1000, fields, sampler=Proportional())
step = dict(obs=[0.0] * 17, action=[0.0] * 6, next_obs=[0.0] * 17)
buffer.add(**step, reward=0.0, terminated=False, truncated=False)
buffer.sample(256).obs
print(t() - a)
"""
PROGRAMS = {
    "import torch": CLOCK.format(work="import torch"),
    "import relive": CLOCK.format(work="import relive"),
    "first sample": FIRST_SAMPLE,
}


def startup(rounds: int) -> dict[str, dict[str, float]]:
    """Seconds by the clock, each in new processes that take turns; caches on disk are warm."""
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for turn in range(rounds + 1):
        for name, program in PROGRAMS.items():
            seconds = _run(program)
            if turn:  # the first one warms the caches
                taken[name].append(seconds)
    return {
        name: {"median": statistics.median(times), "low": min(times), "high": max(times)}
        for name, times in taken.items()
    }


def judge_startup(times: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Its targets, as `judge` gives them."""
    ours, torch = times["import relive"]["median"], times["import torch"]["median"]
    first = times["first sample"]["median"]
    return [
        _verdict("import relive", "import torch", 1.2, ours / torch),
        _verdict("first sample", "1 s", 1.0, first),
    ]


def _verdict(case: str, versus: str, limit: float, ratio: float) -> dict[str, Any]:
    return {
        "workload": "start",
        "case": case,
        "ours": "relive",
        "versus": versus,
        "limit": limit,
        "ratio": ratio,
        "met": ratio <= limit,
    }


def _run(program: str) -> float:
    command = [sys.executable, "-c", program]
    environment = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout)
