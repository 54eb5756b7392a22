"""Settings that are known to work, by the word on the command line and the environment.

One module a word: `DEFAULT`, for environments that are not named, and `BY_ENV`. Those taken from
others say from where; what ours give is in docs/results.md.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal, get_args

from relive.errors import ConfigError, shown
from relive.references import REFERENCES
from relive.training.presets import c51, ddpg, dqn, rainbow, rlpd, sac, td3

if TYPE_CHECKING:
    from relive.training.config import TrainConfig

__all__ = ["PRESETS", "RECIPES", "REFERENCES", "Recipe", "preset"]

Recipe = Literal["dqn", "c51", "rainbow", "ddpg", "td3", "sac", "rlpd"]
RECIPES: tuple[Recipe, ...] = get_args(Recipe)
"""What can be trained: an agent, or an agent with the settings of a paper."""

_MODULES = {
    "dqn": dqn,
    "c51": c51,
    "rainbow": rainbow,
    "ddpg": ddpg,
    "td3": td3,
    "sac": sac,
    "rlpd": rlpd,
}


def _called(recipe: Recipe, settings: TrainConfig, env: str) -> TrainConfig:
    name = None if settings.algorithm == recipe else recipe
    return dataclasses.replace(settings, env=env, name=name)


PRESETS: dict[tuple[Recipe, str], TrainConfig] = {
    (recipe, env): _called(recipe, settings, env)
    for recipe in RECIPES
    for env, settings in _MODULES[recipe].BY_ENV.items()
}


def preset(recipe: Recipe, env: str) -> TrainConfig:
    """The preset of an environment, or the defaults for one that has none.

    A recipe that is no algorithm is what the run is called. An id without a version stands for the
    newest, as in Gymnasium.

    Raises:
        ConfigError: There is no such recipe.
    """
    if recipe not in RECIPES:
        raise ConfigError(f"a recipe is one of {', '.join(RECIPES)}; given {shown(recipe)}")
    versions = [id_ for word, id_ in PRESETS if word == recipe and id_.rpartition("-v")[0] == env]
    found: TrainConfig = PRESETS.get((recipe, max(versions, default=env)), _MODULES[recipe].DEFAULT)
    return found if found.env == env else _called(recipe, found, env)
