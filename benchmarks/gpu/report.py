"""Sections run one after another; what fails is written down, and the rest goes on."""

from __future__ import annotations

import json
import platform
import signal
import time
import traceback
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu.goals import judged
from benchmarks.gpu.page import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PACKAGES = ("torch", "triton", "numpy", "numba", "torchrl")


class Report:
    """Results of sections; the file is whole after each of them.

    Attributes:
        path: Of the JSON file.
        deadline: Seconds after the beginning, at which no further section begins.
    """

    def __init__(self, path: Path, deadline: float, head: dict[str, Any]) -> None:
        self.path, self.deadline = path, deadline
        self.results: dict[str, Any] = {"began": time.time(), **head, "sections": {}}

    def go_on(self) -> None:
        """Take over what another process has written there: its sections and when it began."""
        self.results = json.loads(self.path.read_text(encoding="utf-8"))
        if (name := self.results.pop("under_way", None)) is not None:
            self.sections.setdefault(name, {"ok": False, "error": "it ended its process"})

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.time() - float(self.results["began"])

    @property
    def sections(self) -> dict[str, Any]:
        """What was found so far, by section."""
        found: dict[str, Any] = self.results["sections"]
        return found

    @property
    def went_well(self) -> bool:
        """Whether all of them did."""
        return all(section["ok"] for section in self.sections.values())

    def run(self, name: str, section: Callable[[], dict[str, Any]], limit: float = 600) -> bool:
        """Run a section and write down what it says.

        Args:
            limit: seconds after which it is given up.

        Returns:
            Whether it went well.
        """
        began = time.time()
        if self.seconds > self.deadline:
            result: dict[str, Any] = {"ok": False, "left_out": "there was no time left"}
        else:
            self.results["under_way"] = name
            self.write()
            try:
                with _at_most(limit):
                    result = {"ok": True, **section()}
            except Exception as error:  # it stands in the report, and others are measured
                result = {
                    "ok": False,
                    "error": f"{type(error).__name__}: {error}",
                    "traceback": traceback.format_exc(),
                }
            result["seconds"] = round(time.time() - began, 2)
            del self.results["under_way"]
        self.sections[name] = result
        self.write()
        print(f"{'ok' if result['ok'] else 'FAILED':<8}{name}: {brief(result)}", flush=True)
        return bool(result["ok"])

    def write(self) -> None:
        """The file, with the goals as they stand; it is never half written."""
        self.results["goals"] = judged(self.sections)
        self.results["seconds"] = round(self.seconds, 1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self.path.with_suffix(".half")
        half.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        half.replace(self.path)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises TimeoutError inside once so much time has passed."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def brief(result: dict[str, Any]) -> str:
    """A line about a result.

    >>> brief({"ok": True, "us": {"eager": 12.34567}, "seconds": 1.0, "traceback": "..."})
    'us: eager 12.35; seconds 1'
    """
    parts = []
    for name, value in result.items():
        if name in ("ok", "traceback"):
            continue
        if isinstance(value, dict):
            inner = ", ".join(f"{key} {shown(number)}" for key, number in value.items())
            parts.append(f"{name}: {inner}")
        else:
            parts.append(f"{name} {shown(value)}")
    return "; ".join(parts)


def machine(device: torch.device) -> dict[str, Any]:
    """What it was measured on."""
    found = {"device": str(device), "python": platform.python_version()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_gb": f"{properties.total_memory / 1e9:.1f}",
            "cuda": str(torch.version.cuda),
        }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
