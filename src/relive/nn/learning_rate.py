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
        end: Behind the last planned update; None keeps `start`.
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
        self._end: Tensor | None = None  # on a GPU, float32 []
        if torch.device(device).type != "cpu" and self.schedule.start != self.schedule.end:
            self.move(device)

    def move(self, device: torch.device | str) -> None:
        """Keep the count on a device from here on, with what is left of the way as a whole number.

        A part of the way that grew by 1 / updates would have come to a halt long before its end:
        float32 has 24 bits.
        """
        schedule = self.schedule
        self._end = torch.tensor(schedule.end, dtype=torch.float32, device=device)
        left = max(0, schedule.steps - self._updates)
        self._left = torch.tensor(left, dtype=torch.int64, device=device)

    def next(self) -> float | Tensor:
        """The step size of the next update, which counts as made; float `[]` on a GPU if it varies.

        Waits for nothing.
        """
        if self._end is None:
            self._updates += 1
            return self.schedule(self._updates - 1)
        slope = (self.schedule.start - self.schedule.end) / self.schedule.steps
        size = torch.add(self._end, self._left, alpha=slope)
        self._left.sub_(1).clamp_(min=0)
        return size

    def set(self, updates: int) -> None:
        """Goes on as if so many updates had been made."""
        self._updates = updates
        if self._end is not None:
            self._left.fill_(max(0, self.schedule.steps - updates))
