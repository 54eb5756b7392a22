"""Where the last observation of an episode is, for each way a vector environment resets.

mode         next_obs at an episode's end      the step after it
disabled     the final observation             the caller resets
next_step    the final observation             a fake one (action ignored), dropped when written
same_step    the first of the next episode;    a real one
             the final one is in final_obs
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relive.arrays import as_array
from relive.errors import ConfigError, InputError, shown
from relive.ops import words as w

MODES = {
    "disabled": w.AUTORESET_DISABLED,
    "next_step": w.AUTORESET_NEXT_STEP,
    "same_step": w.AUTORESET_SAME_STEP,
}


def mode_of(env: Any) -> str:
    """The autoreset mode of a Gymnasium environment, of a single one if a wrapper gives it any."""
    if getattr(env, "num_envs", None) is None:
        return "next_step" if _wrapped_in(env, "Autoreset") else "disabled"
    mode = env.metadata.get("autoreset_mode") if env.metadata else None
    if mode is None:
        raise ConfigError(
            "this vector environment does not say how it resets (metadata['autoreset_mode']); "
            f"pass autoreset= {' | '.join(MODES)}"
        )
    name = str(getattr(mode, "name", mode)).lower()
    if name not in MODES:
        raise ConfigError(f"autoreset mode {shown(mode)} is none of {', '.join(MODES)}")
    return name


def require_mode(env: Any, given: Any) -> None:
    """Raise ConfigError where a vector environment says that it resets otherwise than given."""
    if env.metadata and env.metadata.get("autoreset_mode") and (mode := mode_of(env)) != given:
        raise ConfigError(
            f"this environment resets by {mode!r}, as it says of itself; given autoreset="
            f"{shown(given)}: leave it out. Where the environment is wrong: "
            "ReplayBuffer(capacity, fields_of(env), num_envs=..., autoreset=...)"
        )


def _wrapped_in(env: Any, wrapper: str) -> bool:
    """Whether a wrapper of Gymnasium's, which need not be imported, is around an environment."""
    while env is not None:
        if type(env).__name__ == wrapper and type(env).__module__.startswith("gymnasium."):
            return True
        env = getattr(env, "env", None)
    return False


def final_of(tree: Any, final_obs: Any, lanes: list[int]) -> Any:
    """The final observations of some lanes: [len(lanes), *shape], or a dict of such.

    Args:
        tree: nesting of the observation, as `RowLayout.tree["obs"]`.
        final_obs: [E, *shape] or a dict of such, of which only the rows `lanes` are looked at; or
            Gymnasium's object array [E] of observations, None where no episode has ended.
        lanes: those whose episode has ended.

    Raises:
        InputError: final observations are missing, or of another form.
    """
    if final_obs is None:
        raise InputError(
            "final_obs is missing: with autoreset='same_step' the last observations of the "
            f"episodes that ended in lanes {lanes} are in infos['final_obs']; pass "
            "final_obs=infos.get('final_obs')"
        )
    if isinstance(final_obs, np.ndarray) and final_obs.dtype == object and final_obs.ndim:
        final_obs = [final_obs[lane] if lane < len(final_obs) else None for lane in lanes]
        if missing := [lane for lane, obs in zip(lanes, final_obs, strict=True) if obs is None]:
            raise InputError(f"final_obs is None for lanes {missing}, whose episodes have ended")
        return _stack(tree, final_obs)
    return _pick(tree, final_obs, lanes)


def _stack(tree: Any, observations: list[Any]) -> Any:
    if isinstance(tree, str):
        try:
            return np.stack([np.asarray(obs) for obs in observations])
        except (ValueError, TypeError, RuntimeError) as error:
            raise InputError(f"final_obs: not arrays of one shape: {error}") from None
    if not all(isinstance(obs, Mapping) and set(obs) == set(tree) for obs in observations):
        raise InputError(f"final_obs: expected mappings with the keys {sorted(tree)}")
    return {key: _stack(branch, [obs[key] for obs in observations]) for key, branch in tree.items()}


def _pick(tree: Any, final_obs: Any, lanes: list[int]) -> Any:
    if isinstance(tree, str):
        try:
            dense = as_array(final_obs)
        except TypeError as error:
            raise InputError(f"final_obs: not an array of real numbers: {error}") from None
        if dense.ndim == 0 or len(dense) <= max(lanes):
            raise InputError(
                f"final_obs: given shape {tuple(dense.shape)}, expected a row for each environment"
            )
        return dense[lanes]
    if not isinstance(final_obs, Mapping) or set(final_obs) != set(tree):
        raise InputError(f"final_obs: expected a mapping with the keys {sorted(tree)}")
    return {key: _pick(branch, final_obs[key], lanes) for key, branch in tree.items()}
