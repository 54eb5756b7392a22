"""Listeners of a run."""

from __future__ import annotations

import json
from os import SEEK_END
from pathlib import Path
from typing import Protocol, runtime_checkable

from relive.errors import InputError, MissingExtraError
from relive.training.records import (
    EpisodeEnded,
    EpisodesEnded,
    Evaluated,
    Record,
    TrainingProgress,
    as_json,
)


class Sink(Protocol):
    """Something that is told what happens."""

    def record(self, record: Record) -> None:
        """Takes one record; called in the order in which things happen."""
        ...

    def close(self) -> None:
        """Called once, after the last record, also when the run broke off."""
        ...


@runtime_checkable
class FollowsSteps(Protocol):
    """A sink that is also told how far a run is of which nothing else is to be told."""

    def steps_made(self, step: int) -> None:
        """Called once a minute while there is no record of progress."""
        ...


class JsonLines:
    """Every record as one line of JSON.

    Lines reach the disk as progress is made, so a killed run keeps all but its last moments.

    Args:
        path: Of the file; one that is there is written over.
        keep: Bytes of it that stay, for a run that goes on.

    Raises:
        InputError: The file is shorter than that.
    """

    def __init__(self, path: Path | str, keep: int = 0) -> None:
        path = Path(path)
        if keep:
            with path.open("rb+") as file:
                if file.seek(0, SEEK_END) < keep:
                    raise InputError(f"{path} has lost records that it had when the run was saved")
                file.truncate(keep)
        self._path = path
        self._file = path.open("a" if keep else "w", encoding="utf-8")

    def record(self, record: Record) -> None:
        """Appends a line."""
        self._file.write(json.dumps(as_json(record)) + "\n")
        if not isinstance(record, EpisodeEnded):
            self._file.flush()

    def size(self) -> int:
        """Bytes so far; all have been handed to the system."""
        self._file.flush()
        return self._path.stat().st_size

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class TensorBoard:
    """Progress, episodes and evaluations as TensorBoard scalars over environment steps.

    Args:
        folder: Where event files go.
        resumed_at: Points of this step and later, that a run has taken back, are hidden.

    Raises:
        MissingExtraError: TensorBoard is not installed.
    """

    def __init__(self, folder: Path | str, resumed_at: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboard", extra="tensorboard") from None
        self._writer = SummaryWriter(str(folder), purge_step=resumed_at)

    def record(self, record: Record) -> None:
        """Adds what the record says as points of curves."""
        for name, value in _scalars(record).items():
            self._writer.add_scalar(name, value, record.step)

    def close(self) -> None:
        """Writes what is waiting and closes the file."""
        self._writer.close()


def _scalars(record: Record) -> dict[str, float]:
    """Curve name to value, for the records that are points of curves."""
    match record:
        case EpisodeEnded():
            return {"episode/return": record.episode_return, "episode/length": record.length}
        case EpisodesEnded():
            return {"episode/return": record.mean_return, "episode/length": record.mean_length}
        case Evaluated():
            return {"evaluation/mean": record.mean, "evaluation/std": record.std}
        case TrainingProgress():
            fields = as_json(record)
            return {
                f"training/{name}": value
                for name, value in fields.items()
                if name not in {"record", "step"} and value is not None
            }
    return {}
