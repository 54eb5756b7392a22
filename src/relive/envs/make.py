"""Gymnasium environments by id."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.closest import likeness
from relive.envs.torch_native import TorchEnv, make_torch_env
from relive.envs.torch_native.make import torch_id
from relive.envs.torch_native.single import SingleTorchEnv
from relive.errors import ConfigError, MissingExtraError, UnsupportedError, shown
from relive.fields import fields_of
from relive.nn.action_scale import ActionScale

if TYPE_CHECKING:
    import torch
    from gymnasium import Env
    from gymnasium.vector import SyncVectorEnv
    from numpy.typing import NDArray

ALIKE = 0.7  # ids end alike, so what may be meant is more alike than other words
PLUGINS = {"MinAtar/": ("minatar.gym", "minatar"), "ALE/": ("ale_py", "ale-py")}
"""Environments that Gymnasium hears of by `register_envs` of a module, in a package."""


PICTURES = "rgb_array"  # Gymnasium's word for rendering without a window


def make_env(env_id: str, *, pictures: bool = False) -> Env[Any, Any] | SingleTorchEnv:
    """One environment, for evaluation and for looking at its spaces.

    Those of MinAtar and ALE are found without an import. Of `torch/CartPole-v1`, tensor code, it is
    Gymnasium's CartPole-v1, and where that is not installed one copy of the tensor code.

    Args:
        env_id: As for `gymnasium.make`, or the name of tensor code behind `torch/`.
        pictures: Let its `render` give pictures, RGB `[H, W, 3]`.

    Raises:
        ConfigError: No id, no such environment, or a package it needs is missing.
        UnsupportedError: It gives no pictures.
        MissingExtraError: Gymnasium is not installed.
    """
    _require_id(env_id)
    if (name := torch_id(env_id)) is not None:
        env_id = name
        if not pictures and importlib.util.find_spec("gymnasium") is None:
            return SingleTorchEnv(make_torch_env(name))
    if pictures:
        _require_pictures(env_id)
    gymnasium = _gymnasium()
    module, colon, _ = env_id.partition(":")  # "module:id" imports the module first
    is_name = all(name.isidentifier() for name in module.split("."))
    if colon and (not is_name or module.endswith(".py")):
        raise ConfigError(f"there is no environment {env_id!r}; {_no_module(env_id)}")
    if colon:
        _import(module, env_id)
    _register_plugin(env_id)
    how = {"render_mode": PICTURES} if pictures else {}
    try:
        env: Env[Any, Any] = gymnasium.make(env_id, **how)
    except (gymnasium.error.Error, ImportError) as error:
        raise ConfigError(_what_is_wrong(env_id, error)) from None
    return env


def make_vector_env(env_id: str, num_envs: int = 1) -> SyncVectorEnv:
    """`num_envs` copies of an environment, stepped one after the other in this process.

    A copy whose episode ends is reset in the same step: the observation returned is the first one
    of the new episode, and `info["final_obs"]` has the last one of the old. No step is spent on a
    reset, so every step is a transition. Each copy is `Replayable`, so that a run can be resumed.

    Raises:
        ConfigError: There is no such environment, or a package it needs is missing.
        MissingExtraError: Gymnasium is not installed.
    """
    made: Any = make_env
    made(env_id).close()  # errors name the id, not the place inside the vector environment
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from relive.envs.replayable import Replayable

    return SyncVectorEnv(
        [lambda: Replayable(made(env_id))] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP
    )


def make_training_env(
    env_id: str, num_envs: int, device: torch.device | str
) -> SyncVectorEnv | TorchEnv:
    """`num_envs` copies to learn in: tensor code on `device` if its name is behind `torch/`.

    Raises:
        ConfigError: There is no such environment, or a package it needs is missing.
        MissingExtraError: It is Gymnasium's, which is not installed.
    """
    _require_id(env_id)
    name = torch_id(env_id)
    if name is None:
        return make_vector_env(env_id, num_envs)
    return make_torch_env(name, num_envs, device=device)


def _require_id(env_id: object) -> None:
    if not isinstance(env_id, str):
        raise ConfigError(
            f"env is the id of an environment; given {shown(env_id)}: register it with "
            "gymnasium.register, in a module of yours, and name it module:Id-v0"
        )


def picture_of(env: Any) -> NDArray[Any]:
    """What an environment that was made with `pictures` shows now.

    Raises:
        ConfigError: A package that it paints with is missing.
    """
    try:
        return np.asarray(env.render())
    except _gymnasium().error.DependencyNotInstalled as error:
        raise ConfigError(f"there are no pictures: {error}") from None


def fields_in(env: Any) -> dict[str, Any]:
    """What `fields_of(env)` says; of tensor code without Gymnasium too."""
    return env.fields if _is_native(env) else fields_of(env)


def episodes_of(env: SyncVectorEnv) -> list[dict[str, Any]]:
    """What the episodes that the copies are in follow from; see `relive.envs.replayable`."""
    copies: Any = env.envs
    return [copy.episode() for copy in copies]


def resume_episodes(env: SyncVectorEnv, episodes: list[dict[str, Any]]) -> tuple[Any, list[float]]:
    """Brings a new vector environment to where `episodes_of` was asked.

    Returns:
        Its observation there, and the rewards of each episode on the way, summed up.
    """
    copies: Any = env.envs
    pairs = zip(copies, episodes, strict=True)
    returns = [copy.resume(episode) for copy, episode in pairs]
    obs, _ = env.reset()
    return obs, returns


def num_actions(env: Any) -> int:
    """How many actions an environment, or one copy of a vector environment, has.

    Raises:
        ConfigError: Its actions are not 0 ... n - 1.
    """
    if _is_native(env):
        if env.task.num_actions is None:
            raise ConfigError(f"the actions of {env.task.env_id} are numbers, not numbered")
        count: int = env.task.num_actions
        return count
    from gymnasium.spaces import Discrete

    space = getattr(env, "single_action_space", None) or env.action_space
    if not isinstance(space, Discrete) or space.start != 0:
        raise ConfigError(f"the action space is {space}; expected Discrete(n), actions from 0 on")
    return int(space.n)


def action_scale(env: Any) -> ActionScale:
    """The box of `ActionScale.for_env(env)`; of tensor code without Gymnasium too.

    Raises:
        ConfigError: Its actions are no box of floats.
    """
    if _is_native(env):
        if env.task.num_actions is not None:
            raise ConfigError(f"the actions of {env.task.env_id} are numbered")
        return ActionScale([-env.task.action_bound], [env.task.action_bound])
    return ActionScale.for_env(env)


def _is_native(env: Any) -> bool:
    return isinstance(env, TorchEnv | SingleTorchEnv)


def _require_pictures(env_id: str) -> None:
    env: Any = make_env(env_id)
    modes = env.metadata.get("render_modes") or ["none"]
    env.close()
    if PICTURES not in modes:
        raise UnsupportedError(
            f"{env_id} gives no pictures: its render modes are {', '.join(map(str, modes))}, "
            f"expected {PICTURES} among them"
        )


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise MissingExtraError("gymnasium", extra="gym") from None
    return gymnasium


def _register_plugin(env_id: str) -> None:
    """Makes the environments of a package known, once, if `env_id` is one of them."""
    from gymnasium import registry

    for prefix, (module, package) in PLUGINS.items():
        if env_id.startswith(prefix) and not any(name.startswith(prefix) for name in registry):
            try:
                plugin: Any = importlib.import_module(module)
            except ImportError:
                raise ConfigError(f"{env_id} needs a package: pip install {package}") from None
            if hasattr(plugin, "register_envs"):  # others register when they are imported
                plugin.register_envs()


def _import(module: str, env_id: str) -> None:
    """Runs the module that registers an environment.

    Raises:
        ConfigError: It is not found, or stops with an error; says which.
    """
    try:
        importlib.import_module(module)
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        first = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == first:
            why += f"; run it in the folder of {first}.py, or set PYTHONPATH to that folder"
        raise ConfigError(f"{env_id} cannot be made: importing {module} ends with {why}") from error


def _no_module(env_id: str) -> str:
    """What is before the colon, and perhaps a file where its module is meant."""
    module, _, name = env_id.partition(":")
    parts = module.removesuffix(".py").replace("\\", "/").split("/")
    meant, last = ".".join(parts), parts[-1]
    if all(part.isidentifier() for part in meant.split(".")):
        return f"{module!r} is no module; did you mean {meant}:{name}?"
    if len(parts) > 1 and last.isidentifier():
        return (
            f"{module!r} is a path, and a module is named: run it in the folder of {last}.py, or "
            f"set PYTHONPATH to that folder, and write {last}:{name}"
        )
    return f"{module!r} is no module"


def _what_is_wrong(env_id: str, error: Exception) -> str:
    """One line on why `env_id` could not be made."""
    from gymnasium import registry

    module, colon, name = env_id.partition(":")
    if (name or env_id) in registry:
        return f"{env_id} cannot be made: {' '.join(str(error).split())}"
    ours = _registered_by(module) if colon else []
    wanted = name or env_id
    newest_first = sorted(ours or registry, key=_version, reverse=True)
    alike = sorted(newest_first, key=lambda it: likeness(wanted, it), reverse=True)
    close = [it for it in alike[:3] if likeness(wanted, it) >= ALIKE]
    if ours:
        close = [f"{module}:{other}" for other in close]
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    elif ours:
        hint = f"{module} registers {', '.join(sorted(ours))}"
    else:
        hint = "gymnasium.pprint_registry() lists all."
    if not colon:
        hint += f" An environment of your own needs its module in front: --env module:{env_id}"
    return f"there is no environment {env_id!r}; {hint}"


def _version(env_id: str) -> int:
    """The number behind `-v`; -1 if there is none."""
    version = env_id.rpartition("-v")[2]
    return int(version) if version.isdecimal() else -1


def without_module(env_id: str) -> str:
    """What an environment is registered as: its id without `module:` in front.

    >>> without_module("robots:Arm-v0"), without_module("Arm-v0")
    ('Arm-v0', 'Arm-v0')
    """
    return env_id.rpartition(":")[2]


def _registered_by(module: str) -> list[str]:
    """Ids of the environments that are made by a module, or by one below it."""
    from gymnasium import registry

    made_by = {name: spec.entry_point for name, spec in registry.items()}
    places = {
        name: made.partition(":")[0] if isinstance(made, str) else getattr(made, "__module__", "")
        for name, made in made_by.items()
    }
    return [name for name, place in places.items() if f"{place}.".startswith(f"{module}.")]
