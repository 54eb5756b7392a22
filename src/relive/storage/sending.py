"""Batches that are drawn in RAM for another device: into pinned memory, then one copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from relive.batch import Batch
from relive.gpu.pinned import Slots
from relive.storage.lending import Lender

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.batch import BatchLayout

KEPT = 4  # batch sizes whose pinned memory is kept


class Sender:
    """Sends batches of one layout to CUDA devices; for one thread at a time.

    Pinned memory is kept for the batch sizes used last, at most `relive.gpu.pinned.MOST` batches
    each.
    """

    def __init__(self, layout: BatchLayout) -> None:
        self._layout = layout
        self._lenders: dict[torch.device, Lender] = {}
        self._slots: dict[tuple[torch.device, int], Slots] = {}

    def send(self, batch_size: int, device: torch.device, fill: Callable[[Batch], None]) -> Batch:
        """A batch on `device`, whose copy has been queued on the current stream there.

        The host waits only if as many batches of this size are under way as are kept: for the
        oldest.

        Args:
            device: a CUDA device with its number.
            fill: is given the batch in pinned memory, and draws it.

        Raises:
            InputError: more memory than there is; nothing has been drawn then.
            UnsupportedError: the current stream there is being captured; nothing has been drawn.
        """
        lender = self._lenders.get(device)
        if lender is None:
            lender = self._lenders[device] = Lender(self._layout, device)
        slots = self._slots_of(batch_size, device)
        slot = slots.take()
        try:
            batch = lender.make(batch_size)
            fill(Batch(self._layout, slot.memory, batch_size, batch._offsets))
            batch._arena.copy_(slot.memory, non_blocking=True)
        finally:
            slots.sent(slot, torch.cuda.current_stream(device))
        return batch

    def _slots_of(self, batch_size: int, device: torch.device) -> Slots:
        """Those of a size; the size that was used least lately makes room for a new one."""
        key = device, batch_size
        slots = self._slots.pop(key, None)
        if slots is None:
            slots = Slots(self._layout.arena_bytes(batch_size), device)
        self._slots[key] = slots
        if len(self._slots) > KEPT:
            del self._slots[next(iter(self._slots))]
        return slots
