"""Demonstrations of a run: which, and into the buffer before its first step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from relive.declared import hold_to_types
from relive.demos import Filter, Loaded, load
from relive.errors import ConfigError

if TYPE_CHECKING:
    from relive.agents import ActionScale
    from relive.buffer import ReplayBuffer


@dataclass(frozen=True, slots=True, kw_only=True)
class DemosConfig:
    """Settings of demonstrations.

    Attributes:
        path: A dataset or file of demonstrations, or the name of a dataset that Minari has; pinned
            in the buffer before the first step.
        format: Its format; None finds out.
        fraction: Share of each batch that is drawn from demonstrations.
        successful_only: Only episodes that the file calls a success.
        min_return: Only episodes with at least this return.
        episodes: At most so many, the first that pass.
        last_step: A last step without a next observation: leave it out, or take its own; for some
            formats.
        done_means: What `done` means in formats that do not tell.

    Raises:
        ConfigError: A value outside its range, or a setting that is changed although there are no
            demonstrations.
    """

    path: Path | None = None
    format: Literal["minari", "d4rl", "robomimic", "lerobot"] | None = None
    fraction: float = 0.5
    successful_only: bool = False
    min_return: float | None = None
    episodes: int | None = None
    last_step: Literal["drop", "repeat"] | None = None
    done_means: Literal["terminated", "truncated"] | None = None

    def __post_init__(self) -> None:
        hold_to_types(self, "demos.")
        if self.path is None:
            for setting in dataclasses.fields(self):
                if (given := getattr(self, setting.name)) != setting.default:
                    raise ConfigError(
                        f"demos.{setting.name} {given} does nothing without demos.path"
                    )
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"demos.fraction lies in (0, 1]; given {self.fraction}")
        if self.episodes is not None and self.episodes < 1:
            raise ConfigError(f"demos.episodes is at least 1; given {self.episodes}")
        self.build_filter()  # it checks its settings

    def build_filter(self) -> Filter:
        """Which episodes are taken."""
        return Filter(successful_only=self.successful_only, min_return=self.min_return)


def load_demonstrations(
    config: DemosConfig, buffer: ReplayBuffer, batch_size: int, actions: int | ActionScale
) -> Loaded | None:
    """Writes the demonstrations of a run into its new buffer and pins them; None if it has none.

    Raises:
        ReliveError: As `relive.demos.load`; nothing has been written then.
    """
    if config.path is None:
        return None
    return load(
        buffer,
        config.path,
        where=config.build_filter(),
        limit=config.episodes,
        batch_size=batch_size,
        format=config.format,
        last_step=config.last_step,
        done_means=config.done_means,
        action_bounds=(0, actions - 1) if isinstance(actions, int) else (actions.low, actions.high),
    )
