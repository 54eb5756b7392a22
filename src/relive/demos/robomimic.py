"""HDF5 files of robomimic: a group of episodes, each with groups of observations.

data/demo_0/actions, rewards, dones   `[T, ...]`; the number of steps in attribute num_samples
data/demo_0/obs/KEY, next_obs/KEY     `[T, *shape]`
data, attribute env_args              JSON, with the env_name

`dones` marks success, or the end of the file's episode, or both, as whoever wrote the file chose.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.demos import hdf5
from relive.demos.demonstration import Demonstration, Options, demonstration, ends_of, reading
from relive.errors import CorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

PREFIX = "demo_"


def episodes(path: Path, options: Options) -> Iterator[Demonstration]:
    """The episodes, in the order of their numbers."""
    with hdf5.opened(path) as file:
        data = hdf5.member(file, "data")
        numbers = [name.removeprefix(PREFIX) for name in data if name.startswith(PREFIX)]
        if wrong := [number for number in numbers if not number.isdecimal()]:
            raise CorruptError(f"{PREFIX}{wrong[0]} has no number")
        names = [f"{PREFIX}{number}" for number in sorted(numbers, key=int)]
        _require_total(data, names)
        env = _env_name(data.attrs.get("env_args"))
        for name in names:
            with reading(name):
                found = _episode(hdf5.member(data, name), name, options, env)
            yield found


def _episode(group: Any, name: str, options: Options, env: str | None) -> Demonstration:
    reward = hdf5.array(group, "rewards")
    done = hdf5.array(group, "dones") if "dones" in group else None
    terminated, truncated = ends_of(done, len(reward), "dones", options.done_means)
    next_obs = None
    if "next_obs" in group:
        next_obs = hdf5.tree(group, "next_obs", keys=options.keys)
    found = demonstration(
        name,
        obs=hdf5.tree(group, "obs", keys=options.keys),
        action=hdf5.array(group, "actions"),
        reward=reward,
        next_obs=next_obs,
        terminated=terminated,
        truncated=truncated,
        last_step=options.last_step,
        success=_success(reward),
        env=env,
    )
    told = group.attrs.get("num_samples")
    if told is not None and told != len(reward):
        raise CorruptError(f"{len(reward)} steps, but num_samples is {told}")
    return found


def _env_name(told: Any) -> str | None:
    """The environment that `env_args` tells of, if it does."""
    try:
        name = json.loads(told)["env_name"]
    except (ValueError, TypeError, LookupError):
        return None
    return name if isinstance(name, str) else None


def _require_total(data: Any, names: list[str]) -> None:
    """An interrupted copy lacks episodes; the file says how many steps there should be."""
    told = data.attrs.get("total")
    if told is None:
        return
    steps = 0
    for name in names:
        with reading(name):
            steps += _steps(hdf5.member(data, name))
    if told != steps:
        raise CorruptError(f"{steps} steps, but total is {told}")


def _steps(group: Any) -> int:
    """What the file says, or the length of what there is."""
    said = group.attrs.get("num_samples")
    return len(hdf5.member(group, "rewards")) if said is None else int(said)


def _success(reward: NDArray[Any]) -> bool | None:
    """Sparse rewards are 1 on success; other rewards do not tell."""
    return bool(reward.any()) if np.isin(reward, (0, 1)).all() else None
