"""The buffer on a CUDA device: checked first, then measured; one file of JSON.

    PYTHONPATH=src python -m benchmarks.gpu            (or make bench-gpu)

Needs torch, NumPy, Numba and Triton. A section that fails is written down with its error, and the
others go on. The exit status is 0 if all went well, 1 if not, and 2 without a CUDA device.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu.budget import budgets
from benchmarks.gpu.checks import CHECKS
from benchmarks.gpu.report import Report, machine
from benchmarks.gpu.speed import TIMES
from benchmarks.gpu.workload import Scale
from relive.bench.machine import commit, today

RESULTS = Path(__file__).parents[1] / "results" / "gpu.json"
MINUTES = 7  # after which no section begins


def main(arguments: list[str]) -> int:
    """Runs everything; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--save", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--device", default="cuda", help="a CUDA device")
    parser.add_argument("--only", nargs="*", default=[], help="sections by name; all without it")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("there is no CUDA device here, so there is nothing to measure")
        return 2
    device, scale = torch.device(options.device), Scale()
    report = Report(
        options.save,
        MINUTES * 60,
        {
            "date": today(),
            "commit": commit(),
            "machine": machine(device),
            "memory_alone_us": {entry.name: entry.microseconds() for entry in budgets()},
        },
    )
    sections = {**CHECKS, **TIMES}
    wanted = [name for name in sections if not options.only or name in options.only]
    went_well = [report.run(name, partial(sections[name], device, scale)) for name in wanted]
    print(f"written to {options.save}")
    return 0 if all(went_well) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
