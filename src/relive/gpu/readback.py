"""Small results of the device, read by the host when they have arrived."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import torch
from torch import Tensor

from relive.gpu.capture import is_captured, refuse_capture
from relive.gpu.pinned import Slot

MOST = 3  # copies under way


class Readback:
    """The newest copy of a small tensor that has arrived from the device.

        readback.ask(words)      queues a copy
        readback.latest()        what has arrived by now

    Copies go through a ring of pinned memory on a stream of their own, behind what the current one
    has been given so far: what that is given next does not wait for them. What it gives out is
    never written to again. A tensor that is on the CPU has arrived at once. For one thread at a
    time.

    Args:
        first: a tensor of the shape and dtype of those that will be asked for, which has arrived
            (waits).
        most: copies under way, above which a question is dropped.
    """

    def __init__(self, first: Tensor, most: int = MOST) -> None:
        self._shape, self._dtype = first.shape, first.dtype
        self._most = most
        self._idle: list[Slot] = []
        self._asked: deque[Slot] = deque()  # in the order in which they were asked for
        self._newest = first.detach().to("cpu", copy=True)
        self._device = first.device  # of what was asked for last
        self._side: Any = None  # the stream of the copies

    def ask(self, tensor: Tensor) -> bool:
        """Queue a copy of `tensor`, as the current stream has it then; never waits.

        Returns:
            False if the question was dropped, because `most` copies are under way.

        Raises:
            UnsupportedError: the current stream of its device is being captured.
        """
        assert tensor.shape == self._shape
        assert tensor.dtype == self._dtype
        if tensor.is_cpu:
            self._newest = tensor.detach().clone()
            return True
        self._device = tensor.device
        refuse_capture(self._device)
        self._collect()
        if len(self._asked) == self._most:
            return False
        slot = self._idle.pop() if self._idle else self._new_slot()
        if self._side is None:
            self._side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        moment = tensor.detach().clone()  # the current stream goes on, and may change it
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            self._typed(slot).copy_(moment, non_blocking=True)
        moment.record_stream(self._side)  # its memory is used again when that is done
        slot.used_by(self._side)
        self._asked.append(slot)
        return True

    def latest(self) -> Tensor:
        """The newest that has arrived, on the CPU. Never waits."""
        if self._asked and not is_captured(self._device):  # no event tells then
            self._collect()
        return self._newest

    def wait(self) -> Tensor:
        """The newest that was asked for and not dropped, on the CPU. Waits for the device.

        Raises:
            UnsupportedError: it would wait while the current stream is being captured.
        """
        if self._asked:
            refuse_capture(self._device)
            for slot in self._asked:
                slot.wait()
            self._collect()
        return self._newest

    def _collect(self) -> None:
        """Take over what has arrived."""
        while self._asked and self._asked[0].is_free():
            slot = self._asked.popleft()
            self._newest = self._typed(slot).clone()
            self._idle.append(slot)

    def _new_slot(self) -> Slot:
        return Slot(math.prod(self._shape) * self._dtype.itemsize)

    def _typed(self, slot: Slot) -> Tensor:
        return slot.memory.view(self._dtype).view(self._shape)
