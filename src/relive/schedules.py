"""Values that change with progress: `schedule(t) -> value`.

A schedule that a buffer uses on a device is kept there as four numbers, so its value moves inside a
captured graph too; that is why the kinds are few.
"""

from __future__ import annotations

from dataclasses import dataclass

from relive.declared import is_whole, plain, take_plain
from relive.errors import ConfigError, shown


@dataclass(frozen=True, slots=True)
class Linear:
    """From `start` to `end` in `steps` steps, constant before and after.

    value(t) = start + (end - start) * min(1, max(0, t) / steps)

    Examples:
        >>> beta = Linear(0.4, 1.0, steps=100)
        >>> [round(beta(t), 3) for t in (0, 50, 100, 250)]
        [0.4, 0.7, 1.0, 1.0]
    """

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        take_plain(self)
        for end in (self.start, self.end):
            if isinstance(end, bool) or not isinstance(end, int | float) or not abs(end) < 1e300:
                raise ConfigError(f"Linear needs finite ends; given {shown(end)}")
        steps = self.steps
        if not is_whole(steps, 1, 2**62):
            raise ConfigError(f"Linear needs steps >= 1, a whole number; given {shown(self.steps)}")

    def __call__(self, t: float) -> float:
        """The value after `t` steps."""
        return self.start + (self.end - self.start) * min(1.0, max(0.0, t) / self.steps)


Schedule = float | Linear


def as_linear(name: str, schedule: Schedule) -> Linear:
    """A number as the schedule that stays there.

    Raises:
        ConfigError: `schedule` is neither; the message calls it `name`.
    """
    if isinstance(schedule, Linear):
        return schedule
    schedule = plain(schedule)
    if isinstance(schedule, bool) or not isinstance(schedule, int | float):
        raise ConfigError(
            f"{name} is a number or a Linear(start, end, steps); given {shown(schedule)}"
        )
    return Linear(schedule, schedule, 1)
