"""Listeners of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from relive.errors import MissingExtraError
from relive.training.records import EpisodeEnded, Evaluated, Record, TrainingProgress, as_json

if TYPE_CHECKING:
    from pathlib import Path


class Sink(Protocol):
    """Something that is told what happens."""

    def record(self, record: Record) -> None:
        """Takes one record; called in the order in which things happen."""
        ...

    def close(self) -> None:
        """Called once, after the last record, also when the run broke off."""
        ...


class JsonLines:
    """Every record as one line of JSON.

    Lines reach the disk as progress is made, so a killed run keeps all but its last moments.

    Args:
        path: Of the file; one that is there is written over.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def record(self, record: Record) -> None:
        """Appends a line."""
        self._file.write(json.dumps(as_json(record)) + "\n")
        if not isinstance(record, EpisodeEnded):
            self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class TensorBoard:
    """Progress, episodes and evaluations as TensorBoard scalars over environment steps.

    Args:
        folder: Where event files go.

    Raises:
        MissingExtraError: TensorBoard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboard", extra="tensorboard") from None
        self._writer = SummaryWriter(str(folder))

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
