"""A worker as seen from the runner: a process that is asked and answers, or is lost."""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

WORKER = Path(__file__).with_name("worker.py")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
ONE_THREAD = dict.fromkeys(THREADS, "1") | {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONWARNINGS": "ignore",
}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PATIENCE = 900.0  # seconds for one answer; the longest is to fill a ring


class SideLostError(Exception):
    """A worker that will not answer any more; says why."""


class SideProcess:
    """One side in a process of its own.

    Args:
        side: a file of `sides`, dashes for underscores.
        python: the interpreter whose environment holds its library.
    """

    def __init__(self, side: str, python: str = sys.executable) -> None:
        self.side = side
        # Read when it is lost, so it lives as long as the process.
        self._complaints = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        environment = {**os.environ, **ONE_THREAD}
        if python != sys.executable:  # what this environment adds is not the peer's
            environment.pop("PYTHONPATH", None)
            environment.pop("VIRTUAL_ENV", None)
        self._process = subprocess.Popen(
            [python, "-P", str(WORKER), side.replace("-", "_")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment,
            text=True,
            encoding="utf-8",
        )
        self._waiting = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._waiting.register(self._process.stdout, selectors.EVENT_READ)

    def ask(self, action: str, **request: Any) -> dict[str, Any]:
        """One request, one answer.

        Raises:
            SideLostError: the process has ended, or took too long.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": action, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SideLostError(self._last_words()) from None
        if not self._waiting.select(PATIENCE):
            self.close()
            raise SideLostError(f"no answer to {action!r} in {PATIENCE:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise SideLostError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._waiting.close()
        self._process.kill()
        self._process.communicate()
        self._complaints.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _last_words(self) -> str:
        status = self._process.wait()
        self._complaints.seek(0)
        lines = COLOUR.sub("", self._complaints.read()).split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return f"exit status {status}: {last.strip()}"
