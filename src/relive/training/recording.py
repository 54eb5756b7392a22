"""Episodes as they are played, step for step."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.demos import Demonstration
from relive.training.evaluate import with_axis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from relive.training.evaluate import Policy

SUCCESS = ("is_success", "success")  # what environments call it in infos


def recording_seeds(episodes: int, seed: int) -> list[int]:
    """Seeds for `episodes` episodes; the first ones stay the same when more are asked for."""
    return [int(word) for word in np.random.SeedSequence(seed).generate_state(episodes)]


def greedy(policy: Policy) -> Callable[[Any, Any], Any]:
    """A policy as a function of environment and observation."""
    return lambda _, obs: policy.act_greedy(with_axis(obs))[0]


def record_episodes(
    env: Any, act: Callable[[Any, Any], Any], seeds: Sequence[int]
) -> Iterator[Demonstration]:
    """Plays one episode from each seed.

    Args:
        env: A Gymnasium environment whose episodes end.
        act: The action for an environment and an observation of it.
        seeds: The start state of an episode, and all chance in it, follow from its seed.
    """
    for number, seed in enumerate(seeds):
        obs, _ = env.reset(seed=seed)
        # environments may give the same array again and again
        seen, actions, rewards, success = [copy.deepcopy(obs)], [], [], None
        flags: list[tuple[bool, bool]] = []
        while not flags or not any(flags[-1]):
            action = act(env, obs)
            obs, reward, terminated, truncated, info = env.step(action)
            seen.append(copy.deepcopy(obs))
            actions.append(np.array(action))
            rewards.append(float(reward))
            flags.append((bool(terminated), bool(truncated)))
            told = next((info[name] for name in SUCCESS if name in info), None)
            success = success if told is None else bool(told) or bool(success)
        yield Demonstration(
            name=f"episode_{number}",
            obs=_stacked(seen[:-1]),
            action=np.stack(actions),
            reward=np.array(rewards),
            next_obs=_stacked(seen[1:]),
            terminated=np.array([ended for ended, _ in flags]),
            truncated=np.array([cut_off for _, cut_off in flags]),
            episode_return=float(np.sum(rewards)),
            success=success,
            seed=seed,
        )


def _stacked(observations: list[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {key: _stacked([obs[key] for obs in observations]) for key in observations[0]}
    return np.stack(observations)
