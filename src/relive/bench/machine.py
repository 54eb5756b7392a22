"""Where and on what it was measured: stands beside every figure."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system and Python."""
    return {
        "processor": _line("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": _gigabytes(_line("/proc/meminfo", "MemTotal")),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def today() -> str:
    """The date, UTC."""
    return dt.datetime.now(tz=dt.UTC).date().isoformat()


def commit() -> str | None:
    """The commit of the sources, "+" if they were changed since; None outside a repository."""
    here = Path(__file__).parents[1]
    try:
        name = _git(here, "rev-parse", "--short=12", "HEAD")
        return name + ("+" if _git(here, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _line(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _gigabytes(line: str) -> float | None:
    return round(int(line.split()[0]) * 1024 / 1e9, 1) if line else None
