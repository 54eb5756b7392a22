"""Every test of this folder in a process of its own, several at once; one file of JSON.

    PYTHONPATH=src python -m tests.gpu            (or make test-gpu)

Needs what the tests need. What hangs is ended, what loses the device takes no other test with it,
and what is compiled by one is not waited for by all. The file is whole after each test. The exit
status is 0 if all went well, 1 if not, and 2 without a CUDA device.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
PYTEST = [sys.executable, "-m", "pytest", "-c", "tests/gpu/pytest.ini", "--rootdir=."]
PYTEST += ["--confcutdir=tests/gpu", "-q", "--tb=short"]
ORDER = ("test_checks", "test_training", "test_buffer")  # what says most comes first
SECONDS = 540  # for all of them
LIMIT = 180  # seconds of one
SHOWN = 9000  # characters of what failed, at the end


def main(arguments: list[str]) -> int:
    """Runs them; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--save", type=Path, default=ROOT / "build" / "gpu-tests.json")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all of them")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of one")
    parser.add_argument("--workers", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)))
    parser.add_argument("-k", default="", help="only tests that match, as pytest takes it")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("there is no CUDA device here, so there is nothing to test")
        return 2
    deadline = time.monotonic() + options.seconds
    found: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(options.workers) as pool:
        limits = options.limit, deadline
        running = {pool.submit(outcome_of, name, *limits): name for name in names(options.k)}
        for done in as_completed(running):
            name = running[done]
            found[name] = done.result()
            write(options.save, found)
            print(line_of(name, found[name]), flush=True)
    failed = {name: one for name, one in found.items() if not one["ok"]}
    for name, one in failed.items():
        shown = one["output"][-SHOWN // len(failed) :].strip()
        print(f"\n== {name}\n{shown}")
    print(f"\n{len(found) - len(failed)} of {len(found)} went well; written to {options.save}")
    return 1 if failed or not found else 0


def names(matching: str) -> list[str]:
    """Of the tests, those that say most first."""
    wanted = f"not pretended and ({matching})" if matching else "not pretended"
    said = subprocess.run(
        [*PYTEST, "--collect-only", "-k", wanted, "tests/gpu"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout
    found = [line for line in said.splitlines() if "::" in line]
    if not found:
        print(said)
    return sorted(found, key=lambda name: [word not in name for word in ORDER])


def outcome_of(name: str, limit: float, deadline: float) -> dict[str, Any]:
    """What became of one test: "ok", "seconds", and "output" if it is not well."""
    began = time.monotonic()
    seconds = min(limit, deadline - began)
    if seconds <= 0:
        return {"ok": False, "seconds": 0.0, "output": "left out: there was no time left"}
    # a little before the end all threads say where they are
    timeout = ["-o", f"faulthandler_timeout={max(1.0, seconds - 5)}"]
    try:
        done = subprocess.run(
            [*PYTEST, *timeout, name],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        ok, output = done.returncode == 0, done.stdout
        if done.returncode < 0:
            output += f"\nended by signal {-done.returncode}"
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        ok, output = False, said.decode() if isinstance(said, bytes) else said
        output += f"\nended after {seconds:.0f} s"
    result: dict[str, Any] = {"ok": ok, "seconds": round(time.monotonic() - began, 1)}
    return result if ok else {**result, "output": output}


def line_of(name: str, result: dict[str, Any]) -> str:
    """What is said of a test: whether it went well, and if not, the first thing that was wrong."""
    said = f"{'ok' if result['ok'] else 'FAILED':<6} {result['seconds']:6.1f} s  {name}"
    if result["ok"]:
        return said
    wrong = re.search(r"^E +(.+)$", result["output"], re.MULTILINE)
    last = result["output"].strip().rpartition("\n")[2]
    return f"{said}: {wrong[1] if wrong else last}"[:300]


def write(path: Path, found: dict[str, dict[str, Any]]) -> None:
    """The file; it is never half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".half")
    half.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    half.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
