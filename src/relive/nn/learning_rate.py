"""The step size of an optimiser, from update to update."""

from __future__ import annotations

import torch
from torch import Tensor

from relive.schedules import Linear


class LearningRate:
    """A step size that goes from `start` to `end` in a straight line.

    On a GPU the count of updates is a number on the device, so that a step that is captured in a
    CUDA graph has another step size at every replay.

    Args:
        start: At the first update.
        end: At the last planned update; None keeps `start`.
        planned_updates: Updates until then.
        device: Of the parameters.

    Attributes:
        schedule: Updates made so far to step size.
    """

    def __init__(
        self,
        start: float,
        end: float | None,
        planned_updates: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.schedule = Linear(start, start if end is None else end, max(1, planned_updates))
        self._updates = 0
        self._words: Tensor | None = None  # start, end, the part of the way that is made
        if torch.device(device).type != "cpu" and self.schedule.start != self.schedule.end:
            self._words = torch.tensor([start, self.schedule.end, 0.0], device=device)

    def next(self) -> float | Tensor:
        """The step size of the next update, which counts as made; float `[]` on a GPU if it varies.

        Waits for nothing.
        """
        if self._words is None:
            self._updates += 1
            return self.schedule(self._updates - 1)
        start, end, part = self._words.unbind()
        size = torch.lerp(start, end, part.clamp(max=1.0))
        part += 1.0 / self.schedule.steps
        return size

    def set(self, updates: int) -> None:
        """Goes on as if so many updates had been made."""
        self._updates = updates
        if self._words is not None:
            self._words[2].fill_(updates / self.schedule.steps)
