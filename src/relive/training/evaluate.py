"""Greedy episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from relive.envs.make import make_env

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


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
) -> tuple[float, ...]:
    """Plays one episode from each seed, without exploration.

    Args:
        policy: Is asked for the actions.
        env_id: Of a Gymnasium environment.
        seeds: The start state of an episode, and all chance in it, follow from its seed.
        stop: Asked before every step; once it says True, the episode it is in and later ones are
            left out.

    Returns:
        The undiscounted return of each episode.
    """
    env = make_env(env_id)
    returns = []
    try:
        for seed in seeds:
            if (played := _play(policy, env, seed, stop)) is None:
                break
            returns.append(played)
    finally:
        env.close()
    return tuple(returns)


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
    return np.asarray(obs)[None]
