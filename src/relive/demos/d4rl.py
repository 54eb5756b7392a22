"""Flat HDF5 files as D4RL has them: all steps of all episodes, one after the other.

observations, actions, rewards   `[N, ...]`
terminals, timeouts              `[N]`, where there are such
next_observations                as observations, where there are such

An episode ends where one of the flags says so. Without `timeouts` it also ends where an observation
is not the next one of the step before, as in RLPD's code (`MOST_APART`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relive.demos import hdf5
from relive.demos.demonstration import (
    Demonstration,
    Options,
    demonstration,
    flags,
    lengths,
    part,
    reading,
)
from relive.errors import CorruptError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

MOST_APART = 1e-6  # between a next observation and the observation that follows it
SUCCESS = ("success", "is_success", "goal_achieved")  # names in infos


def episodes(path: Path, options: Options) -> Iterator[Demonstration]:
    """The episodes, in order, called after the steps that they are."""
    with hdf5.opened(path) as file:
        steps = {
            "obs": hdf5.tree(file, "observations", keys=options.keys),
            "action": hdf5.array(file, "actions"),
            "reward": hdf5.array(file, "rewards"),
        }
        count = len(steps["reward"])
        if "next_observations" in file:
            steps["next_obs"] = hdf5.tree(file, "next_observations", keys=options.keys)
        for name, there in (("terminated", "terminals"), ("truncated", "timeouts")):
            given = hdf5.array(file, there) if there in file else np.zeros(count, bool)
            steps[name] = flags(given, there)
        has_timeouts = "timeouts" in file
        success = _success(file)
    for what, values in steps.items():
        if lengths(values) != {count}:
            raise CorruptError(f"{count} rewards, but {sorted(lengths(values))} of {what}")
    for start, stop in _runs(_ends(steps, known=has_timeouts)):
        with reading(name := f"steps {start} to {stop - 1}"):
            found = demonstration(
                name,
                **{field: part(values, start, stop) for field, values in steps.items()},
                last_step=options.last_step,
                success=None if success is None else bool(success[start:stop].any()),
            )
        yield found


def _ends(steps: dict[str, Any], *, known: bool) -> NDArray[np.bool_]:
    """Which steps are the last of an episode; `known` if the flags tell."""
    ends = steps["terminated"] | steps["truncated"]
    if not known and "next_obs" not in steps:
        raise InputError(
            "there are neither timeouts nor next_observations, so nothing tells where an episode "
            "was cut off; add a dataset timeouts, true at the last step of such episodes"
        )
    if not known:
        ends[:-1] |= _apart(steps["next_obs"], steps["obs"])
    if len(ends):
        ends[-1] = True
    return np.asarray(ends)


def _apart(next_obs: Any, obs: Any) -> NDArray[np.bool_]:
    """Where an observation is not the next one of the step before: bool [N - 1]."""
    if isinstance(obs, dict):
        parts = [_apart(next_obs[key], obs[key]) for key in obs]
        return np.asarray(np.any(parts, axis=0))
    before, after = (values.astype(np.float64) for values in (next_obs[:-1], obs[1:]))
    close = np.isclose(before, after, rtol=0, atol=MOST_APART, equal_nan=True)
    return np.asarray(~close.reshape(len(close), -1).all(axis=1))


def _runs(ends: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    start = 0
    for last in np.flatnonzero(ends).tolist():
        yield start, last + 1
        start = last + 1


def _success(file: Any) -> NDArray[np.bool_] | None:
    for name in SUCCESS:
        for place in (f"infos/{name}", name):
            if place in file:
                return flags(hdf5.array(file, place), name)
    return None
