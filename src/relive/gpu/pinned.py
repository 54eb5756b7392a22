"""Pinned memory of the host, from which a copy to a device goes on by itself.

The host may touch such memory again only when the copy is over. An event, recorded on the stream
behind the copy, tells: to ask it costs a microsecond and waits for nothing.
"""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relive.errors import ConfigError, InputError
from relive.gpu.capture import is_captured, refuse_capture

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def pin(memory: Tensor, device: torch.device) -> Tensor:
    """Pin memory that there is, so that a GPU can read and write it.

    Torch would round a large piece up to a power of two.

    Returns:
        The same memory, pinned until this tensor and all views of it are let go of. Then the host
        waits for the device, which may use it still, and the memory goes back. A wait would break
        the capture of a CUDA graph: what is let go of meanwhile goes back with the next, or before
        the next is pinned.

    Raises:
        ConfigError: the system does not allow so much.
    """
    _give_back()
    with torch.cuda.device(device):
        error = _runtime().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)
        if int(error):
            _clear_error()
            why = _runtime().cudaGetErrorString(error)
            raise ConfigError(
                f"{memory.nbytes / 1e9:.2f} GB of host memory could not be pinned ({why}); take "
                "fewer rows, or raise the limit of locked memory (ulimit -l)"
            )
    pinned = torch.from_numpy(memory.numpy())  # whose end is not the end of the memory
    gone = weakref.finalize(pinned.untyped_storage(), _let_go, memory, device)
    gone.atexit = False  # the system takes back what a program had
    return pinned


@contextmanager
def kept() -> Iterator[None]:
    """No pinned memory goes back inside, whichever thread lets go of it; afterwards it does.

    For captures: a thread that waits for the whole device breaks that of another one.
    """
    _keepers.append(None)
    try:
        yield
    finally:
        _keepers.pop()
        _give_back()


_let_go_of: deque[tuple[Tensor, torch.device]] = deque()  # and not given back yet
_keepers: list[None] = []  # a piece for each block that keeps


def _let_go(memory: Tensor, device: torch.device) -> None:
    _let_go_of.append((memory, device))
    _give_back()


def _give_back() -> None:
    """Give back what has been let go of, as far as nothing is captured; waits for its devices."""
    for _ in range(len(_let_go_of)):
        try:
            memory, device = _let_go_of.popleft()
        except IndexError:  # another thread was faster
            return
        if not _unpin(memory, device):
            _let_go_of.append((memory, device))


def _unpin(memory: Tensor, device: torch.device) -> bool:
    """Whether it could be done now, or never has to be."""
    is_there: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if not is_there:  # in a forked child
        return True
    if _keepers or is_captured(device):
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as error:  # of a device that is lost, and does nothing more
        return "captur" not in str(error)
    with torch.cuda.device(device):
        _runtime().cudaHostUnregister(memory.data_ptr())
    return True


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _clear_error() -> None:
    """Let CUDA tell an error that torch has not seen, for which the next kernel would be blamed."""
    with suppress(RuntimeError):
        torch.zeros(1, device="cuda")
