"""Environments whose state can be saved without their help."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

if TYPE_CHECKING:
    from gymnasium import Env


class Replayable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that can be brought back to where it is by playing its episode again.

    Every reset is given a seed from a stream of the wrapper's own, so an episode follows from that
    seed and its actions: they are all that `episode` has to keep, and nothing of the environment is
    pickled. It must have no other memory from one episode to the next and no other source of
    chance; whoever resumes compares observation and rewards.

    A long episode keeps all its actions (8 bytes a step where they are numbers), and takes as long
    to resume as it took to play.

    Args:
        env: Is reset and stepped as before.
    """

    def __init__(self, env: Env[Any, Any]) -> None:
        super().__init__(env)
        self._stream = np.random.default_rng()  # until a reset is given a seed
        self._seed: int | None = None
        self._actions = np.empty(0)
        self._length = 0
        self._begun = 0  # episodes, the one that was resumed included
        self._resumed: tuple[Any, dict[str, Any]] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode, with the next seed of the stream.

        Args:
            seed: Begins another stream.
            options: Are passed on; an episode that needs them cannot be resumed.
        """
        if self._resumed is not None:
            arrived, self._resumed = self._resumed, None
            return arrived
        self._begun += 1
        if seed is not None:
            self._stream = np.random.default_rng(seed)
        self._seed, self._length = int(self._stream.integers(2**31)), 0
        return self.env.reset(seed=self._seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of the environment; the action is remembered.

        What the environment tells besides is left out: a vector of environments would copy it,
        number by number, and nobody reads it.
        """
        if self._length == len(self._actions):
            like = np.asarray(action)
            longer = np.empty((max(64, 2 * self._length), *like.shape), like.dtype)
            if self._length:
                longer[: self._length] = self._actions
            self._actions = longer
        self._actions[self._length] = action
        obs, reward, terminated, truncated, _ = self.env.step(action)
        self._length += 1
        if terminated or truncated:  # kept beyond the next reset, which may write into it
            obs = copy.deepcopy(obs)
        return obs, reward, terminated, truncated, {}

    def episode(self) -> dict[str, Any]:
        """The stream of seeds, and the seed and the actions of the episode so far."""
        return {
            "stream": self._stream.bit_generator.state,
            "seed": self._seed,
            "actions": self._actions[: self._length].copy(),
        }

    def take_back(self, begun: int, length: int) -> bool:
        """Forgets a step, if there was one; whether only that has to be done.

        The environment itself is left where it is: it is resumed from here, not gone on with.

        Args:
            begun: Episodes begun before the step, the one that was resumed included.
            length: Steps of the last of them before it.
        """
        if self._begun != begun or self._length not in (length, length + 1):
            return False  # another episode has begun
        self._length = length
        return True

    def resume(self, episode: dict[str, Any]) -> float:
        """Plays an episode that `episode` told; the next `reset` tells where that led.

        Returns:
            The sum of its rewards.
        """
        self._stream.bit_generator.state = episode["stream"]
        self._seed, self._length, self._begun = episode["seed"], 0, 1
        obs, info = self.env.reset(seed=self._seed)
        total = 0.0
        for action in episode["actions"]:
            obs, reward, _, _, info = self.step(action)
            total += float(reward)
        self._resumed = obs, info
        return total
