"""Pinned memory of the host, from which a copy to a device goes on by itself.

The host may touch such memory again only when the copy is over. An event, recorded on the stream
behind the copy, tells: to ask it costs a microsecond and waits for nothing.
"""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from relive.errors import ConfigError, InputError
from relive.gpu.capture import refuse_capture

MOST = 4  # copies under way: the host is as far ahead of the device as it is ever worth


class Slot:
    """A piece of pinned memory, and when the last copy that used it is over.

    Attributes:
        memory: uint8 `[nbytes]`.
    """

    __slots__ = ("_event", "memory")

    def __init__(self, nbytes: int) -> None:
        self.memory = pinned_memory(nbytes)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def used_by(self, stream: torch.cuda.Stream) -> None:
        """Note that what `stream` has been given so far may use the memory."""
        self._event.record(stream)

    def is_free(self) -> bool:
        """Whether that is done; never waits."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Wait until it is."""
        self._event.synchronize()


class Slots:
    """Pieces of pinned memory of one size, each used again once the copy that used it is over.

        slot = slots.take()
        ...                                             fill slot.memory
        tensor.copy_(slot.memory, non_blocking=True)
        slots.sent(slot, stream)                        always, also if nothing was copied

    For one thread at a time.

    Args:
        nbytes: of each.
        device: where the copies go.
        most: copies under way, after which `take` waits. A slot is made when it is first needed.
    """

    def __init__(self, nbytes: int, device: torch.device, most: int = MOST) -> None:
        self._nbytes, self._device = nbytes, device
        self._most = most
        self._sent: deque[Slot] = deque()  # oldest first

    def take(self) -> Slot:
        """A slot that no copy uses; the caller's until `sent`.

        Where `most` copies are under way it waits for the oldest: a host that is that far ahead of
        its device gains nothing by going on.

        Raises:
            UnsupportedError: the current stream of the device is being captured.
            InputError: the memory is not to be had.
        """
        refuse_capture(self._device)
        if self._sent and self._sent[0].is_free():
            return self._sent.popleft()
        if len(self._sent) < self._most:  # the others are asked only then: each costs a microsecond
            return Slot(self._nbytes)
        for slot in self._sent:  # of streams that are ahead of that of the oldest
            if slot.is_free():
                self._sent.remove(slot)
                return slot
        self._sent[0].wait()
        return self._sent.popleft()

    def sent(self, slot: Slot, stream: torch.cuda.Stream) -> None:
        """Give a slot back; it is free when all that `stream` has been given so far is done."""
        slot.used_by(stream)
        self._sent.append(slot)


def pinned_memory(nbytes: int) -> Tensor:
    """Pinned memory with any contents: uint8 `[nbytes]`.

    Raises:
        InputError: it is not to be had.
    """
    try:
        with torch.inference_mode(False):  # so that it can be written inside and outside of it
            return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)
    except (RuntimeError, TypeError) as error:  # more than there is, or than a number holds
        raise InputError(
            f"{nbytes / 1e9:.1f} GB of pinned memory are not to be had; ask for less at once"
        ) from error


def pin(tensor: Tensor) -> None:
    """Pin memory that there is, for as long as it lives, so that a GPU can read and write it.

    Torch would round a large piece up to a power of two.

    Raises:
        ConfigError: the system does not allow so much.
    """
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address, nbytes = tensor.data_ptr(), tensor.nbytes
    error = runtime.cudaHostRegister(address, nbytes, 0)
    if int(error):
        _clear_error()
        raise ConfigError(
            f"{nbytes / 1e9:.2f} GB of host memory could not be pinned ({error}); take fewer rows, "
            "or raise the limit of locked memory (ulimit -l)"
        )
    weakref.finalize(tensor.untyped_storage(), runtime.cudaHostUnregister, address)


def _clear_error() -> None:
    """Let CUDA tell an error that torch has not seen, for which the next kernel would be blamed."""
    with suppress(RuntimeError):
        torch.zeros(1, device="cuda")
