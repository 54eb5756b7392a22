"""A run directory as data.

A run directory holds `config.json`, the settings, and `metrics.jsonl`, one record a line in the
order in which things happened. A run that was stopped has fewer of them: every part may be missing
here, and a last line that was cut off while it was being written is skipped and counted. A run that
was resumed has a second `run_started`, at the step from which it went on: what had been recorded
after that step happened again, and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.errors import InputError
from relive.report.records import Lines, check_settings, parse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Series = NDArray[np.float64]
    Record = dict[str, Any]

CONFIG = "config.json"
METRICS = "metrics.jsonl"
RUNS = Path("runs")  # where `relive train` makes them


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run directory says.

    Attributes:
        path: The directory.
        config: The settings, nested as in `config.json`.
        versions: Package name to version, as found when the run started (last).
        records: The records of `metrics.jsonl` by kind ("episode_ended", …), each in time order.
        seconds: How long it took so far, the parts of a resumed run together; 0 if not known.
        torn_lines: Lines of `metrics.jsonl` that were cut off: 1 after a kill, 0 otherwise.
    """

    path: Path
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    records: Mapping[str, list[Record]]
    seconds: float
    torn_lines: int

    def series(self, kind: str, name: str) -> tuple[Series, Series]:
        """One number of one kind of record over time.

        Args:
            kind: The kind of record, for example "training_progress".
            name: The key of the number, for example "loss".

        Returns:
            Environment steps and values, both [T]; records in which the number is missing or null
            (it was not finite) are left out.
        """
        pairs = [(r["step"], r.get(name)) for r in self.records.get(kind, ())]
        kept = [(step, value) for step, value in pairs if isinstance(value, int | float)]
        points = np.array(kept, dtype=np.float64).reshape(-1, 2)
        return points[:, 0], points[:, 1]

    def last(self, kind: str) -> Record | None:
        """The newest record of a kind, None if there is none."""
        records = self.records.get(kind)
        return records[-1] if records else None

    @property
    def steps(self) -> int:
        """Environment steps up to the newest record."""
        return max((records[-1]["step"] for records in self.records.values() if records), default=0)

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
            object, a line before the last is no record, or something has a wrong type.
    """
    path = Path(path)
    metrics = _file(path, METRICS)
    text = metrics.read_text(encoding="utf-8", errors="replace")
    lines = Lines(metrics)
    records: dict[str, list[Record]] = {}
    clock = Clock()
    for record in lines.records(text.splitlines()):
        if record["record"] == "run_started":
            take_back(records, record["step"])
        records.setdefault(record["record"], []).append(record)
        clock.take(record)
    started = records.get("run_started", [{}])[-1]
    return Run(
        path=path,
        config=read_config(path) if (path / CONFIG).is_file() else started.get("config", {}),
        versions=started.get("versions", {}),
        records=records,
        seconds=clock.seconds,
        torn_lines=lines.torn,
    )


def read_config(path: Path) -> Record:
    """The settings of the run in a directory.

    Raises:
        InputError: The directory or its `config.json` is missing, that is no JSON object, or a
            setting has a wrong type.
    """
    file = _file(path, CONFIG)
    try:
        config = parse(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is no JSON: {error}") from None
    return check_settings(file, config)


def take_back(records: dict[str, list[Record]], step: int) -> None:
    """Drops what a run that goes on from `step` had recorded after it, and that it had ended."""
    for kind, entries in records.items():
        records[kind] = [entry for entry in entries if entry["step"] <= step]
    records.pop("run_ended", None)


class Clock:
    """How long a run took, whether a resumed one counts on or from 0 again.

    Attributes:
        seconds: So far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._before = 0.0  # when it was resumed
        self._offset: float | None = 0.0  # to be added to what records say; None: not known yet

    def take(self, record: Record) -> None:
        """Takes the next record."""
        if record["record"] == "run_started":
            self._before, self._offset = self.seconds, None
        seconds = record.get("seconds")
        if isinstance(seconds, int | float) and seconds >= 0:
            if self._offset is None:
                self._offset = 0.0 if seconds >= self._before else self._before
            self.seconds = self._offset + seconds


def _file(path: Path, name: str) -> Path:
    """A file of a run directory, which must be there."""
    if (path / name).is_file():
        return path / name
    raise InputError(no_run(path, name))


def no_run(path: Path, name: str = METRICS) -> str:
    """A sentence about a directory that is no run: what it lacks, and which near it are."""
    return f"{path} is not a run directory: it has no {name}{_runs_beside(path)}"


def _runs_beside(path: Path) -> str:
    """Names the run directories near a path that is none: inside it, or beside it."""
    return runs_in(path) or runs_in(path.parent) or "; `relive train` makes one"


def runs_in(folder: Path) -> str:
    """Names the run directories in a folder, as the end of a sentence, if there are any."""
    runs = sorted(found.parent for found in folder.glob(f"*/{METRICS}"))
    if not runs:
        return ""
    more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
    return f"; these are: {', '.join(map(str, runs[:5]))}{more}"
