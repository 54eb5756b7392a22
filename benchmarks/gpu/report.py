"""Sections run one after another; what fails is written down, and the rest goes on."""

from __future__ import annotations

import json
import platform
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKAGES = ("torch", "triton", "numpy", "numba", "torchrl")


class Report:
    """Results of sections; the file is whole after each of them.

    Attributes:
        path: Of the JSON file.
        deadline: Seconds after which no further section begins.
    """

    def __init__(self, path: Path, deadline: float, head: dict[str, Any]) -> None:
        self.path, self.deadline = path, deadline
        self.start = time.monotonic()
        self.results: dict[str, Any] = {**head, "sections": {}}

    def run(self, name: str, section: Callable[[], dict[str, Any]]) -> bool:
        """Run a section and write down what it says.

        Returns:
            Whether it went well; a section says {"ok": False} itself, or raises.
        """
        began = time.monotonic()
        if began - self.start > self.deadline:
            result: dict[str, Any] = {"ok": False, "left_out": "there was no time left"}
        else:
            try:
                result = {"ok": True, **section()}
            except Exception as error:  # it stands in the report, and others are measured
                result = {
                    "ok": False,
                    "error": f"{type(error).__name__}: {error}",
                    "traceback": traceback.format_exc(),
                }
            result["seconds"] = round(time.monotonic() - began, 2)
        self.results["sections"][name] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.results, indent=1) + "\n")
        print(f"{'ok' if result['ok'] else 'FAILED':<8}{name}: {brief(result)}", flush=True)
        return bool(result["ok"])


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


def shown(value: Any) -> str:
    """A number with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
