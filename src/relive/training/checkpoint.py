"""Saves of a run, to go on from: `checkpoint/` in the run directory.

It is a saved buffer (`ReplayBuffer.load` reads it) whose note holds everything else, so that both
are replaced in one step. A save is written in the background, one at a time; a run that is killed
meanwhile goes on from the one before.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

from relive.buffer import ReplayBuffer
from relive.envs.make import without_module
from relive.errors import ConfigError, InputError
from relive.runs import is_saved
from relive.storage.saving import save_note
from relive.training.runtime import buffer_device

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from relive.training.config import TrainConfig
    from relive.training.loop import Trainer


class NeverSavedError(InputError):
    """A run has nothing to go on from."""


class Checkpoints:
    """Writes the saves of one run.

    Args:
        folder: Where to.
        buffer: Of the run; None leaves its rows out.
    """

    def __init__(self, folder: Path, buffer: ReplayBuffer | None) -> None:
        self._folder, self._buffer = folder, buffer
        self._saving: Future[None] | None = None

    def save(self, trainer: Trainer, metrics_bytes: int) -> None:
        """Saves the run as it is, between two steps, once the save before is done.

        A save that fails (a full disk) is told by a warning; training goes on, and the one before
        stays.
        """
        self.finish()
        note = {"trainer": trainer.state_dict(), "metrics_bytes": metrics_bytes}
        try:
            if self._buffer is None:
                save_note(self._folder, note)
            else:
                self._saving = self._buffer.save(self._folder, note=note, background=True)
        except OSError as error:
            _warn(error)

    def finish(self) -> None:
        """Waits for the save under way."""
        saving, self._saving = self._saving, None
        if saving is not None and (error := saving.exception()) is not None:
            _warn(error)


def _warn(error: BaseException) -> None:
    warnings.warn(f"the run could not be saved: {error}", RuntimeWarning, stacklevel=3)


def load_checkpoint(folder: Path, config: TrainConfig) -> tuple[ReplayBuffer | None, Any]:
    """The buffer and the note of the last save of a run; no buffer if its rows were left out.

    Raises:
        NeverSavedError: The run was killed before its first save.
        CorruptError: A file of it is damaged.
    """
    try:
        note = ReplayBuffer.saved_note(folder)
    except InputError as error:
        why = error if is_saved(folder.parent) else "nothing of it was saved"
        raise NeverSavedError(
            f"the run in {folder.parent} cannot go on: {why}; a run is saved every "
            f"{config.save_interval:,} steps (save_every) and when it is stopped. Delete the "
            "directory and begin anew, or name another"
        ) from None
    if not config.save_buffer:
        return None, note
    buffer = ReplayBuffer.load(
        folder,
        device=buffer_device(config),
        rows_on=config.replay.rows_on,
        on_failure=config.replay.on_failure,
    )
    return buffer, note


CHOSEN = "auto"  # goes on with what was chosen
PLACES = ("device", "replay.device", "replay.rows_on", "replay.on_failure")  # change no number


def going_on(saved: TrainConfig, given: TrainConfig) -> TrainConfig:
    """The settings to go on with: those given, and where they are "auto" those of the run."""
    chosen = {
        field.name: getattr(saved, field.name)
        for field in dataclasses.fields(given)
        if getattr(given, field.name) == CHOSEN
    }
    return dataclasses.replace(given, **chosen)


def require_same(saved: TrainConfig, given: TrainConfig) -> None:
    """Refuse to go on with other settings.

    Other devices are allowed, more steps, and another module in front of the environment.

    Raises:
        ConfigError: Names each setting that differs.
    """
    before, now = dict(_flat(saved.to_json())), dict(_flat(given.to_json()))
    differing = [
        f"{name} was {before.get(name)}, given {now.get(name)}"
        + (f" (with more than {before[name]:,} it becomes longer)" if name == "total_steps" else "")
        for name in {**before, **now}
        if name not in PLACES and now.get(name) not in (before.get(name), CHOSEN)
        if not (name == "total_steps" and now[name] > before[name])
        if not (name == "env" and without_module(now[name]) == without_module(before[name]))
    ]
    if differing:
        raise ConfigError(
            f"a run goes on with the settings it began with, but {'; '.join(differing)}; "
            "leave them out, or begin another run"
        )


def _flat(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    return [
        entry
        for name, value in settings.items()
        for entry in (
            _flat(value, f"{prefix}{name}.")
            if isinstance(value, dict)
            else [(prefix + name, value)]
        )
    ]
