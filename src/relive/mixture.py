"""Several buffers in one batch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import increment_version

from relive.batch import Batch, BatchLayout
from relive.buffer import ReplayBuffer
from relive.declared import plain
from relive.devices import known_device
from relive.errors import ConfigError, InputError, NotReadyError, UnsupportedError, shown
from relive.gpu.capture import outside_capture
from relive.locks import fork_safe_lock
from relive.ops import words as w
from relive.sampling.prefetch import Prefetch
from relive.storage.lending import Lender
from relive.storage.sending import Sender
from relive.writing.packer import truth, vector, whole_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

SOURCE_BITS, ADDED_BITS = 56, 55  # an id: number of its buffer, whether it was pinned later, rest
MOST_BUFFERS = 1 << (63 - SOURCE_BITS)


class Mixture:
    """Batches that hold a fixed share of rows from each of several buffers.

        mixture = Mixture([old, new], shares=[1, 3])
        batch = mixture.sample(256)        64 rows of old, then 192 rows of new

    Each buffer draws with its own sampler, window, random stream and progress; weights are each
    buffer's own. A share that is no whole number of rows is rounded so that the shares of all
    batches together are exact. A buffer with nothing to draw leaves its rows to the others.

    Ids say which buffer a row is from: give them to `update_priorities` of the mixture, not of a
    buffer.

    Args:
        buffers: with the same fields, on one device; they go on being written to as ever.
        shares: one positive number a buffer; only their ratios count.

    Raises:
        ConfigError: buffers whose batches differ, one buffer twice, or shares that are none.
    """

    def __init__(self, buffers: Sequence[ReplayBuffer], shares: Sequence[float]) -> None:
        _check_parts(buffers, shares)
        _check_alike(buffers)
        self.buffers = tuple(buffers)
        first = self.buffers[0]
        self.shares = tuple(plain(share) / math.fsum(shares) for share in shares)
        self._layout = BatchLayout(first._home.layout)
        self._batches = Lender(self._layout, first.device)
        self._sender = Sender(self._layout)
        self._owed = [0.0] * len(self.buffers)
        self._lock = fork_safe_lock()

    def __reduce__(self) -> Any:
        """With the buffers, which `copy.deepcopy` and `pickle` copy, and the rows each is owed."""
        with self._lock:
            return _mixed_again, (self.buffers, self.shares, list(self._owed))

    @property
    def device(self) -> torch.device:
        """Where the buffers live."""
        return self.buffers[0].device

    @property
    def prioritized(self) -> bool:
        """Whether any of the buffers has priorities."""
        return any(buffer.prioritized for buffer in self.buffers)

    def __len__(self) -> int:
        return sum(map(len, self.buffers))

    def __repr__(self) -> str:
        parts = (
            f"{share:.3g} of {b!r}" for share, b in zip(self.shares, self.buffers, strict=True)
        )
        return f"Mixture({', '.join(parts)})"

    def ready(self, batch_size: int = 1) -> bool:
        """Whether at least `batch_size` rows are held and something can be drawn."""
        size = whole_batch(batch_size)
        rows = sum(buffer._home.intake.rows for buffer in self.buffers)
        return rows >= size and any(buffer.ready() for buffer in self.buffers)

    def empty_batch(self, batch_size: int) -> Batch:
        """A batch to be filled by `sample(batch_size, out=...)`; its values mean nothing yet."""
        return self._batches.make(whole_batch(batch_size))

    @outside_capture
    def sample(
        self,
        batch_size: int,
        *,
        out: Batch | None = None,
        train: bool = True,
        device: str | torch.device | None = None,
    ) -> Batch:
        """Draw rows; those of one buffer stand together, in the order of the buffers.

        Args:
            batch_size: B >= 1.
            out: a batch of `empty_batch(batch_size)` of this mixture to write into.
            train: as in `ReplayBuffer.sample`.
            device: where the batch goes, in one copy; as in `ReplayBuffer.sample`.

        Raises:
            NotReadyError: no buffer has anything to draw.
            InputError: a bad batch size, or a batch of another size.
            UnsupportedError: as there; or a CUDA graph is captured, whose replays would all have as
                many rows of each buffer as this batch.
        """
        size, train = whole_batch(batch_size), truth("train", train)
        if out is not None and not (
            isinstance(out, Batch) and out._layout is self._layout and len(out) == size
        ):
            raise InputError(f"out is a batch made by this mixture's empty_batch({size})")
        target = self.device if device is None else known_device(device)
        with self._lock:
            if out is None and target.type == "cuda" and self.device.type == "cpu":
                return self._sender.send(size, target, lambda batch: self._fill(batch, train=train))
            batch = self._batches.lend(size) if out is None else out
            self._fill(batch, train=train)
            if out is not None and not out._arena.is_inference():
                increment_version(out._arena)
        # Numbers on their way to the CPU would be read before they are there.
        return batch.to(target, non_blocking=target.type == "cuda")

    def batches(
        self,
        batch_size: int,
        *,
        ahead: int = 0,
        device: str | torch.device | None = None,
        train: bool = True,
    ) -> Prefetch:
        """Batches without end, `ahead` of them drawn before they are asked for.

        As `ReplayBuffer.batches`.

        Raises:
            InputError: a bad batch size, or `ahead` that is none.
            UnsupportedError: no such device.
        """
        target = self.device if device is None else known_device(device)
        size, train = whole_batch(batch_size), truth("train", train)
        return Prefetch(self, size, target, ahead=ahead, train=train)

    def _fill(self, batch: Batch, *, train: bool) -> None:
        ready = [buffer.ready() for buffer in self.buffers]
        if not any(ready):
            raise NotReadyError("no buffer of the mixture has anything to draw")
        counts, owed = self._divide(len(batch), ready)
        first = 0
        for number, count in enumerate(counts):
            if count:
                self.buffers[number]._fill(batch, first, count, train=train)
                ids = batch.ids[first : first + count]
                ids.copy_(_with_source(ids, number))
            first += count
        if train:
            self._owed = owed

    def _divide(self, batch_size: int, ready: list[bool]) -> tuple[list[int], list[float]]:
        """Rows of each buffer, and what each is owed afterwards."""
        total = math.fsum(s for s, can in zip(self.shares, ready, strict=True) if can)
        shares = [s / total if can else 0.0 for s, can in zip(self.shares, ready, strict=True)]
        if not all(ready):
            wanted = [batch_size * share for share in shares]
        else:
            wanted = [o + batch_size * s for o, s in zip(self._owed, shares, strict=True)]
        counts = [max(0, math.floor(rows)) for rows in wanted]

        def surplus(number: int) -> tuple[float, int]:
            return counts[number] - wanted[number], number

        while sum(counts) < batch_size:
            counts[min((n for n, can in enumerate(ready) if can), key=surplus)] += 1
        while sum(counts) > batch_size:  # others had drawn ahead, and gave less than nothing
            counts[max((n for n, count in enumerate(counts) if count), key=surplus)] -= 1
        if not all(ready):
            return counts, self._owed
        return counts, [rows - count for rows, count in zip(wanted, counts, strict=True)]

    @outside_capture
    def update_priorities(self, ids: Any, td_errors: Any = None, *, priorities: Any = None) -> None:
        """Set priorities of rows from their TD errors, each in the buffer it is from.

        Rows of buffers without priorities are passed over. On CUDA it waits for the device, and
        passes over ids of no row (-1), which a buffer gives there when it has nothing to draw.

        Args:
            ids: `[B]` integers, `batch.ids` of this mixture.
            td_errors: `[B]` floats.
            priorities: instead of errors, as in `ReplayBuffer.update_priorities`.

        Raises:
            UnsupportedError: no buffer is prioritized, or a CUDA graph is captured.
            InputError: As there, or ids of no buffer; buffers before the one that refuses have been
                updated.
        """
        if not self.prioritized:
            raise UnsupportedError("no buffer of this mixture has priorities")
        if (td_errors is None) == (priorities is None):
            raise InputError("update_priorities takes either td_errors or priorities=")
        given = "priorities" if td_errors is None else "td_errors"
        numbers = priorities if td_errors is None else td_errors
        values = vector(given, numbers, torch.float32, self.device)
        wanted = vector("ids", ids, torch.int64, self.device)
        if len(wanted) != len(values):
            raise InputError(
                f"given {len(wanted)} ids and {len(values)} values, expected as many of each"
            )
        sources = wanted >> SOURCE_BITS
        lowest = 0 if self.device.type == "cpu" else -1
        if bool(((wanted < lowest) | (sources >= len(self.buffers))).any()):
            raise InputError("ids are those of batches of this mixture; pass batch.ids")
        for number, buffer in enumerate(self.buffers):
            mine = sources == number
            if buffer.prioritized and bool(mine.any()):
                rows = _without_source(wanted[mine])
                buffer.update_priorities(rows, **{given: values[mine]})

    def where(self, ids: Any) -> tuple[Tensor, Tensor]:
        """Number of the buffer of each row of a batch, and its id there: int64 `[B]` each.

        Both are -1 for the id of no row.

        Raises:
            InputError: no vector of integers.
        """
        wanted = vector("ids", ids, torch.int64, self.device)
        return wanted >> SOURCE_BITS, _without_source(wanted)


def _mixed_again(
    buffers: tuple[ReplayBuffer, ...], shares: tuple[float, ...], owed: list[float]
) -> Mixture:
    mixture = Mixture(buffers, shares)
    mixture.shares, mixture._owed = shares, owed  # to the last bit
    return mixture


def _check_parts(buffers: Any, shares: Any) -> None:
    """Raise ConfigError unless a mixture can be made of these."""
    for name, values in (("buffers", buffers), ("shares", shares)):
        if not isinstance(values, list | tuple):
            raise ConfigError(f"{name} is a list, one a buffer; given {shown(values)}")
    if not 1 <= len(buffers) < MOST_BUFFERS:
        raise ConfigError(f"a mixture has 1 to {MOST_BUFFERS - 1} buffers; given {shown(buffers)}")
    for buffer in buffers:
        if not isinstance(buffer, ReplayBuffer):
            raise ConfigError(f"a mixture is made of ReplayBuffers; given {shown(buffer)}")
    if len({id(buffer) for buffer in buffers}) < len(buffers):
        raise ConfigError("a buffer is in the mixture twice; give it a larger share instead")
    if len(shares) != len(buffers) or not all(
        isinstance(share, int | float) and 0 < share < 1e300 for share in map(plain, shares)
    ):
        raise ConfigError(
            f"shares are {len(buffers)} positive numbers, one a buffer; given {shown(shares)}"
        )


def _check_alike(buffers: Any) -> None:
    """Raise ConfigError unless one batch can hold rows of all."""
    first = buffers[0]
    for number, buffer in enumerate(buffers[1:], 1):
        if buffer.device != first.device:
            raise ConfigError(
                f"buffers are on one device; the first is on {first.device}, number {number} on "
                f"{buffer.device}"
            )
        if _form(buffer) != _form(first):
            raise ConfigError(
                "buffers have the same fields, in the same order; the first has "
                f"{_form(first)}, number {number} has {_form(buffer)}"
            )


def _form(buffer: ReplayBuffer) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    columns = buffer._home.batch_layout.columns.items()
    return {name: (field.shape, field.dtype) for name, field in columns}


def _with_source(ids: Tensor, number: int) -> Tensor:
    """Ids of a mixture from ids of its buffer `number`; -1, of no row, stays -1."""
    added = ids >= w.FIRST_ADDED_ID
    rest = torch.where(added, ids - w.FIRST_ADDED_ID + (1 << ADDED_BITS), ids)
    return torch.where(ids < 0, ids, rest + (number << SOURCE_BITS))


def _without_source(ids: Tensor) -> Tensor:
    """Ids of the buffers from ids of a mixture; -1, of no row, stays -1."""
    rest = ids & ((1 << SOURCE_BITS) - 1)
    added = rest >= (1 << ADDED_BITS)
    rest = torch.where(added, rest - (1 << ADDED_BITS) + w.FIRST_ADDED_ID, rest)
    return torch.where(ids < 0, ids, rest)
