"""Greedy episodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from relive.envs.make import make_env, picture_of
from relive.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Film = Callable[[NDArray[np.uint8], float], None]

PICTURES_A_SECOND = 30.0  # of an environment that does not say


class Policy(Protocol):
    """Something that acts."""

    def act_greedy(self, obs: Any) -> NDArray[Any]:
        """Actions `[E, ...]` for the observations of E environments."""
        ...


def evaluate(
    policy: Policy,
    env_id: str,
    seeds: Sequence[int],
    stop: Callable[[], bool] = lambda: False,
    *,
    film: Film | None = None,
) -> tuple[float, ...]:
    """Plays one episode from each seed, without exploration.

    Args:
        policy: Is asked for the actions.
        env_id: Of a Gymnasium environment.
        seeds: The start state of an episode, and all chance in it, follow from its seed.
        stop: Asked before every step; once it says True, the episode it is in and later ones are
            left out.
        film: Is given a picture of every state, RGB `[H, W, 3]`, and how many there are a second;
            `Video.take` makes a file of them.

    Returns:
        The undiscounted return of each episode.

    Raises:
        ConfigError: There is no such environment, or a package is missing that it paints with.
        InputError: Seeds that are no sequence.
        UnsupportedError: Pictures are asked for, and the environment gives none.
    """
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        few = seeds if isinstance(seeds, int) else 5
        raise InputError(
            f"evaluate plays an episode from each of its seeds, evaluation_seeds({few}) say; "
            f"given {shown(seeds)}"
        )
    made = make_env(env_id, pictures=film is not None)
    env: Any = made if film is None else Filmed(made, film)
    returns = []
    try:
        for seed in seeds:
            if (played := _play(policy, env, seed, stop)) is None:
                break
            returns.append(played)
    finally:
        env.close()
    return tuple(returns)


class Filmed:
    """An environment that shows every state it comes to.

    Args:
        env: One that gives pictures.
        film: Is given them, and how many there are a second.
    """

    def __init__(self, env: Any, film: Film) -> None:
        self._env, self._film = env, film
        self._rate = float(env.metadata.get("render_fps") or PICTURES_A_SECOND)

    def reset(self, *, seed: int) -> Any:
        """As the environment."""
        return self._shown(self._env.reset(seed=seed))

    def step(self, action: Any) -> Any:
        """As the environment."""
        return self._shown(self._env.step(action))

    def close(self) -> None:
        """As the environment."""
        self._env.close()

    def _shown(self, result: Any) -> Any:
        self._film(picture_of(self._env), self._rate)
        return result


def evaluation_seeds(episodes: int, stream: int = 0) -> list[int]:
    """Seeds for `episodes` episodes; the first ones stay the same when more are asked for.

    They have nothing to do with the seed of a run, so runs with different seeds are judged on the
    same start states, and none was trained on them but by chance.

    Args:
        episodes: How many.
        stream: Another number gives other seeds.
    """
    return [10_000_019 * (stream + 1) + episode for episode in range(episodes)]


def _play(policy: Policy, env: Any, seed: int, stop: Callable[[], bool]) -> float | None:
    obs, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        if stop():
            return None
        action = policy.act_greedy(with_axis(obs))[0]
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        ended = terminated or truncated
    return total


def with_axis(obs: Any) -> Any:
    """The observation of one environment as that of E = 1."""
    if isinstance(obs, dict):
        return {name: with_axis(entry) for name, entry in obs.items()}
    return np.asarray(obs, order="C")[None]  # which is none where an image is flipped
