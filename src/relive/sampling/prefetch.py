"""Batches without end, some of them drawn and on their way before they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from relive.batch import Batch
from relive.declared import is_whole, plain
from relive.errors import InputError, shown
from relive.gpu.capture import refuse_capture

if TYPE_CHECKING:
    from torch import Tensor


class Source(Protocol):
    """Where batches come from."""

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        ...

    def sample(self, batch_size: int, *, train: bool, device: torch.device | None) -> Batch:
        """Draw rows; None leaves them where they are."""
        ...

    def empty_batch(self, batch_size: int) -> Batch:
        """A batch whose values mean nothing yet."""
        ...


class Drawn(NamedTuple):
    """A batch that has not been asked for yet.

    Attributes:
        batch: on its device.
        event: reached when it has arrived there; None if it is given at once, or has arrived.
    """

    batch: Batch
    event: torch.cuda.Event | None


class Prefetch(Iterator[Batch]):
    """Batches of a buffer, as `ReplayBuffer.batches` describes them; for one thread at a time.

    Args:
        source: a buffer.
        batch_size: B.
        device: where the batches go, a CUDA device with its number.
        ahead: batches drawn before they are asked for.
        train: as in `ReplayBuffer.sample`.

    Raises:
        InputError: `ahead` is no whole number of at least 0.
    """

    def __init__(
        self, source: Source, batch_size: int, device: torch.device, *, ahead: int, train: bool
    ) -> None:
        ahead = plain(ahead)
        if not is_whole(ahead, 0):
            raise InputError(f"ahead is a whole number >= 0; given {shown(ahead)}")
        self._source, self._batch_size, self._device = source, batch_size, device
        self._ahead, self._train = ahead, train
        self._moved_to = None if device == source.device else device
        self._drawn: deque[Drawn] = deque()
        # What a device computes and what it is sent run side by side on two streams only.
        crosses = ahead and device.type == "cuda" and source.device.type == "cpu"
        self._side = torch.cuda.Stream(device) if crosses else None  # type: ignore[no-untyped-call]

    def __next__(self) -> Batch:
        """The next batch; draws as many as are missing ahead of it.

        Raises:
            NotReadyError: nothing can be drawn yet; what is drawn already is kept, ask again later.
            UnsupportedError: batches drawn ahead, and the current stream is being captured.
        """
        if self._ahead and self._device.type == "cuda":
            refuse_capture(self._device)
        while len(self._drawn) <= self._ahead:
            self._drawn.append(self._draw())
        return self._arrived(self._drawn.popleft())

    def state_dict(self) -> dict[str, Any]:
        """Copies of the batches drawn ahead, to go on exactly there. Waits for the device.

        Raises:
            UnsupportedError: The current stream is being captured.
        """
        if self._device.type == "cuda":
            refuse_capture(self._device)
        drawn = [_columns(self._arrived(one)) for one in self._drawn]
        return {
            "drawn": [
                {name: values.to("cpu", copy=True) for name, values in columns.items()}
                for columns in drawn
            ]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the batches drawn ahead that `state_dict` gave.

        Args:
            state: of batches of the same size, of a buffer with the same fields. The state of that
                buffer, saved at the same moment, is another matter.

        Raises:
            InputError: this is no such thing; nothing has changed then.
        """
        drawn = state.get("drawn") if isinstance(state, dict) else None
        form = _form(_columns(self._source.empty_batch(self._batch_size)))
        if not isinstance(drawn, list) or any(_form(columns) != form for columns in drawn):
            raise InputError(
                f"state is what state_dict() gave for batches of {self._batch_size} rows with the "
                f"fields {', '.join(form)}; given {shown(state)}"
            )
        self._drawn = deque(self._noted(self._batch_of(columns)) for columns in drawn)

    def _draw(self) -> Drawn:
        if self._side is None:
            return self._noted(self._sample())
        with torch.cuda.stream(self._side):
            return self._noted(self._sample())

    def _noted(self, batch: Batch) -> Drawn:
        """A batch of the current stream, which may be asked for on another one later."""
        if self._ahead and self._device.type == "cuda":
            return Drawn(batch, torch.cuda.current_stream(self._device).record_event())
        return Drawn(batch, None)

    def _sample(self) -> Batch:
        return self._source.sample(self._batch_size, train=self._train, device=self._moved_to)

    def _arrived(self, drawn: Drawn) -> Batch:
        """A batch that the current stream may use: the stream waits for its copy, not the host."""
        if drawn.event is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(drawn.event)
            # its memory is of the stream it was drawn on, which must not use it again too early
            drawn.batch._arena.record_stream(stream)
        return drawn.batch

    def _batch_of(self, columns: dict[str, Tensor]) -> Batch:
        batch = self._source.empty_batch(self._batch_size)
        for name, view in _columns(batch).items():
            view.copy_(columns[name])
        return batch.to(self._device)


def _columns(batch: Batch) -> dict[str, Tensor]:
    """Every field by its column."""
    return {name: batch._view(name) for name in batch._layout.columns}


def _form(columns: Any) -> dict[str, Any]:
    """Shapes and dtypes of fields; empty for what are none."""
    if not isinstance(columns, dict) or not all(map(torch.is_tensor, columns.values())):
        return {}
    return {name: (values.shape, values.dtype) for name, values in columns.items()}
