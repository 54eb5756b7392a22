"""Calls of one buffer on a GPU, in order whatever threads and streams they come from."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch

from relive.gpu.capture import is_captured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor


class Turns:
    """A reentrant lock that is also an order on the device.

    A call from another stream than the last one first makes its stream wait for that last call;
    the host does not wait. As long as all calls come from one stream that costs nothing. What is
    launched goes to the buffer's device, whichever is current. While a CUDA graph is captured the
    order is that of the graph.

    When the buffer is let go of, its memory goes to nobody before the last call of each stream is
    done: the allocator knows of the stream on which it was made, and is told of the others.

    Args:
        lock: held during each call.
        device: of the buffer.
        memory: gives all its memory there, which is made before the first call.

    Attributes:
        was_captured: whether any call was taken down for a CUDA graph.
    """

    def __init__(
        self, lock: Any, device: torch.device, memory: Callable[[], Iterable[Tensor]]
    ) -> None:
        self.lock, self._device, self._memory = lock, device, memory
        self.was_captured = False
        self._depth = 0
        self._stream: Any = None  # of the last call
        self._known: set[Any] = set()  # streams on which the memory is recorded
        self._last: Any = None  # an event behind it, once there have been several streams
        self._guard = ExitStack()

    def __enter__(self) -> None:
        self.lock.acquire()
        self._depth += 1
        if self._depth == 1:
            try:
                self._begin()
            except BaseException:
                self._guard.close()
                self._depth -= 1
                self.lock.release()
                raise

    def __exit__(self, *_: object) -> None:
        try:
            if self._depth == 1:
                self._end()
        finally:
            self._depth -= 1
            self.lock.release()

    def _begin(self) -> None:
        if torch.cuda.current_device() != self._device.index:
            self._guard.enter_context(torch.cuda.device(self._device))
        stream = torch.cuda.current_stream(self._device)
        if self._stream is None or stream == self._stream or is_captured(self._device):
            return
        if self._last is None:
            self._last = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._last.record(self._stream)
        stream.wait_event(self._last)
        if stream not in self._known:
            self._known.add(stream)
            for tensor in self._memory():
                tensor.record_stream(stream)

    def _end(self) -> None:
        try:
            if not is_captured(self._device):
                self._stream = torch.cuda.current_stream(self._device)
                if self._last is not None:
                    self._last.record(self._stream)
            else:
                self.was_captured = True
        finally:
            self._guard.close()
