"""What the loop asks of an agent, and what all of them do alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from relive.declared import plain
from relive.errors import ConfigError, InputError, shown
from relive.fields import Field
from relive.nn.action_scale import ActionScale

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from relive.agents.update import UpdateResult
    from relive.batch import Batch
    from relive.fields import Fields

LATER_KEYS = ("exploration",)  # of a state; those of earlier versions lack them


class Agent(Protocol):
    """Acts, and learns from batches; it knows nothing of the buffer.

    Attributes:
        obs: Field of one observation, or a mapping of fields.
        config: Its settings.
        device: Where it learns.
        updates: Updates made so far.
    """

    obs: Field | Fields
    config: Any
    device: torch.device
    updates: int

    @property
    def actions(self) -> int | ActionScale:
        """How many actions it has, or their box."""
        ...

    @property
    def policy(self) -> nn.Module:
        """The network that acts: what has to be kept to act as the agent does."""
        ...

    @property
    def generators(self) -> list[torch.Generator]:
        """What draws on the device; a CUDA graph has to know them."""
        ...

    def act(self, obs: Any, epsilon: float = 0.0) -> NDArray[Any]:
        """Exploring actions for E environments, at random in each with probability epsilon."""
        ...

    def act_greedy(self, obs: Any) -> NDArray[Any]:
        """The best actions it knows."""
        ...

    def explore(self, obs: Any, epsilon: float | Tensor) -> Tensor:
        """As `act`, from tensors to a tensor, all on the device. Waits for nothing."""
        ...

    def update(self, *batches: Batch) -> UpdateResult:
        """Learns from the rows of all batches, in one step. Waits for nothing."""
        ...

    def due(self, update: int) -> bool:
        """Whether an update, the first is 1, does more than the others, as its settings say."""
        ...

    def learn(self, batches: Sequence[Batch], due: bool) -> UpdateResult:
        """What `update` does but count: all of it on the device, for equal `due` the same work."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All that later actions and updates depend on, in the memory of the agent."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` of an agent with the same settings gave; copies it."""
        ...


class CopiedByState:
    """What makes copies and pickles of an agent agents: a new one is told what the old one knows.

    It is shown as what it is, and how far.

    Networks are views of one vector. A copy made part by part would have both, and no view: what
    learns would not be what acts. What was set from outside, as by `compile_terms`, stays behind.
    """

    def __repr__(self: Any) -> str:
        obs, actions = self.obs, self.actions
        sees = f"obs {', '.join(obs) if isinstance(obs, Mapping) else [*obs.shape]}"
        does = f"{actions} actions" if isinstance(actions, int) else f"action {[*actions.shape]}"
        return f"{type(self).__name__}({sees}, {does}, {self.device}, {self.updates:,} updates)"

    def __reduce__(self: Any) -> tuple[Any, ...]:
        settings = self.obs, self.actions, self.config, self.learning_rate.schedule.steps
        return _made_again, (type(self), *settings, self.device, self.state_dict())


def _made_again(
    kind: Any,
    obs: Any,
    actions: Any,
    config: Any,
    planned_updates: int,
    device: torch.device,
    state: dict[str, Any],
) -> Any:
    agent = kind(obs, actions, config, planned_updates=planned_updates, device=device)
    agent.load_state_dict(state)
    return agent


def tensors_of(
    obs: Any, fields: Field | Mapping[str, Any], device: torch.device, name: str = "obs"
) -> Any:
    """Observations as tensors on `device`, from NumPy arrays or a dict of them, nested or not.

    Args:
        obs: `[E, *shape]` each.
        fields: What one is of; entries of a dict that are not among them are left out.
        device: Where the networks are.
        name: What errors call it.

    Raises:
        InputError: A shape, or a dict, that is not that of the fields.
    """
    if isinstance(fields, Mapping):
        if not isinstance(obs, dict) or not fields.keys() <= obs.keys():
            raise InputError(f"{name}: given {shown(obs)}, expected a dict of {', '.join(fields)}")
        return {
            key: tensors_of(obs[key], field, device, f"{name}.{key}")
            for key, field in fields.items()
        }
    shape = getattr(obs, "shape", None)
    if shape is None or shape[1:] != fields.shape:
        given = shown(obs) if shape is None else f"shape {shape}"
        expected = ", ".join(["E", *map(str, fields.shape)])
        raise InputError(f"{name}: given {given}, expected an array [{expected}], E environments")
    return torch.from_numpy(np.asarray(obs, order="C")).to(device)


def count_envs(obs: Any) -> int:
    """How many environments observations are of, E."""
    while isinstance(obs, dict):
        obs = next(iter(obs.values()))
    return len(obs)


def check_obs_and_config(agent: object, obs: Any, config: Any, kind: type) -> None:
    """Refuses observations that are no fields, and settings that are not of this kind, nor None.

    Raises:
        ConfigError: Of the first that is.
    """
    name = type(agent).__name__
    if not _are_fields(obs):
        raise ConfigError(
            f"{name}: obs is a Field or a mapping of Fields, relive.fields_of(env)['obs'] say; "
            f"given {shown(obs)}"
        )
    if isinstance(obs, Mapping) and obs.keys() == {"obs", "action"}:
        raise ConfigError(
            f"{name}: obs is the field of the observation alone, relive.fields_of(env)['obs']; "
            f"given {shown(dict(obs))}, as fields_of(env) is; if these are the entries of an "
            "observation, rename one of them"
        )
    if config is not None and not isinstance(config, kind):
        raise ConfigError(f"{name}: config is {kind.__name__}(...) or None; given {shown(config)}")


def check_box(agent: object, actions: Any) -> None:
    """Refuses actions that are no box.

    Raises:
        ConfigError: They are none.
    """
    if not isinstance(actions, ActionScale):
        raise ConfigError(
            f"{type(agent).__name__}: actions is an ActionScale, ActionScale.for_env(env) say; "
            f"given {shown(actions)}"
        )


def check_num_actions(agent: object, num_actions: Any) -> None:
    """Refuses actions that cannot be counted, or are none.

    Raises:
        ConfigError: No whole number, or one below 1.
    """
    name, count = type(agent).__name__, plain(num_actions)
    if isinstance(count, bool) or not isinstance(count, int):
        raise ConfigError(
            f"{name}: num_actions is a whole number, relive.envs.num_actions(env) say; "
            f"given {shown(num_actions)}"
        )
    if count < 1:
        raise ConfigError(f"{name} needs at least one action; given {count}")


def check_state(agent: Any, state: Any) -> None:
    """Refuses what is no state of an agent of this class.

    Raises:
        InputError: It is no mapping, or one with other keys.
    """
    name = type(agent).__name__
    if not isinstance(state, Mapping):
        raise InputError(f"state_dict of another {name} gives a dict; given {shown(state)}")
    own = agent.state_dict()
    missing = [key for key in own if key not in state and key not in LATER_KEYS]
    unknown = [str(key) for key in state if key not in own]
    if missing or unknown:
        told = [
            f"{what} {', '.join(keys)}"
            for what, keys in (("missing", missing), ("unknown", unknown))
            if keys
        ]
        raise InputError(
            f"no state of {name}: {'; '.join(told)}; it is what state_dict of another {name} gives"
        )


def _are_fields(obs: Any) -> bool:
    if isinstance(obs, Mapping):
        return bool(obs) and all(map(_are_fields, obs.values()))
    return isinstance(obs, Field)


def check_settings(config: object, table: Iterable[tuple[str, Any, str]]) -> None:
    """Refuses settings of an agent: for each a name, whether it is valid, and what is.

    Raises:
        ConfigError: Of the first that is not.
    """
    for name, valid, expected in table:
        if not valid:
            raise ConfigError(f"agent.{name} is {expected}; given {getattr(config, name)!r}")
