"""Where a buffer lives: its memory, and what writes into it and draws from it there.

A buffer whose GPU fails it moves: it gets another home, on the CPU, with what was in the first one.
Nothing here takes a lock or makes a call again; `ReplayBuffer` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from relive.batch import Batch, BatchLayout
from relive.devices import known_device
from relive.errors import ConfigError, InputError, NotReadyError
from relive.fallback import Fallback, lost, tell
from relive.gpu.failures import (
    DeviceFailure,
    keep,
    loses_the_device,
    reason,
    spares_the_device,
)
from relive.gpu.readback import Readback
from relive.ops import words as w
from relive.ops.dispatch import operations
from relive.ops.window import reference as windows
from relive.settings import in_host_memory
from relive.storage import memory, statistics
from relive.storage.evacuation import evacuate
from relive.storage.lending import Lender
from relive.storage.rings import ring_of_frames
from relive.writing.device_intake import DeviceIntake
from relive.writing.intake import Intake

if TYPE_CHECKING:
    from torch import Tensor

    from relive.settings import Settings


class Home:
    """An empty buffer's parts, on the device of its settings.

    Args:
        settings: Of the buffer.
        batch_layout: Of the batches it has given out; None for one that has given out none.

    Attributes:
        settings: Of the buffer.
        layout: Of a step as it is packed.
        row_layout: Of a row; another one where frames are kept once.
        batch_layout: Of a batch.
        state: All memory of it.
        device: Where that is.
        ops: The operations there.
        intake: Checks and packs what is added, and writes it.
        batches: Makes batches there.
        numbers: Reads statistics back from a GPU; None on the CPU.
        guard: Makes calls again on the CPU where the GPU fails them; None where that is not asked.
        failure: What drove the buffer here from its GPU; None if nothing did.
        batches_on: Where batches go then: where they went; None where they stay here.

    Raises:
        ConfigError: More memory than is free.
    """

    def __init__(self, settings: Settings, batch_layout: BatchLayout | None = None) -> None:
        self.settings = settings
        self.layout, self.row_layout = settings.layouts()
        self.batch_layout = BatchLayout(self.layout) if batch_layout is None else batch_layout
        self.state = settings.new_state(self.layout, self.row_layout, self.batch_layout)
        self.device = self.state.words.device
        self.ops = operations(self.device, settings.kernels)
        on_gpu = self.device.type != "cpu"
        intake = DeviceIntake if on_gpu else Intake
        with torch.inference_mode(False):  # as the state: for use in and outside of it
            self.intake = intake(self.state, self.ops, self.layout, settings.resets)
        self.batches = Lender(self.batch_layout, self.device)
        self.numbers = Readback(statistics.gather(self.state)) if on_gpu else None
        is_guarded = on_gpu and settings.on_failure == "cpu"
        self.guard = Fallback(self.device) if is_guarded else None
        self.failure: DeviceFailure | None = None
        self.batches_on: torch.device | None = None

    @classmethod
    def made(cls, settings: Settings) -> Home:
        """For these settings; with on_failure="cpu" on the CPU, where a GPU has no room for it.

        Raises:
            DeviceLostError: The GPU is lost.
        """
        try:
            return cls(settings)
        except (RuntimeError, ConfigError) as error:
            device = known_device(settings.device)
            if device.type == "cpu" or settings.on_failure == "raise":
                raise
            if loses_the_device(error):
                raise lost(device, error) from error
            if not (isinstance(error, memory.DoesNotFitError) or spares_the_device(error)):
                raise
            failure = DeviceFailure(str(device), reason(error), 0, 0, prioritized=False)
        tell(failure)
        home = cls(in_host_memory(settings))
        home.failure, home.batches_on = failure, device
        return home

    def moved(self, why: str, tensors: dict[str, Tensor]) -> Home:
        """One on the CPU, with what these tensors of the state hold; this one is left as it is.

        Raises:
            ConfigError: There is no room.
            CorruptError: That is the state of no buffer.
        """
        home = Home(in_host_memory(self.settings), self.batch_layout)
        evacuate(tensors, home.state)
        home.intake.refresh()
        rows, frames = windows.num_rows(home.state), ring_of_frames(home.state)
        home.failure = DeviceFailure(
            device=str(self.device),
            reason=why,
            rows=rows,
            nbytes=rows * home.row_layout.row_bytes + frames.num_held * frames.memory.shape[1],
            prioritized=self.settings.sampler.prioritized,
        )
        home.batches_on = self.device
        return home

    def memory(self) -> list[Tensor]:
        """All tensors that it keeps on its GPU."""
        return [*self.state.memory(), *self.intake.memory()]

    def keep(self) -> None:
        """Its GPU is lost: what torch could not let go of then stays; rows on the host do not."""
        keep(self.memory(), self.intake.pinned, self.numbers)

    # Batches

    def empty_batch(self, batch_size: int) -> Batch:
        """A new batch where batches go; its values mean nothing yet."""
        if self.batches_on is not None:
            return Lender(self.batch_layout, self.batches_on).make(batch_size)
        return self.batches.make(batch_size)

    def there(self, batch: Batch) -> Batch:
        """A batch where batches go, which is not here once the buffer has moved."""
        return batch if self.batches_on is None else batch.to(self.batches_on)

    def require_fits(self, batch: Any, batch_size: int) -> None:
        """Refuse to draw so many rows into what is no batch of this buffer, or of another size."""
        is_own = isinstance(batch, Batch) and batch._layout is self.batch_layout
        fits = is_own and batch._size == batch_size
        if fits and batch._arena.device in (self.device, self.batches_on):
            return
        given = type(batch).__name__
        if isinstance(batch, Batch):
            given = f"one of {len(batch)} rows" if is_own else "one of another buffer"
            given += f" on {batch.device}"
        raise InputError(
            f"out is a batch made by this buffer's empty_batch({batch_size}); given {given}"
        )

    def draw(
        self,
        batch: Batch,
        first: int,
        count: int,
        *,
        train: bool,
        ids: tuple[int, int] | Tensor | None,
    ) -> None:
        """Draw `count` rows into a batch, from its row `first` on.

        Raises:
            NotReadyError: Nothing can be drawn.
            InputError: No row has one of these ids.
        """
        if self.batches_on is not None and batch._arena.device != self.device:  # from before
            drawn = self.batches.lend(len(batch))
            self.draw(drawn, first, count, train=train, ids=ids)
            batch._take(drawn, slice(first, first + count))
            return
        outcome = self.ops.sample(
            self.state,
            batch._arena,
            count,
            train=train,
            ids=ids,
            first=first,
            total=len(batch),
        )
        if outcome != w.NOTHING_TO_DRAW:
            return
        if ids is not None and not len(windows.held_between(self.state, *ids)):
            oldest, newest = windows.ring_range(self.state)
            raise InputError(
                f"no row has an id in [{ids[0]}, {ids[1]}); the ring holds [{oldest}, {newest})"
            )
        held = windows.num_rows(self.state)
        why = "all priorities are 0" if held else "no row has been written yet"
        raise NotReadyError(
            f"nothing can be drawn: {why}{self.waiting()}; ask ready(batch_size) first"
        )

    def waiting(self) -> str:
        """In words, the steps that wait for their n-step windows; nothing if there are none."""
        waiting = int(self.state.lanes[:, w.LANE_COUNT].sum())
        return (
            f" ({waiting} steps wait for their n-step windows to fill; end_episode() writes them)"
            if waiting
            else ""
        )
