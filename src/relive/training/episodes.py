"""Returns and lengths of episodes on the device, read by the host when somebody looks at them.

E  environments
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from relive.gpu.readback import Readback
from relive.training.records import LAST, EpisodesEnded

if TYPE_CHECKING:
    from torch import Tensor

NOTHING = (0.0, 0.0, math.inf, -math.inf, 0.0, math.inf, -math.inf)


class DeviceEpisodes:
    """Return and length of the episode that each of E environments is in, and of those that ended.

    A step adds to tensors that are made once, so it can be captured in a CUDA graph, and waits for
    nothing. Sums are in float64: whole numbers are exact up to 2^53.

    Args:
        num_envs: E.
        device: Where the environments are.

    Attributes:
        ended: Episodes that came to their end, as far as `take` was asked.
        last_returns: Means of the last summaries.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.ended = 0
        self.last_returns = deque[float](maxlen=LAST)
        # of each environment: return and length of its episode so far
        self._sums = torch.zeros(2, num_envs, dtype=torch.float64, device=device)
        # of those that ended: their number; then sum, least and largest of returns, of lengths
        self._ended = torch.tensor(NOTHING, dtype=torch.float64, device=device)
        self._nothing = self._ended.clone()
        self._sent = Readback(torch.zeros(len(NOTHING), dtype=torch.float64, device="cpu"))

    def add(self, reward: Tensor, ended: Tensor) -> None:
        """Adds a step of all environments; never waits.

        Args:
            reward: float `[E]`.
            ended: Terminated or truncated, bool `[E]`.
        """
        self._sums[0] += reward
        self._sums[1] += 1.0
        goes_on = ~ended
        total = self._sums.masked_fill(goes_on, 0.0).sum(1)
        least = self._sums.masked_fill(goes_on, math.inf).amin(1)
        largest = self._sums.masked_fill(goes_on, -math.inf).amax(1)
        self._sums.masked_fill_(ended, 0.0)
        numbers = self._ended
        numbers[0] += ended.sum()
        of_both = numbers[1:].view(2, 3)  # returns, lengths
        of_both[:, 0] += total
        of_both[:, 1] = torch.minimum(of_both[:, 1], least)
        of_both[:, 2] = torch.maximum(of_both[:, 2], largest)

    def take(self, step: int) -> EpisodesEnded | None:
        """What ended since the last `take`; None if nothing did. Waits for the device.

        Args:
            step: Environment steps so far.
        """
        while not self._sent.ask(self._ended):
            self._sent.wait()
        self._ended.copy_(self._nothing)
        count, *of_returns, length, least, largest = self._sent.wait().tolist()
        if not count:
            return None
        self.ended += int(count)
        total, least_return, largest_return = of_returns
        self.last_returns.append(total / count)
        return EpisodesEnded(
            step=step,
            episodes=int(count),
            mean_return=total / count,
            least_return=least_return,
            largest_return=largest_return,
            mean_length=length / count,
            least_length=int(least),
            largest_length=int(largest),
        )

    def state_dict(self) -> dict[str, Any]:
        """Where all episodes stand. Waits for the device."""
        return {
            "ended": self.ended,
            "last_returns": list(self.last_returns),
            "sums": self._sums.cpu(),
            "of_ended": self._ended.cpu(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave, on any device."""
        self.ended = state["ended"]
        self.last_returns.extend(state.get("last_returns", ()))  # earlier versions kept none
        self._sums.copy_(state["sums"])
        self._ended.copy_(state["of_ended"])
