"""An episode under other goals: which, and the rows that its steps become.

T  steps of the episode      k  goals of a step      R = T k  rows      n  steps of a window
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relive.ops.philox.batched import Philox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Judge = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"  # words of Gymnasium's goal environments
STRATEGIES = ("future", "final", "episode")


def goal_steps(strategy: str, count: int, goals: int, seed: int, episode: int) -> NDArray[np.int64]:
    """The steps whose achieved goals are taken: [T, k].

    Args:
        strategy: one of `STRATEGIES`.
        count: T.
        goals: k.
        seed: 64 bits.
        episode: its number, in [0, 2^32); each has random numbers of its own.
    """
    if strategy == "final":
        return np.full((count, goals), count - 1)
    philox = Philox(torch.device("cpu"))
    philox.reseed(seed)
    counter = torch.arange(count * goals)
    words = philox.words(counter, torch.full_like(counter, episode))[0]  # 32 bits
    first = torch.arange(count)[:, None] if strategy == "future" else torch.tensor(0)
    chosen: NDArray[np.int64] = (first + (words.view(count, goals) * (count - first) >> 32)).numpy()
    return chosen


def relabelled(
    columns: Mapping[str, Any],
    taken: NDArray[np.int64],
    gammas: list[float],
    reward: Judge,
    terminated: Judge | None,
) -> dict[str, Any]:
    """The rows of an episode under other goals, with their discount: [R, *shape], by dotted name.

    A window is folded as `ops.write` folds it: in float64, from the last reward to the first.

    Args:
        columns: steps of the episode, [T, *shape] as they are stored, by dotted name.
        taken: [T, k] of `goal_steps`.
        gammas: gamma^0 ... gamma^n.
        reward: rewards [*] of achieved and desired goals [*, *goal].
        terminated: whether the episode ends there, bool [*]; None: where it did.
    """
    n, count = len(gammas) - 1, len(taken)
    achieved = columns[f"next_obs.{ACHIEVED}"]
    goals = achieved[taken.reshape(-1)]
    first = np.repeat(np.arange(count), taken.shape[1])

    steps = first[:, None] + np.arange(n)
    there = steps < count
    pair = achieved[steps[there]], goals[np.nonzero(there)[0]]
    rewards, ends = np.zeros(steps.shape, np.float32), np.zeros(steps.shape, bool)
    rewards[there] = reward(*pair)
    ends[there] = columns["terminated"][steps[there]] if terminated is None else terminated(*pair)
    there &= np.cumsum(ends, 1) - ends == 0  # no step before is terminal
    length = there.sum(1)
    is_terminal = ends[np.arange(len(first)), length - 1]

    last = first + length - 1
    rows = {
        name: column[last if name == "truncated" or name.startswith("next_obs.") else first]
        for name, column in columns.items()
    }
    rows |= {f"{field}.{DESIRED}": goals for field in ("obs", "next_obs")}
    rows["reward"] = _folded(rewards, there, gammas)
    rows["terminated"] = is_terminal
    rows["discount"] = np.where(is_terminal, 0.0, np.take(gammas, length)).astype(np.float32)
    return rows


def _folded(
    rewards: NDArray[np.float32], there: NDArray[np.bool_], gammas: list[float]
) -> NDArray[np.float32]:
    """Returns [R] of windows [R, n], of those steps that are there."""
    if rewards.shape[1] == 1:
        return rewards[:, 0]  # nothing to fold: -0.0 keeps its sign
    total = np.zeros(len(rewards))
    with np.errstate(all="ignore"):
        for step in reversed(range(rewards.shape[1])):
            folded = rewards[:, step].astype(np.float64) + gammas[1] * total
            total = np.where(there[:, step], folded, total)
        return total.astype(np.float32)
