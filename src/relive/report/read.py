"""A run directory as data.

A run directory holds `config.json`, the settings, and `metrics.jsonl`, one record a line in the
order in which things happened. A run that was stopped has fewer of them: every part may be missing
here, and a last line that was cut off while it was being written is skipped and counted. A run that
was resumed has a `run_resumed` where it went on, and tells of every step once.
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
        seconds: How long it took so far; 0 if not known.
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

    def returns(self) -> tuple[Series, Series]:
        """Returns of training episodes: of each, or means where only those were told.

        Returns:
            Environment steps and returns, both [T].
        """
        if self.tells_means:
            return self.series("episodes_ended", "mean_return")
        return self.series("episode_ended", "episode_return")

    @property
    def tells_means(self) -> bool:
        """Whether returns are means of the episodes of a log interval."""
        return "episodes_ended" in self.records

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
    seconds = 0.0
    for record in lines.records(text.splitlines()):
        records.setdefault(record["record"], []).append(record)
        seconds = seconds_of(record, seconds)
    started = records.get("run_started", [{}])[0]
    versions = records.get("run_resumed", [started])[-1].get("versions", {})
    return Run(
        path=path,
        config=read_config(path) if (path / CONFIG).is_file() else started.get("config", {}),
        versions=versions,
        records=records,
        seconds=seconds,
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


def seconds_of(record: Record, before: float) -> float:
    """How long a run took up to a record, which may not say."""
    seconds = record.get("seconds")
    return seconds if isinstance(seconds, int | float) and seconds >= 0 else before


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


def runs_below(folder: Path) -> list[Path]:
    """The run directories directly below a folder, by name."""
    return sorted(found.parent for found in folder.glob(f"*/{METRICS}"))


def runs_in(folder: Path) -> str:
    """Names the run directories in a folder, as the end of a sentence, if there are any."""
    runs = runs_below(folder)
    if not runs:
        return ""
    more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
    return f"; these are: {', '.join(map(str, runs[:5]))}{more}"
