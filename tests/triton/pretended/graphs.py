"""Capture: work is taken down instead of done, and done again as often as the graph is replayed."""

from __future__ import annotations

from itertools import count
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from tests.triton.pretended.streams import Stream, not_in_capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.triton.pretended.device import Device


OWN_POOLS = count(1)  # never the number of a pool that was


class CUDAGraph:
    """Of `torch.cuda.CUDAGraph`, what programs use.

    Attributes:
        works: What was captured; as on CUDA, nothing of it was done by that.
        reads, writes: First addresses of the memory that it uses.
        is_refused: Whether something in it was.
        thread: That captures it.
        mode: In which CUDA looks for what cannot be captured: in all threads ("global"), or in this
            one ("thread_local").
    """

    owner: ClassVar[Device]

    def __init__(self, keep_graph: bool = False) -> None:
        del keep_graph
        self.works: list[Callable[[], Any]] = []
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.is_capturing = self.is_whole = self.is_refused = False
        self._pool: object = None
        self._generators: list[Any] = []
        self.thread, self.mode = get_ident(), "global"

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Each replay draws from the generator itself."""
        self._generators.append(generator)

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """The current stream is captured from here on."""
        stream = self.owner.stream
        self.owner.require_no_capture(everywhere=True)
        self.thread, self.mode = get_ident(), capture_error_mode
        if stream is self.owner.streams[0]:
            raise not_in_capture()
        self._pool = pool or (next(OWN_POOLS), 0)
        self.owner.begin_allocations(self._pool)
        stream.graph, self.is_capturing = self, True

    def capture_end(self) -> None:
        """Every stream that was captured runs again."""
        self.is_capturing = False
        for stream in self.owner.streams:
            if stream.graph is self:
                stream.graph = None
        if self.is_refused:
            for generator in self._generators:
                generator.is_captured = True
            raise torch.AcceleratorError(
                "CUDA error: operation failed due to a previous error during capture"
            )
        self.owner.taking.remove(self._pool)
        self.is_whole = True

    def replay(self) -> None:
        """Gives what was captured to the current stream, once more."""
        if not self.is_whole:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        works = list(self.works)

        def replayed() -> None:
            for work in works:
                work()

        stream = self.owner.stream
        self.owner.order.note(stream, self.reads, self.writes)
        stream.put(replayed)

    def reset(self) -> None:
        """Forgets what was captured."""
        self.works.clear()
        if self.is_whole:
            self.owner.sharing[self._pool] -= 1
        self.is_whole = False

    def __del__(self) -> None:
        self.reset()

    def pool(self) -> object:
        """Numbers for the memory of the graph."""
        return self._pool


class graph:  # noqa: N801 - as torch calls it
    """Captures what is done inside, on a stream of its own.

    As in torch, a capture that CUDA has refused something in ends with an error of its own, and
    leaves its stream the current one. As in torch before 2.13, memory goes on being taken for it,
    and generators go on being captured.
    """

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: object = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        self.cuda_graph = cuda_graph
        self.how = pool, capture_error_mode
        self.on_stream = torch.cuda.stream(stream or torch.cuda.Stream())

    def __enter__(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.on_stream.__enter__()
        self.cuda_graph.capture_begin(*self.how)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.cuda_graph.is_refused |= isinstance(error, torch.AcceleratorError)
        self.cuda_graph.capture_end()
        self.on_stream.__exit__(kind, error, trace)
