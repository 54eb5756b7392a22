"""Streams: what was given to the device, in order, and how far it has come.

    issued   pieces of work that a stream was given
    done     those that have run; as many as issued unless the device lags
    seen     of every stream, how much is known to be done before whatever comes next

Work on different streams has no order unless one waits for the other's event, or the host did.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from tests.triton.waits import unseen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.triton.pretended.device import Device
    from tests.triton.pretended.graphs import CUDAGraph

Seen = dict["Stream", int]


class OrderError(AssertionError):
    """Two streams use one memory, and neither waits for the other."""


def not_in_capture() -> RuntimeError:
    """What CUDA says to a call that makes the host wait, while a stream is captured."""
    return torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")


class Stream:
    """Of `torch.cuda.Stream`, what programs use.

    Attributes:
        cuda_stream: Its number; 0 is the default stream.
        graph: Which records what the stream is given; None: it runs.
    """

    owner: ClassVar[Device]

    def __init__(self, device: object = None, priority: int = 0) -> None:
        del device, priority  # there is one device, and nothing runs at the same time
        self.cuda_stream = len(self.owner.streams)
        self.owner.streams.append(self)
        self.device = self.owner.device
        self.graph: CUDAGraph | None = None
        self.issued = self.done = 0
        self.seen: Seen = {}
        self._queue: deque[Callable[[], Any]] = deque()

    def put(self, work: Callable[[], Any]) -> None:
        """Gives work to the stream, which does it when the device comes to it."""
        if self.graph is not None:
            self.graph.works.append(work)
            return
        self._queue.append(work)
        self.issued += 1
        if not self.owner.lag:
            self.run(self.issued)

    def run(self, position: int) -> None:
        """The device comes as far as this."""
        while self.done < position:
            self.done += 1
            with unseen():
                self._queue.popleft()()

    def now(self) -> Seen:
        """What is done once the stream has come to where it is now."""
        return {**self.seen, self: self.issued}

    def synchronize(self) -> None:
        """The host waits for all that the stream was given."""
        self.owner.wait("Stream.synchronize", self)

    def query(self) -> bool:
        """Whether all of it is done."""
        self.owner.require_no_capture()
        return self.done == self.issued

    def record_event(self, event: Event | None = None) -> Event:
        """An event that is over once the stream has come here."""
        event = event or torch.cuda.Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """What the stream is given from now on runs after the event."""
        if event.stream is None:
            return
        if event.graph is not None and event.graph.is_capturing and self.graph is None:
            self.graph = event.graph  # it is captured too
        if event.graph is not self.graph:
            raise torch.AcceleratorError(
                "CUDA error: dependency created on uncaptured work in another stream"
                if self.graph is not None
                else "CUDA error: operation not permitted on an event last recorded in a "
                "capturing stream"
            )
        if self.graph is None:
            learn(self.seen, event.seen)
            stream, position = event.stream, event.position
            self.put(lambda: stream.run(position))

    def wait_stream(self, stream: Stream) -> None:
        """What the stream is given from now on runs after what the other has been given."""
        self.wait_event(stream.record_event())


class Event:
    """Of `torch.cuda.Event`, what programs use; before `record` it is over."""

    owner: ClassVar[Device]

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        del blocking, interprocess
        self._is_timed = enable_timing
        self.stream: Stream | None = None
        self.graph: CUDAGraph | None = None
        self.position = 0
        self.seen: Seen = {}

    def record(self, stream: Stream | None = None) -> None:
        """The event is over once the stream has done what it was given so far."""
        self.stream = stream or self.owner.stream
        self.graph, self.position = self.stream.graph, self.stream.issued
        self.seen = self.stream.now()

    def wait(self, stream: Stream | None = None) -> None:
        """A stream, by default the current one, goes on after the event."""
        (stream or self.owner.stream).wait_event(self)

    def query(self) -> bool:
        """Whether it is over."""
        self.owner.require_no_capture()
        return self.stream is None or self.stream.done >= self.position

    def synchronize(self) -> None:
        """The host waits for it, unless it is over."""
        if not self.query():
            self.owner.note_wait("Event.synchronize")
            self.stream.run(self.position)
        learn(self.owner.seen, self.seen)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds between two events: here the work between them, so that it is repeatable."""
        if not (self._is_timed and end._is_timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        return float(end.position - self.position)


class Order:
    """Who used which memory last; a memory goes by its first address."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[Stream, int]] = {}
        self._read: dict[int, Seen] = {}

    def renew(self, address: int, stream: Stream | None) -> None:
        """The memory at an address is new, and filled by the last work of a stream, or by none."""
        self._written.pop(address, None)
        self._read.pop(address, None)
        if stream is not None:
            self._written[address] = stream, stream.issued

    def uses(self, address: int) -> Seen:
        """Up to where each stream uses a memory: who wrote last, and who read that."""
        last = dict([self._written[address]] if address in self._written else [])
        learn(last, self._read.get(address, {}))
        return last

    def note(self, stream: Stream, reads: Iterable[int], writes: Iterable[int]) -> None:
        """What the next work of a stream uses.

        Raises:
            OrderError: another stream wrote what is read or written, or read what is written, and
                nothing says that it is done.
        """
        learn(stream.seen, stream.owner.seen)
        writes = set(writes)
        for address in {*reads, *writes}:
            before = dict([self._written[address]] if address in self._written else [])
            if address in writes:
                learn(before, self._read.get(address, {}))
            for other, position in before.items():
                if other is not stream and stream.seen.get(other, 0) < position:
                    raise OrderError(
                        f"stream {stream.cuda_stream} uses memory at {address:#x} that stream "
                        f"{other.cuda_stream} uses too; wait for an event of it"
                    )
            if address in writes:
                self._written[address] = stream, stream.issued + 1
                self._read.pop(address, None)
            else:
                self._read.setdefault(address, {})[stream] = stream.issued + 1


def learn(seen: Seen, more: Seen) -> None:
    """Adds what is known to be done."""
    for stream, position in more.items():
        seen[stream] = max(position, seen.get(stream, 0))
