"""Batches for another device are drawn into pinned memory that no copy is reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from relive.batch import BatchLayout
from relive.errors import InputError, UnsupportedError
from relive.fields import Field, RowLayout
from relive.gpu import pinned
from relive.gpu.pinned import pinned_memory as really_pinned
from relive.storage.sending import KEPT, Sender

if TYPE_CHECKING:
    from relive.batch import Batch
    from tests.unit.gpu.conftest import Device

THERE = torch.device("cpu")  # events make the difference, not where the memory is


def new_sender() -> Sender:
    return Sender(BatchLayout(RowLayout({"obs": Field((3,)), "action": Field()}, 16)))


class Draw:
    """Numbers the batches that it fills, and remembers their memory."""

    def __init__(self) -> None:
        self.memory: list[int] = []

    def __call__(self, batch: Batch) -> None:
        batch.ids.fill_(len(self.memory))
        batch.obs.fill_(len(self.memory) + 0.5)
        self.memory.append(batch._arena.data_ptr())


def test_the_batch_is_a_copy_of_what_was_drawn(device: Device) -> None:
    batch = new_sender().send(5, THERE, draw := Draw())
    assert batch.ids.tolist() == [0] * 5
    assert batch.obs.tolist() == [[0.5] * 3] * 5
    assert batch._arena.data_ptr() != draw.memory[0]


def test_pinned_memory_is_drawn_into_again_only_behind_its_event(device: Device) -> None:
    sender, draw = new_sender(), Draw()
    batches = [sender.send(5, THERE, draw) for _ in range(pinned.MOST)]
    assert len(set(draw.memory)) == pinned.MOST
    assert device.waited == []
    device.done = 2
    batches += [sender.send(5, THERE, draw) for _ in range(3)]
    assert draw.memory[-3:] == draw.memory[:3]
    assert device.waited == [3]
    assert [int(batch.ids[0]) for batch in batches] == list(range(pinned.MOST + 3))


def test_a_draw_that_fails_gives_its_memory_back(device: Device) -> None:
    sender, draw = new_sender(), Draw()

    def fail(batch: Batch) -> None:
        draw(batch)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sender.send(5, THERE, fail)
    device.done = device.recorded
    sender.send(5, THERE, draw)
    assert len(set(draw.memory)) == 1


def test_memory_of_the_sizes_used_last_is_kept(device: Device) -> None:
    sender = new_sender()

    def memory(size: int) -> Any:
        return sender._slots.get((THERE, size))

    for size in range(1, KEPT + 1):
        sender.send(size, THERE, Draw())
    kept = memory(1)
    sender.send(1, THERE, Draw())
    sender.send(KEPT + 1, THERE, Draw())
    assert memory(1) is kept
    assert memory(2) is None
    assert len(sender._slots) == KEPT


def test_memory_that_is_not_to_be_had_is_refused_before_anything_is_drawn(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned, "pinned_memory", really_pinned)
    draw = Draw()
    with pytest.raises(InputError, match="pinned memory are not to be had"):
        new_sender().send(1 << 40, THERE, draw)
    assert draw.memory == []


def test_during_a_capture_it_is_refused_before_anything_is_drawn(device: Device) -> None:
    device.capturing, draw = True, Draw()
    with pytest.raises(UnsupportedError, match="cannot be captured"):
        new_sender().send(5, THERE, draw)
    assert draw.memory == []
