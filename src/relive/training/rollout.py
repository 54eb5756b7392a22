"""The environments of a run, stepped by its agent into its buffer: on the host, or on the device.

E  environments
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from relive.arrays import as_learned, is_finite
from relive.envs.make import episodes_of, resume_episodes
from relive.envs.torch_native import TorchEnv
from relive.errors import InputError, UnsupportedError
from relive.training.episodes import DeviceEpisodes
from relive.training.measure import Episodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from relive.training.parts import Parts
    from relive.training.records import EpisodeEnded, EpisodesEnded


OUTSIDE = "not finite, or infinite as float32"
NEVER_AGAIN = "what is learned from it would never be a number again"


class Rollout(Protocol):
    """What the loop asks of environments.

    Attributes:
        on_device: Whether a step is work of the device alone, which can be captured.
    """

    on_device: bool

    @property
    def episodes(self) -> int:
        """That have ended, as far as was told."""
        ...

    @property
    def last_returns(self) -> Iterable[float]:
        """Of the last of them, as far as was told."""
        ...

    @property
    def may_never_end(self) -> bool:
        """Whether no episode has ended, and nothing says that one will."""
        ...

    def begin(self) -> None:
        """Starts the first episodes, unless `load_state_dict` has brought others."""
        ...

    def explore(self, epsilon: float) -> None:
        """Share of random actions in the steps that follow."""
        ...

    def step(self) -> None:
        """One step of all environments: the agent acts, the buffer is given what came of it."""
        ...

    def ended(self, step: int) -> Iterator[EpisodeEnded]:
        """The episodes that ended with the last step, one by one, where they are told so."""
        ...

    def summary(self, step: int) -> EpisodesEnded | None:
        """The episodes that ended since the last summary, where they are not told one by one."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where the environments are, and their episodes."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave."""
        ...

    def take_back(self) -> bool:
        """Undoes a step that failed on its way, for `state_dict`; whether that can be done."""
        ...

    def close(self) -> None:
        """Gives the environments back."""
        ...


def rollout_of(parts: Parts) -> Rollout:
    """The environments of a run, where they are."""
    return DeviceRollout(parts) if isinstance(parts.env, TorchEnv) else HostRollout(parts)


class HostRollout:
    """Environments of Gymnasium's, in this process.

    Args:
        parts: Of the run.
    """

    on_device = False

    def __init__(self, parts: Parts) -> None:
        self._env: Any = parts.env
        self._seeds = parts.env_seeds
        self._buffer, self._agent = parts.buffer, parts.agent
        self._hindsight = parts.hindsight
        self._episodes = Episodes(self._env.num_envs)
        self._epsilon = 1.0
        self._obs: Any = None  # before the first reset
        self._last: Any = None  # reward and ends of the last step
        self._action: Any = None  # of a step on its way, or of one that is to be made again

    @property
    def episodes(self) -> int:
        """That have ended."""
        return self._episodes.ended

    @property
    def last_returns(self) -> Iterable[float]:
        """Of the last of them."""
        return self._episodes.last_returns

    @property
    def may_never_end(self) -> bool:
        """As `Rollout`."""
        return not self.episodes and self._env.envs[0].spec.max_episode_steps is None

    def begin(self) -> None:
        """As `Rollout`.

        Raises:
            InputError: An observation is not finite.
        """
        if self._obs is None:
            try:
                obs, _ = self._env.reset(seed=self._seeds)
            except Exception as error:
                error.add_note(self._came_out_of("reset"))
                raise
            if (where := not_finite(obs)) is not None:
                raise InputError(
                    f"{self._name} began with {where} that is {OUTSIDE}; {NEVER_AGAIN}"
                )
            self._obs = narrow(obs)

    def explore(self, epsilon: float) -> None:
        """As `Rollout`."""
        self._epsilon = epsilon

    def step(self) -> None:
        """As `Rollout`.

        Raises:
            InputError: A reward or an observation is not finite; nothing of the step has been
                added.
        """
        if self._action is None:
            self._action = self._agent.act(self._obs, self._epsilon)
        action = self._action
        try:
            next_obs, reward, terminated, truncated, info = self._env.step(action)
        except Exception as error:
            error.add_note(self._came_out_of("step"))
            raise
        next_obs, learned = narrow(next_obs), as_learned(reward)  # once for all who ask
        if not (finite := is_finite(learned)).all():
            raise InputError(
                f"{self._name} gave a reward that is {OUTSIDE}: {reward.tolist()}, "
                f"in its environment {int(finite.argmin())}; {NEVER_AGAIN}"
            )
        final_obs = info.get("final_obs")
        seen = [next_obs] if final_obs is None else [next_obs, *final_obs]
        if (where := next(filter(None, map(not_finite, seen)), None)) is not None:
            raise InputError(
                f"{self._name} gave {where} that is {OUTSIDE}, after the actions "
                f"{action.tolist()}; {NEVER_AGAIN}"
            )
        add = self._buffer.add if self._hindsight is None else self._hindsight.add
        add(
            obs=self._obs,
            action=action,
            reward=learned,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            final_obs=final_obs,
        )
        self._obs, self._last = next_obs, (reward, terminated | truncated)
        self._action = None

    def ended(self, step: int) -> Iterator[EpisodeEnded]:
        """As `Rollout`; to be asked after every step."""
        reward, ended = self._last
        return self._episodes.add(reward, ended, step)

    def summary(self, step: int) -> None:
        """None: episodes are told one by one."""

    def state_dict(self) -> dict[str, Any]:
        """As `Rollout`; what was done in each episode, see `relive.envs.replayable`."""
        return {
            "episodes": self._episodes.state_dict(),
            "envs": episodes_of(self._env),
            "obs": self._obs,
            "action": self._action,
            "hindsight": None if self._hindsight is None else self._hindsight.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As `Rollout`.

        Raises:
            UnsupportedError: An environment did not come back to where it was.
        """
        obs, returns = resume_episodes(self._env, state["envs"])
        self._obs = narrow(obs)
        self._episodes.load_state_dict(state["episodes"])
        is_there = _equal(self._obs, narrow(state["obs"]))  # wider in earlier versions
        if not (is_there and np.allclose(returns, self._episodes.returns)):
            raise UnsupportedError(
                f"{self._name} cannot be resumed: the same seed and actions led it "
                "elsewhere, so it draws chance from outside, or remembers earlier episodes"
            )
        self._action = state.get("action")  # earlier versions chose another one
        if self._hindsight is not None:
            self._hindsight.load_state_dict(state["hindsight"])

    def take_back(self) -> bool:
        """As `Rollout`; the step is made again with the actions that were chosen for it."""
        if self._action is None:
            return False  # what failed was no step
        pairs = zip(self._env.envs, self._episodes.standing, strict=True)
        return all(copy.take_back(*standing) for copy, standing in pairs)

    def close(self) -> None:
        """As `Rollout`."""
        self._env.close()

    @property
    def _name(self) -> str:
        return str(self._env.envs[0].spec.id)

    def _came_out_of(self, call: str) -> str:
        """Where an error is from, and what to do, at the end of its traceback."""
        return (
            f"This came out of {call}() of the environment {self._name}. "
            "gymnasium.utils.env_checker.check_env(env.unwrapped) tells whether it keeps to "
            "Gymnasium's rules."
        )


class DeviceRollout:
    """Environments of tensor code, where the agent is; the host never waits in a step.

    All that a step changes is in tensors that are made once, so it can be captured in a CUDA graph.

    Args:
        parts: Of the run.
    """

    on_device = True

    def __init__(self, parts: Parts) -> None:
        assert isinstance(parts.env, TorchEnv)
        self._env, self._seeds = parts.env, parts.env_seeds
        self._buffer, self._agent = parts.buffer, parts.agent
        device, field = self._env.device, self._env.fields["obs"]
        self._ends = DeviceEpisodes(self._env.num_envs, device)
        self._obs = torch.zeros(self._env.num_envs, *field.shape, dtype=field.dtype, device=device)
        self._has_begun = False
        self._told = 1.0  # what is in the word
        self._epsilon = torch.ones((), device=device)

    @property
    def episodes(self) -> int:
        """That have ended, as far as there are summaries."""
        return self._ends.ended

    @property
    def last_returns(self) -> Iterable[float]:
        """Means of the last summaries."""
        return self._ends.last_returns

    @property
    def may_never_end(self) -> bool:
        """False: they have time limits."""
        return False

    def begin(self) -> None:
        """As `Rollout`; waits for the device."""
        if not self._has_begun:
            obs, _ = self._env.reset(seed=self._seeds[0])
            self._obs.copy_(obs)
            self._has_begun = True

    def explore(self, epsilon: float) -> None:
        """As `Rollout`; where the share changes, a word of the device does, and nothing waits."""
        if epsilon != self._told:
            self._epsilon.fill_(epsilon)
            self._told = epsilon

    def step(self) -> None:
        """As `Rollout`; equal calls launch equal work."""
        action = self._agent.explore(self._obs, self._epsilon)
        next_obs, reward, terminated, truncated, info = self._env.step(action)
        self._buffer.add(
            obs=self._obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            final_obs=info["final_obs"],
        )
        self._ends.add(reward, info["_final_obs"])
        self._obs.copy_(next_obs)

    def ended(self, step: int) -> Iterator[EpisodeEnded]:  # noqa: ARG002  # as the other has it
        """Nothing: there may be thousands in a step."""
        return iter(())

    def summary(self, step: int) -> EpisodesEnded | None:
        """As `Rollout`; waits for the device."""
        return self._ends.take(step)

    def state_dict(self) -> dict[str, Any]:
        """As `Rollout`; waits for the device."""
        return {
            "episodes": self._ends.state_dict(),
            "envs": self._env.state_dict(),
            "obs": self._obs.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As `Rollout`; on any device."""
        self._env.load_state_dict(state["envs"])
        self._obs.copy_(state["obs"])
        self._ends.load_state_dict(state["episodes"])
        self._has_begun = True

    def take_back(self) -> bool:
        """False: nobody knows how much of the step was done."""
        return False

    def close(self) -> None:
        """As `Rollout`."""
        self._env.close()


def _equal(obs: Any, other: Any) -> bool:
    """Whether observations are the same numbers; NaN equals NaN."""
    if isinstance(obs, dict):
        return obs.keys() == other.keys() and all(_equal(obs[k], other[k]) for k in obs)
    return np.array_equal(obs, other, equal_nan=np.issubdtype(np.asarray(obs).dtype, np.inexact))


def narrow(obs: Any) -> Any:
    """Observations with their floats as float32, as which they are learned from and kept."""
    if isinstance(obs, dict):
        return {key: narrow(entry) for key, entry in obs.items()}
    return as_learned(np.asarray(obs))


def not_finite(obs: Any, name: str = "") -> str | None:
    """In words, an observation with a number that is no finite float32; None where all are."""
    if isinstance(obs, dict):
        found = (not_finite(entry, f"{name}.{key}") for key, entry in obs.items())
        return next(filter(None, found), None)
    if obs is None or is_finite(np.asarray(obs)).all():
        return None
    return f"an observation{f', in {name[1:]},' if name else ''}"
