"""Plants a fault in a copy of the sources and runs the tests that should notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.planted.faults import GPU

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.planted.faults import Fault

ROOT = Path(__file__).parents[2]
FAILED_TESTS = 1  # what pytest returns; anything else is no verdict of a test
LIMIT = 300  # seconds; a fault that makes a test hang has been noticed too
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}


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
    """One after the other, each in a copy of the sources of its own, after `require_sound`."""
    require_sound(faults)
    for fault in faults:
        yield try_one(fault)


def require_sound(faults: tuple[Fault, ...]) -> None:
    """Run the tests of faults where none is planted: those that fail there notice nothing.

    Raises:
        AssertionError: one failed; with what pytest said.
    """
    with copied_sources() as source:
        for interpreted in (False, True):
            tests = {test for fault in faults for test in fault.tests}
            tests = {test for test in tests if (GPU in test) == interpreted}
            if tests:
                done = run(tuple(sorted(tests)), source, limit=None)
                assert done.returncode == 0, done.stdout[-2000:]


def try_one(fault: Fault) -> Verdict:
    """Plant a fault and run its tests."""
    with copied_sources() as source:
        planted(fault, source)
        start = time.perf_counter()
        try:
            done = run(fault.tests, source, limit=LIMIT)
        except subprocess.TimeoutExpired:
            return Verdict(fault, True, time.perf_counter() - start, "a test that did not end")
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    by = lines[0].removeprefix("FAILED ").split(" - ")[0] if lines else done.stdout[-2000:]
    return Verdict(fault, done.returncode == FAILED_TESTS, time.perf_counter() - start, by)


@contextmanager
def copied_sources() -> Iterator[Path]:
    """With their compiled kernels: only a fault in `ops` compiles them anew."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        yield source


def run(
    tests: tuple[str, ...], source: Path, limit: float | None
) -> subprocess.CompletedProcess[str]:
    """Run tests against a package at `source`.

    Raises:
        TimeoutExpired: they took longer than `limit` seconds.
    """
    kernels = {"TRITON_INTERPRET": "1"} if any(GPU in test for test in tests) else {}
    options = ["-x", "-q", "--tb=no", "-p", "no:randomly", "-p", "no:cacheprovider", "-rf"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, **kernels, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
