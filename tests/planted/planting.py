"""Plants a fault in a copy of the sources and runs the tests that should notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.planted.faults import GPU

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.planted.faults import Fault

ROOT = Path(__file__).parents[2]
FAILED_TESTS = 1  # what pytest returns; anything else is no verdict of a test
LIMIT = 300  # seconds; a fault that makes a test hang has been noticed too
# Kernels are compiled in half the time, and give the same numbers.
ENVIRONMENT = {"NUMBA_OPT": "0", "PYTHONDONTWRITEBYTECODE": "1"}


class Verdict(NamedTuple):
    """What came of a fault."""

    fault: Fault
    caught: bool
    seconds: float
    by: str  # the first test that failed, or the end of what pytest said


def planted(fault: Fault, source: Path) -> None:
    """Put a fault into the package at `source`."""
    path = source / "relive" / fault.file
    text = path.read_text(encoding="utf-8")
    found = text.count(fault.old)
    if found != 1:
        raise LookupError(f"{fault.file} holds {found} times, not once: {fault.old!r}")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")


def try_all(faults: tuple[Fault, ...]) -> Iterator[Verdict]:
    """One after the other, each in a copy of the sources of its own.

    The copy has the compiled kernels of the sources: only a fault in `ops` compiles them anew.
    """
    for fault in faults:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "src"
            shutil.copytree(ROOT / "src", source)
            planted(fault, source)
            yield tried(fault, source)


def tried(fault: Fault, source: Path) -> Verdict:
    """Run the tests of a fault against a package at `source`."""
    interprets = any(GPU in tests for tests in fault.tests)
    kernels = {"TRITON_INTERPRET": "1"} if interprets else {}
    options = ["-x", "-q", "--tb=no", "-p", "no:randomly", "-p", "no:cacheprovider", "-rf"]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *fault.tests],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, **kernels, "PYTHONPATH": str(source)},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict(fault, True, time.perf_counter() - start, "a test that did not end")
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    by = lines[0].removeprefix("FAILED ").split(" - ")[0] if lines else done.stdout[-2000:]
    return Verdict(fault, done.returncode == FAILED_TESTS, time.perf_counter() - start, by)
