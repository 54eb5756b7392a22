"""A run directory as data.

A run directory holds `config.json`, the settings, and `metrics.jsonl`, one record a line in the
order in which things happened. A run that was stopped has fewer of them: every part may be missing
here, and a last line that was cut off while it was being written is skipped and counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Series = NDArray[np.float64]
    Record = dict[str, Any]

CONFIG = "config.json"
METRICS = "metrics.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run directory says.

    Attributes:
        path: The directory.
        config: The settings, nested as in `config.json`.
        versions: Package name to version, as found when the run started.
        records: The records of `metrics.jsonl` by kind ("episode_ended", …), each in time order.
        torn_lines: Lines of `metrics.jsonl` that are no JSON: 1 after a kill, 0 otherwise.
    """

    path: Path
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    records: Mapping[str, list[Record]]
    torn_lines: int

    def series(self, kind: str, name: str) -> tuple[Series, Series]:
        """One number of one kind of record over time.

        Args:
            kind: The kind of record, for example "training_progress".
            name: The key of the number, for example "loss".

        Returns:
            Environment steps and values, both [T]; records in which the number is missing, null or
            not finite are left out.
        """
        pairs = [(r["step"], r.get(name)) for r in self.records.get(kind, ())]
        kept = [(step, value) for step, value in pairs if isinstance(value, int | float)]
        points = np.array(kept, dtype=np.float64).reshape(-1, 2)
        points = points[np.isfinite(points[:, 1])]
        return points[:, 0], points[:, 1]

    def last(self, kind: str) -> Record | None:
        """The newest record of a kind, None if there is none."""
        records = self.records.get(kind)
        return records[-1] if records else None

    @property
    def steps(self) -> int:
        """Environment steps up to the newest record."""
        return max((int(records[-1]["step"]) for records in self.records.values()), default=0)

    @property
    def finished(self) -> bool:
        """Whether the run came to its end: not stopped by hand, not killed."""
        end = self.last("run_ended")
        return end is not None and not end.get("interrupted", False)


def read_run(path: Path | str) -> Run:
    """Reads a run directory.

    Args:
        path: The directory that `relive train` printed.

    Returns:
        The run; parts that were not written are empty.

    Raises:
        InputError: The directory or its `metrics.jsonl` is missing, its `config.json` is no JSON
            object, or a line before the last is no record.
    """
    path = Path(path)
    metrics = _file(path, METRICS)
    records: dict[str, list[Record]] = {}
    torn = 0
    for record in _records(metrics):
        if record is None:
            torn += 1
        else:
            records.setdefault(record["record"], []).append(record)
    started = records.get("run_started", [{}])[0]
    return Run(
        path=path,
        config=read_config(path) if (path / CONFIG).is_file() else started.get("config", {}),
        versions=started.get("versions", {}),
        records=records,
        torn_lines=torn,
    )


def read_config(path: Path) -> Record:
    """The settings of the run in a directory.

    Raises:
        InputError: The directory or its `config.json` is missing, or that is no JSON object.
    """
    file = _file(path, CONFIG)
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file} is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{file} should hold a JSON object, got {type(config).__name__}")
    return config


def _records(metrics: Path) -> Iterator[Record | None]:
    """The records of a file in order; None for a last line that was cut off."""
    lines = metrics.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            _ = record["record"], int(record["step"])
        except (ValueError, TypeError, KeyError):
            if number < len(lines):
                raise InputError(
                    f"{metrics}, line {number} is no record: expected a JSON object with the keys "
                    f'"record" and "step", got {line[:60]!r}; remove the line to read the rest'
                ) from None
            yield None
        else:
            yield record


def _file(path: Path, name: str) -> Path:
    """A file of a run directory, which must be there."""
    if (path / name).is_file():
        return path / name
    raise InputError(f"{path} is not a run directory: it has no {name}{_runs_beside(path)}")


def _runs_beside(path: Path) -> str:
    """Names the run directories near a path that is none: inside it, or beside it."""
    for folder in (path, path.parent):
        runs = sorted(found.parent for found in folder.glob(f"*/{METRICS}"))
        if runs:
            more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
            return f"; these are: {', '.join(str(run) for run in runs[:5])}{more}"
    return "; `relive train` makes one"
