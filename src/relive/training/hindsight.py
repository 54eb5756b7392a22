"""Hindsight of a run: settings, and what writes its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from relive.declared import hold_to_types
from relive.envs import TorchEnv
from relive.errors import ConfigError
from relive.hindsight import Hindsight

if TYPE_CHECKING:
    from gymnasium.vector import SyncVectorEnv

    from relive.buffer import ReplayBuffer


@dataclass(frozen=True, slots=True, kw_only=True)
class HindsightConfig:
    """Settings of hindsight, for environments with goals.

    Attributes:
        goals: Each step is written so many times more, with goals that its episode reached; 0 for
            none.
        strategy: Where these are from: a later step, the last one, any.

    Raises:
        ConfigError: A value outside its range, or a strategy without goals.
    """

    goals: int = 0
    strategy: Literal["future", "final", "episode"] = "future"

    def __post_init__(self) -> None:
        hold_to_types(self, "hindsight.")
        if self.goals < 0:
            raise ConfigError(f"hindsight.goals is at least 0; given {self.goals}")
        if not self.goals and self.strategy != "future":
            raise ConfigError(
                f"hindsight.strategy {self.strategy} does nothing without hindsight.goals"
            )
        if self.strategy == "final" and self.goals > 1:
            raise ConfigError(
                f"hindsight.goals is 1 with hindsight.strategy final: an episode has one last "
                f"step; given {self.goals}"
            )


def build_hindsight(
    config: HindsightConfig, buffer: ReplayBuffer, env: SyncVectorEnv | TorchEnv, seed: int
) -> Hindsight | None:
    """What writes the steps of a run to its buffer, and their hindsight; None without goals.

    Raises:
        ConfigError: The environment has no goals.
    """
    if not config.goals:
        return None
    if isinstance(env, TorchEnv):
        raise ConfigError(
            "hindsight is for environments with goals, and torch/ has none; leave hindsight.goals "
            "out"
        )
    return Hindsight.for_env(buffer, env, goals=config.goals, strategy=config.strategy, seed=seed)
