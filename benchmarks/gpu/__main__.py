"""The buffer on a CUDA device: checked first, then measured; one file of JSON, and a page of it.

    PYTHONPATH=src python -m benchmarks.gpu            (or make bench-gpu)

Needs torch, NumPy, Numba and Triton. A section that fails is written down with its error, and the
others go on; if it hangs, or the device or the process is lost with it, in a new process. The exit
status is 0 if all went well, 1 if not, and 2 without a CUDA device.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import torch

from benchmarks.gpu.budget import budgets
from benchmarks.gpu.page import page
from benchmarks.gpu.report import Report, machine
from benchmarks.gpu.sections import OTHERWISE, SECONDS, SECTIONS
from benchmarks.gpu.workload import TINY, Scale
from relive.bench.machine import commit, today

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path(__file__).parents[1] / "results" / "gpu.json"
MINUTES = 6.5  # after which no section begins
AT_MOST = 7.9  # after which the process ends, whatever the device does
GRACE = 15  # seconds until a section that does not hear that its time is over is taken for hanging


def main(arguments: list[str]) -> int:
    """Runs everything; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--save", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--device", default="cuda", help="a CUDA device")
    parser.add_argument("--only", nargs="*", default=[], help="sections by name; all without it")
    parser.add_argument("--tiny", action="store_true", help="small buffers: to see that it runs")
    parser.add_argument(
        "--go-on", action="store_true", help="with the sections not yet in the file"
    )
    parser.add_argument("--unwatched", action="store_true", help="in this process, not one beside")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("there is no CUDA device here, so there is nothing to measure")
        return 2
    device, scale = torch.device(options.device), TINY if options.tiny else Scale()
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
    if options.go_on:
        report.go_on()
    faulthandler.dump_traceback_later(AT_MOST * 60 - report.seconds, exit=True)
    try:
        for name, section in SECTIONS.items():
            if name in report.sections or (options.only and name not in options.only):
                continue
            limit = SECONDS.get(name, OTHERWISE)
            with unless_it_hangs(report, name, limit + GRACE, arguments):
                went_well = report.run(name, partial(section, device, scale), limit)
            if not went_well and is_lost(device):
                print("the device is of no more use here; going on in a new process", flush=True)
                again(arguments)
    finally:
        faulthandler.cancel_dump_traceback_later()
    options.save.with_suffix(".md").write_text(page(report.results), encoding="utf-8")
    print(f"written to {options.save} and {options.save.with_suffix('.md')}")
    return 0 if report.went_well else 1


def is_lost(device: torch.device) -> bool:
    """Whether a device is of no more use to this process, as after a bad address.

    Or after a capture that CUDA has broken off: torch does not get over it before 2.13.
    """
    try:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        return not 0 <= torch.rand(1, device=device).item() < 1
    except RuntimeError:
        return True


@contextmanager
def unless_it_hangs(
    report: Report, name: str, seconds: float, arguments: list[str]
) -> Iterator[None]:
    """Gives a section up that is still inside after so long: the host waits for the device."""

    def give_up() -> None:
        print(f"FAILED  {name}: hangs; going on in a new process", flush=True)
        faulthandler.dump_traceback(all_threads=True)
        report.sections[name] = {"ok": False, "error": "hangs", "seconds": seconds}
        report.write()
        again(arguments)

    timer = Timer(seconds, give_up)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def again(arguments: list[str]) -> None:
    """The rest in a new process, which takes the place of this one."""
    rest = [word for word in arguments if word != "--go-on"]
    os.execv(sys.executable, [sys.executable, "-m", "benchmarks.gpu", "--go-on", *rest])


def watched(arguments: list[str]) -> int:
    """`main` in a process of its own, and where a signal ends that, the rest in the next one."""
    status = main_elsewhere(arguments)
    for _ in SECTIONS:
        if status >= 0:
            break
        print(f"ended by signal {-status}; going on in a new process", flush=True)
        status = main_elsewhere(["--go-on", *arguments])
    return abs(status)


def main_elsewhere(arguments: list[str]) -> int:
    """Its exit status; negative if a signal has ended it."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--unwatched", *arguments]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(given) if "--unwatched" in given else watched(given))
