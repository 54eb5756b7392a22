"""What the loop measures as it goes: episodes, priorities; means of metrics are in `gpu.means`."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.training.records import LAST, EpisodeEnded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor


class Episodes:
    """Return and length of the episode that each of E environments is in.

    Attributes:
        ended: Episodes that came to their end.
        last_returns: Of the last of them.
    """

    def __init__(self, num_envs: int) -> None:
        self.ended = 0
        self.last_returns = deque[float](maxlen=LAST)
        self._begun = np.ones(num_envs, dtype=np.int64)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)

    def add(
        self, reward: NDArray[Any], ended: NDArray[np.bool_], step: int
    ) -> Iterator[EpisodeEnded]:
        """Adds a step of all environments, and yields the episodes that ended with it.

        Args:
            reward: `[E]`.
            ended: Terminated or truncated, `[E]`.
            step: Environment steps so far, this one included.
        """
        self._returns += reward
        self._lengths += 1
        for env in np.flatnonzero(ended).tolist() if ended.any() else ():
            yield EpisodeEnded(
                step=step,
                env=env,
                episode_return=float(self._returns[env]),
                length=int(self._lengths[env]),
            )
            self.last_returns.append(float(self._returns[env]))
            self._returns[env] = self._lengths[env] = 0
            self._begun[env] += 1
            self.ended += 1

    @property
    def returns(self) -> NDArray[np.float64]:
        """Sum of rewards so far of the episode that each environment is in."""
        return self._returns

    @property
    def standing(self) -> list[tuple[int, int]]:
        """Of each environment: episodes begun here, or gone on with, and steps of the last one."""
        return list(zip(self._begun.tolist(), self._lengths.tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Where all episodes stand."""
        return {
            "ended": self.ended,
            "last_returns": list(self.last_returns),
            "returns": self._returns,
            "lengths": self._lengths,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave."""
        self.ended = state["ended"]
        self.last_returns.extend(state.get("last_returns", ()))  # earlier versions kept none
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]


def priority_histogram(priorities: Tensor, bins: int = 40) -> tuple[list[float], list[int]]:
    """Counts of stored priorities in bins of equal width on a logarithmic scale.

    Args:
        priorities: Of all rows, `[N]`, N >= 1. Those of 0, which are never drawn, are left out, and
            those of infinity, which have never been updated.
        bins: How many.

    Returns:
        bins + 1 edges and bins counts.
    """
    drawn = priorities[(priorities > 0) & priorities.isfinite()]
    logs = drawn.double().log10().cpu().numpy()
    low, high = (math.floor(logs.min()), math.ceil(logs.max())) if len(logs) else (0, 1)
    counts, edges = np.histogram(logs, bins=bins, range=(low, max(high, low + 1)))
    return (10.0**edges).tolist(), counts.tolist()
