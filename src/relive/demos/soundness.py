"""Values that no agent can learn from, or that are of another scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relive.arrays import is_finite
from relive.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from relive.demos.demonstration import Demonstration

TOLERANCE = 1e-4  # of the width of a box, for floats that were rounded on their way


def require_sound(episode: Demonstration, action_bounds: tuple[Any, Any] | None) -> None:
    """Refuse an episode with values that are not finite as float32, or actions out of bounds.

    What follows the end of an episode counts in no target, so it may be anything.

    Raises:
        InputError: Names the field and the first step.
    """
    ended = np.asarray(episode.terminated)
    for name in ("obs", "action", "reward", "next_obs"):
        exempt = ended if name == "next_obs" else np.zeros_like(ended)
        for label, values in _named(name, getattr(episode, name)):
            _require_finite(label, values, exempt)
    if action_bounds is not None and len(episode):
        _require_inside(np.asarray(episode.action), *action_bounds)


def require_finite_return(episode: Demonstration) -> None:
    """Refuse rewards that are not finite as float32: no number is above or below their sum.

    Raises:
        InputError: Names the first step.
    """
    _require_finite("reward", np.asarray(episode.reward), np.zeros(len(episode), bool))
    if not np.isfinite(episode.episode_return):  # of the last step, and that was left out
        raise InputError(
            f"its return is {episode.episode_return:g}, since the reward of a step that was left "
            "out is not finite; mend the file, or leave such episodes out"
        )


def _named(name: str, values: Any) -> list[tuple[str, NDArray[Any]]]:
    """The arrays of a field, with dotted names."""
    if isinstance(values, dict):
        return [entry for key in values for entry in _named(f"{name}.{key}", values[key])]
    return [(name, np.asarray(values))]


def _require_finite(name: str, values: NDArray[Any], exempt: NDArray[np.bool_]) -> None:
    if values.dtype.kind != "f":  # pictures need no second array of their size
        return
    bad = ~is_finite(values)
    rows = bad.any(tuple(range(1, bad.ndim))) & ~exempt
    if rows.any():
        step = int(rows.argmax())
        first = values[step][bad[step]].flat[0] if values.ndim > 1 else values[step]
        raise InputError(
            f"{name} of step {step} holds {first:g}, which is not finite as float32; mend the "
            "file, or leave such episodes out"
        )


def _require_inside(action: NDArray[Any], low: Any, high: Any) -> None:
    low, high = np.asarray(low), np.asarray(high)
    if action.dtype.kind == "f":
        action = action.astype(np.float64, copy=False)
        width = high.astype(np.float64) - low.astype(np.float64)
        slack = TOLERANCE * np.where(np.isfinite(width), width, 0.0)
        outside = (action < low - slack) | (action > high + slack)
    else:  # whole numbers: one beyond a bound is another action, and a float64 may not hold it
        outside = (action < low) | (action > high)
    rows = outside.reshape(len(action), -1).any(1)
    if rows.any():
        step = int(rows.argmax())
        raise InputError(
            f"action {action[step].tolist()} of step {step} lies outside of [{low.min():g}, "
            f"{high.max():g}], the bounds of the environment; scale the actions of the file to them"
        )
