"""Memory that is let go of: what was made on a stream is given to the next who asks there, at once.

As by torch's allocator: the next one on the same stream needs to wait for nothing, so whatever
another stream still has to do with the memory must be known to be done there, or to the host, or
the memory must have been recorded on that stream (`record_stream`).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from tests.triton.pretended.streams import OrderError

if TYPE_CHECKING:
    from torch import UntypedStorage

    from tests.triton.pretended.streams import Order, Stream


class Memory:
    """Who else may use a piece of memory, by its first address, and who was forgotten.

    Nothing can be raised where memory is let go of: it is told at the next call of the device, or
    by `tell`.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._recorded: dict[int, set[Stream]] = {}
        self._faults: list[str] = []

    def make(self, storage: UntypedStorage, stream: Stream) -> None:
        """It was made on a stream; what is made in a capture stays with the graph."""
        if stream.graph is None and storage.nbytes():
            self._recorded[storage.data_ptr()] = set()
            gone = weakref.finalize(storage, self._free, storage.data_ptr(), stream)
            gone.atexit = False

    def record(self, address: int, stream: Stream) -> None:
        """It is not given to anybody before the stream has done what it has until it is let go."""
        if address in self._recorded:
            self._recorded[address].add(stream)

    def fault(self, words: str) -> None:
        """Something to be told that could not be raised."""
        self._faults.append(words)

    def tell(self) -> None:
        """Raise what could not be raised where it happened, once.

        Raises:
            OrderError: it was let go of too early.
        """
        if self._faults:
            raise OrderError(self._faults.pop())

    def _free(self, address: int, stream: Stream) -> None:
        recorded = self._recorded.pop(address, set())
        for other, position in self._order.uses(address).items():
            known = max(stream.seen.get(other, 0), stream.owner.seen.get(other, 0))
            if other is not stream and other not in recorded and known < position:
                self.fault(
                    f"memory at {address:#x}, made on stream {stream.cuda_stream}, was let go of "
                    f"while stream {other.cuda_stream} uses it; record it on that stream"
                )
