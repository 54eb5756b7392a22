"""What the settings of samplers may be, and how they become words of a state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive.declared import is_whole
from relive.errors import ConfigError, shown
from relive.ops import words as w
from relive.schedules import Linear, Schedule, as_linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relive.ops.state import State

NORMALIZERS = {None: w.NO_NORMALIZER, "batch": w.BATCH_NORMALIZER, "buffer": w.BUFFER_NORMALIZER}
NEW_PRIORITIES = {"max_seen": w.MAX_SEEN, "max_current": w.MAX_CURRENT}
BAD_PRIORITIES = {"keep": w.KEEP_BAD, "max": w.MAX_BAD, "raise": w.RAISE_BAD}


def write_beta(state: State, beta: Schedule) -> None:
    """Write the exponent of the importance weights into the words of a state."""
    write_schedule(state, w.BETA_START, as_linear("beta", beta))


def write_schedule(state: State, start: int, schedule: Linear) -> None:
    """Write a schedule into three words."""
    state.floats[start] = schedule.start
    state.floats[start + 1] = schedule.end
    state.floats[start + 2] = schedule.steps


def write_uniform_share(state: State, share: float) -> None:
    """Write a probability as what 63 random bits are compared with."""
    state.words[w.UNIFORM_SHARE] = min(int(share * 2.0**63), 2**63 - 1)


def check_choice(name: str, value: object, known: Mapping[Any, int]) -> None:
    """Raise ConfigError unless a setting is one of those that are known."""
    if not isinstance(value, str | None) or value not in known:
        raise ConfigError(f"{name} is one of {', '.join(map(repr, known))}; given {shown(value)}")


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise ConfigError unless a setting is a number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name} lies in [{low:g}, {high:g}]; given {shown(value)}")


def check_schedule(name: str, schedule: Schedule, low: float, high: float) -> Linear:
    """A schedule that stays in [low, high].

    Raises:
        ConfigError: it does not.
    """
    linear = as_linear(name, schedule)
    check_range(name, linear.start, low, high)
    check_range(name, linear.end, low, high)
    return linear


def check_flag(name: str, value: object) -> None:
    """Raise ConfigError unless a setting is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is True or False; given {shown(value)}")


def check_whole(name: str, value: object) -> None:
    """Raise ConfigError unless a setting is a whole number of at least 1."""
    if not is_whole(value, 1, 2**62):
        raise ConfigError(f"{name} is a whole number >= 1; given {shown(value)}")
