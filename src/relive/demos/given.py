"""Episodes of one's own, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.arguments import REQUIRED, wrong_names
from relive.demos.demonstration import Demonstration, demonstration, each, lengths
from relive.errors import CorruptError, InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NEEDED = ("obs", "action", "reward", "terminated")
USUAL = ("next_obs", "truncated", "success", "seed", "env")


def given_episodes(
    episodes: Iterable[Demonstration | Mapping[str, Any]],
) -> Iterator[Demonstration]:
    """The episodes, one after the other; those that are dicts of arrays as `Demonstration`.

    A dict has `obs action reward next_obs terminated truncated`, each `[T, ...]`, as
    `ReplayBuffer.extend` takes them. Instead of `next_obs`, `obs` may have T + 1, with the last
    one; `truncated` may be left out; `success seed env` may be there, as in `Demonstration`. None
    is as if it were left out.

    Raises:
        InputError: Something else, a name that is missing or unknown, lengths that differ.
    """
    try:
        numbered = enumerate(episodes)
    except TypeError:
        raise InputError(f"episodes are a list of them; given {shown(episodes)}") from None
    for number, given in numbered:
        if isinstance(given, Demonstration):
            yield given
            continue
        name = f"episode {number}"
        if not isinstance(given, Mapping):
            raise InputError(f"{name} is a dict of arrays or a Demonstration; given {shown(given)}")
        try:
            found = _from_arrays(name, given)
        except (CorruptError, ValueError, TypeError, RuntimeError) as error:  # of NumPy and torch
            raise InputError(f"{name}: {error}") from None
        yield found


def _from_arrays(name: str, given: Mapping[str, Any]) -> Demonstration:
    given = {field: values for field, values in given.items() if values is not None}
    strange = {str(field) for field in given} - {*NEEDED, *USUAL}
    needed = {field: given.get(field, REQUIRED) for field in NEEDED}
    if wrong := wrong_names("an episode's", [], strange, *USUAL, **needed):
        raise InputError(wrong)
    about = {field: given[field] for field in ("success", "seed", "env") if field in given}
    if np.ndim(success := about.get("success", False)):
        raise InputError(f"success is that of the whole episode; given {shown(success)}")
    steps = {field: each(given[field], np.asarray) for field in given if field not in about}
    steps.setdefault("truncated", np.zeros_like(steps["terminated"]))
    count = len(steps["reward"])
    if "next_obs" not in steps and lengths(steps["obs"]) != {count + 1}:
        raise InputError(f"give next_obs, or {count + 1} obs: one after the last of {count} steps")
    return demonstration(name, **steps, **about)
