"""The device: what it does at once, what it notes, and what it does when it comes to it.

at once                        views, and memory as it comes
when the host has waited       what makes it wait, which is noted
when its stream comes to it    all else, and launches
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from tests.triton.pretended.call import ALLOCATIONS, Call, spoil
from tests.triton.pretended.graphs import graph
from tests.triton.pretended.memory import Memory
from tests.triton.pretended.streams import Order, learn, not_in_capture
from tests.triton.pretended.tensors import CUDA, DeviceTensor, memory_of
from tests.triton.waits import WaitError, wait_of_operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.triton.pretended.graphs import CUDAGraph
    from tests.triton.pretended.streams import Seen, Stream

aten = torch.ops.aten

WARN, ERROR = 1, 2  # of torch.cuda.set_sync_debug_mode


class Device:
    """What a test sees of the device, and sets.

    Attributes:
        waits: Whatever made the host wait so far.
        free, total: Bytes of memory, as `torch.cuda.mem_get_info` tells them.
        streams: All there are; the first is the default stream.
        seen: What the host knows to be done.
        has_failed: A call of CUDA that torch does not check; the next kernel is blamed for it.
        taking: Pools of captures for which memory is taken.
        sharing: How many graphs have their memory in a pool.
    """

    device = CUDA

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.free, self.total = 70 << 30, 80 << 30
        self.streams: list[Stream] = []
        self.seen: Seen = {}
        self.order = Order()
        self.memory = Memory(self.order)
        self.sync_debug_mode, self.sync_debug_mode_was_set = 0, False
        self.has_failed = False
        self.taking: list[object] = []
        self.sharing: Counter[object] = Counter()
        self._lag = self._forbids = False
        self._lock = threading.RLock()
        self._current = threading.local()
        self._pinned: dict[int, int] = {}  # bytes of pinned memory, by address
        self._kept: list[Tensor] = []  # it, so that no other memory gets its addresses
        self.registered: dict[int, int] = {}  # bytes of pinned memory that is others', by address
        self.most_registered = 1 << 40  # bytes that may be pinned at once

    @property
    def lag(self) -> bool:
        """Whether the device does what it is given only when the host waits for it.

        What the host changes or reads too early is wrong then. False: the device catches up.
        """
        return self._lag

    @lag.setter
    def lag(self, value: bool) -> None:
        self._lag = value
        if not value:
            self.catch_up()

    def catch_up(self) -> None:
        """The device does all that it was given; the host does not wait, nor know."""
        with self._lock:
            for stream in self.streams:
                stream.run(stream.issued)

    @property
    def stream(self) -> Stream:
        """The current one, of this thread."""
        return getattr(self._current, "stream", self.streams[0])

    @stream.setter
    def stream(self, stream: Stream) -> None:
        self._current.stream = stream

    def inner(self, tensor: Tensor) -> Tensor:
        """The memory of a tensor on the device, as an ordinary tensor; nobody waits."""
        return memory_of(tensor)

    # Waits and capture.

    @contextmanager
    def forbid_waits(self) -> Iterator[None]:
        """What makes the host wait raises `WaitError` inside."""
        before, self._forbids = self._forbids, True
        try:
            yield
        finally:
            self._forbids = before

    @contextmanager
    def capture(self) -> Iterator[CUDAGraph]:
        """A graph of what is done inside; `replay()` does it."""
        captured = torch.cuda.CUDAGraph()
        with graph(captured):
            yield captured

    def require_no_capture(self, *, everywhere: bool = False) -> None:
        """Raise what CUDA does if a stream is being captured; the capture is broken then.

        Args:
            everywhere: The call is about the whole device, so it does not matter which thread
                captures, and in which mode.
        """
        for captured in filter(None, [stream.graph for stream in self.streams]):
            is_ours = captured.thread == threading.get_ident()
            if everywhere or is_ours or captured.mode == "global":
                captured.is_refused |= not is_ours
                raise not_in_capture()

    def empty_cache(self) -> None:
        """Give back what is kept for later, which torch cannot while it takes memory for a capture.

        Raises:
            RuntimeError: it does.
        """
        if self.taking:
            raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")

    def begin_allocations(self, pool: object) -> None:
        """Memory is taken for a capture.

        Raises:
            RuntimeError: the graphs that had theirs in the pool are gone. Torch does not take it up
                again while anything lies there, and a workspace of cuBLAS does.
        """
        if self.sharing.get(pool) == 0:
            raise RuntimeError("it->second->use_count > 0 INTERNAL ASSERT FAILED")
        self.sharing[pool] += 1
        self.taking.append(pool)

    def end_allocations(self, _: int, pool: object) -> None:
        """No more memory is taken for a capture.

        Raises:
            RuntimeError: none was.
        """
        if pool not in self.taking:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.taking.remove(pool)

    def note_wait(self, reason: str, *, everywhere: bool = False) -> None:
        """The host is about to wait.

        Raises:
            AcceleratorError: a stream is being captured.
            WaitError: waits are forbidden.
        """
        self.require_no_capture(everywhere=everywhere)
        if self._forbids:
            raise WaitError(reason)
        self.waits.append(reason)

    def wait(self, reason: str, *streams: Stream, everywhere: bool = False) -> None:
        """The host waits until these streams, or all, have done what they were given."""
        streams = tuple(self.streams) if everywhere else streams
        with self._lock:
            self.note_wait(reason, everywhere=everywhere)
            for stream in streams:
                stream.run(stream.issued)
                learn(self.seen, stream.now())

    def is_idle(self) -> bool:
        """Whether the host knows that all is done, and nothing is being captured."""
        is_captured = any(stream.graph is not None for stream in self.streams)
        is_done = all(self.seen.get(one, 0) == one.issued for one in self.streams)
        return is_done and not is_captured

    def _note_hidden_wait(self, reason: str) -> None:
        """One that nobody asked for; CUDA's own check knows these."""
        self.note_wait(reason)
        if self.sync_debug_mode == ERROR:
            raise RuntimeError(f"called a synchronizing CUDA operation ({reason})")
        if self.sync_debug_mode == WARN:
            warnings.warn(f"called a synchronizing CUDA operation ({reason})", stacklevel=2)

    # Pinned memory.

    def is_pinned(self, tensor: Tensor) -> bool:
        """Whether it lies in pinned memory of the host."""
        if isinstance(tensor, DeviceTensor):
            return False
        address = tensor.data_ptr()
        known = (*self._pinned.items(), *self.registered.items())
        return any(0 <= address - start < nbytes for start, nbytes in known)

    def _pin(self, tensor: Tensor) -> Tensor:
        """The memory of a tensor that was just made is pinned."""
        with torch.inference_mode(False):
            memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        self._pinned[memory.data_ptr()] = memory.nbytes
        self._kept.append(memory)
        return tensor

    def _on_host(self, operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Does what is not about the device."""
        if operation.overloadpacket is aten.is_pinned:
            return self.is_pinned(args[0])
        if operation.overloadpacket is aten._pin_memory:
            if isinstance(args[0], DeviceTensor):
                raise RuntimeError("only dense CPU tensors can be pinned; given one on cuda:0")
            return self._pin(args[0].clone(memory_format=torch.contiguous_format))
        if kwargs.get("pin_memory"):
            made = operation(*args, **{**kwargs, "pin_memory": False})
            is_as_it_comes = operation.overloadpacket in ALLOCATIONS
            return self._pin(spoil(made) if is_as_it_comes else made)
        return operation(*args, **kwargs)

    # What the device does.

    def run(self, operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """An operation of torch's, which may be about the device.

        Raises:
            RuntimeError: as on CUDA: tensors are on different devices, or the host would wait
                while a stream is captured.
            WaitError: the host would wait, and that is forbidden.
            OrderError: another stream uses the same memory, and neither waits for the other.
            NotImplementedError: a tensor on the device would get another shape.
        """
        call = Call(operation, args, kwargs)
        is_about_pinning = call.packet in (aten.is_pinned, aten._pin_memory)
        if is_about_pinning or not (call.has_ours or call.gives_ours):
            return self._on_host(operation, args, kwargs)
        with self._lock:
            call.require_possible()
            reason = wait_of_operation(call.packet, args, kwargs, self.is_pinned)
            if reason:
                self._note_hidden_wait(f"{call.packet}: {reason}")
            self.memory.tell()
            if not call.is_instant:
                self._tell_failure()
                self._use(call.tensors, call.written)
            call.enter_memory()
            results = call.do() if call.is_instant else self._give(call, waits=bool(reason))
            self._enter_new(call, results)
            return call.leave_memory(results)

    def _give(self, call: Call, *, waits: bool) -> Any:
        """Results of a call that the current stream does, or will do."""
        stream = self.stream
        if not waits and (self.lag or stream.graph is not None):
            promised = call.promised()
            stream.put(lambda: call.keep(promised))
            return promised
        done: list[Any] = []
        stream.put(lambda: done.append(call.do()))
        stream.run(stream.issued)
        if waits:
            learn(self.seen, stream.now())
        return done[0]

    def _enter_new(self, call: Call, results: Any) -> None:
        """Memory that an operation has made: what was known about its address is over."""
        for memory in call.new(results):
            if call.pins and not call.gives_ours:
                self._pin(memory)
            is_known = call.pins or call.gives_ours
            filled_by = self.stream if is_known and not call.is_instant else None
            self.order.renew(_address(memory), filled_by)
            if call.gives_ours:
                self.memory.make(memory.untyped_storage(), self.stream)

    def launch(self, kernel: Any, grid: Any, args: Any, constants: dict[str, Any]) -> None:
        """Starts a kernel; it counts as one that writes to all it is given, and to nothing else.

        Raises:
            ValueError: a tensor lies where a GPU does not reach.
        """
        with self._lock:
            tensors = [v for v in tree_leaves((args, constants)) if isinstance(v, Tensor)]
            for number, tensor in enumerate(tensors):
                if not isinstance(tensor, DeviceTensor) and not self.is_pinned(tensor):
                    raise ValueError(
                        f"Pointer argument (at {number}) cannot be accessed from Triton (cpu "
                        "tensor?)"
                    )
            self.memory.tell()
            self._tell_failure()
            self._use(tensors, tensors)
            args, constants = tree_map(_memory, (args, constants))
            self.stream.put(lambda: kernel[grid](*args, **constants))

    def _tell_failure(self) -> None:
        """Raise, once, what CUDA says of a failed call to whoever starts the next kernel."""
        if self.has_failed:
            self.has_failed = False
            raise torch.AcceleratorError("CUDA error: invalid argument")

    def _use(self, read: list[Tensor], written: list[Tensor]) -> None:
        """Notes what the next work of the current stream uses."""
        reads, writes = (
            {_address(t) for t in tensors if self._is_reached(t)} for tensors in (read, written)
        )
        if self.stream.graph is None:
            self.order.note(self.stream, reads, writes)
        else:
            self.stream.graph.reads |= reads
            self.stream.graph.writes |= writes

    def _is_reached(self, tensor: Tensor) -> bool:
        """Whether the device reaches it, and there is anything."""
        is_there = isinstance(tensor, DeviceTensor) or self.is_pinned(tensor)
        return is_there and tensor.untyped_storage().nbytes() > 0


def _memory(value: Any) -> Any:
    return memory_of(value) if isinstance(value, DeviceTensor) else value


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
