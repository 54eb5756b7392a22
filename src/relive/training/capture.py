"""Work that comes back, captured as CUDA graphs.

A graph is launched as one: neither Python nor the launch of a kernel is waited for between two
kernels. It does the same work with the same memory at every replay, so whatever varies has to lie
on the device: counters, schedules, sizes, the state of generators.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from relive.errors import UnsupportedError
from relive.gpu.capture import NotNowError
from relive.gpu.pinned import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

WARM_UP = 2  # times that work is done before it is captured: kernels are compiled and loaded then
MOST = 20  # graphs; work of more kinds than that is not worth their memory

broken_off: list[Any] = []  # graphs; torch may go on asking them whose the pinned memory is


class Graphs:
    """Does work that was done before as a CUDA graph.

        graphs.run("update", update)      done twice, then captured, then replayed

    For one device and one thread at a time. A graph holds on to the memory of what it made; all
    graphs share one pool, so only the newest results are there.

    Args:
        generators: That the work draws from, besides the default one; their state goes on from
            replay to replay.
        most: Graphs that are kept; other work is done as it is.
        not_now: Whether nothing can be captured at this moment; work is done as it is then.
    """

    def __init__(
        self,
        generators: Iterable[torch.Generator] = (),
        most: int = MOST,
        not_now: Callable[[], bool] = lambda: False,
    ) -> None:
        self._generators = list(generators)
        self._most = most
        self._not_now = not_now
        self._done: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, Any] = {}
        self._pool: Any = None

    def __len__(self) -> int:
        """How many there are."""
        return len(self._graphs)

    def __contains__(self, key: Hashable) -> bool:
        """Whether the work of a key has been captured."""
        return key in self._graphs

    def run(
        self, key: Hashable, work: Callable[[], object], parts: Iterable[Hashable] = ()
    ) -> None:
        """Does `work` once on the current stream; waits for the device only to capture it.

        Args:
            key: Of the work: for equal keys it launches the same kernels with the same arguments.
            work: Is called as often as it takes to capture it; what it returns is dropped. It must
                leave no number of the host's in a launch, and count nothing on the host.
            parts: What the work is made of, if other work has parts of it: it is captured once each
                of them has been done a few times.

        Raises:
            UnsupportedError: It cannot be captured; says why. It has not been done then, and never
                will be captured.
        """
        graph, parts = self._graphs.get(key), set(parts) or {key}
        if graph is not None:
            graph.replay()
        elif (
            len(self._graphs) >= self._most
            or any(self._done[part] < WARM_UP for part in parts)
            or self._not_now()
        ):
            self._done.update(parts)
            work()
        else:
            graph = self._captured(work)
            if graph is None:
                for part in parts:
                    self._done[part] = 0  # it is tried again later
                work()
            else:
                self._graphs[key] = graph
                graph.replay()

    def _captured(self, work: Callable[[], object]) -> Any:
        """A graph of the work; None if it cannot be captured just now."""
        graph = new_graph()
        if not self._graphs:  # a pool of which no graph is left is not taken up again
            self._pool = torch.cuda.graph_pool_handle()
        for generator in self._generators:
            graph.register_generator_state(generator)
        stream, first = torch.cuda.current_stream(), None
        try:
            # other threads may use the device meanwhile, say to save the buffer's note
            with (
                kept(),
                torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
            ):
                try:
                    work()
                except Exception as error:
                    first = error  # the end of the capture may raise another one
                    raise
        except Exception as error:
            torch.cuda.set_stream(stream)  # torch leaves its own in place then
            first = first or error
            if isinstance(first, NotNowError):
                return None
            self._most = 0
            self._graphs.clear()  # they draw from the old states of generators
            forget(graph, self._pool, self._generators)
            what = " ".join(str(first).split())[:300]
            raise UnsupportedError(
                f"the step cannot be captured in a CUDA graph: {what}"
            ) from first
        return graph


def forget(graph: Any, pool: Any, generators: Iterable[torch.Generator]) -> None:
    """Makes torch forget a capture that CUDA has broken off; before 2.13 it does not by itself.

    It would go on taking memory for it: what several streams have used would never be given back,
    and the next capture would fail, as would whoever needs memory that is kept for later. And
    generators would refuse to draw.
    """
    device = torch.cuda.current_device()
    with suppress(RuntimeError):  # it has ended
        torch._C._cuda_endAllocateToPool(device, pool)
        broken_off.append(graph)
    for generator in (*generators, *torch.cuda.default_generators[device : device + 1]):
        if generator.device.type == "cuda":
            generator.graphsafe_set_state(generator.clone_state())


def new_graph() -> Any:
    """An empty graph."""
    return torch.cuda.CUDAGraph()
