"""Pinned memory comes back when the copy that used it is over, and not before."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch

from relive.errors import InputError, UnsupportedError
from relive.gpu.pinned import Slot, Slots, pinned_memory

if TYPE_CHECKING:
    from tests.unit.gpu.conftest import Device

STREAM, THERE = "stream", torch.device("cuda", 0)


def send(slots: Slots) -> int:
    """Address of the memory that the next copy uses."""
    slot = slots.take()
    slots.sent(slot, STREAM)
    return slot.memory.data_ptr()


def test_a_slot_has_the_bytes_that_were_asked_for(device: Device) -> None:
    assert Slots(24, THERE).take().memory.shape == (24,)


def test_a_slot_whose_copy_is_over_is_used_again(device: Device) -> None:
    slots = Slots(8, THERE)
    first = send(slots)
    device.done = 1
    assert send(slots) == first


def test_a_slot_whose_copy_is_under_way_is_left_alone(device: Device) -> None:
    slots = Slots(8, THERE, most=4)
    assert len({send(slots) for _ in range(4)}) == 4
    assert device.waited == []


def test_when_as_many_as_allowed_are_under_way_the_oldest_is_waited_for(device: Device) -> None:
    slots = Slots(8, THERE, most=3)
    sent = [send(slots) for _ in range(3)]
    assert [send(slots) for _ in range(4)] == [*sent, sent[0]]
    assert device.waited == [1, 2, 3, 4]


def test_while_there_may_be_more_only_the_oldest_is_asked_for(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Slot] = []
    slots, is_free = Slots(8, THERE, most=3), Slot.is_free
    monkeypatch.setattr(Slot, "is_free", lambda slot: asked.append(slot) or is_free(slot))
    sent = [send(slots) for _ in range(3)]
    assert [slot.memory.data_ptr() for slot in asked] == [sent[0]] * 2


def test_a_slot_in_somebodys_hands_is_given_to_nobody_else(device: Device) -> None:
    slots = Slots(8, THERE, most=1)
    held = [slots.take() for _ in range(3)]
    assert len({slot.memory.data_ptr() for slot in held}) == 3
    slots.sent(held[1], STREAM)
    assert slots.take() is held[1]


def test_no_slot_is_ever_given_out_before_its_event(device: Device) -> None:
    slots, order = Slots(8, THERE, most=3), random.Random(0)
    event_of: dict[int, int] = {}
    for _ in range(1000):
        device.done = order.randint(device.done, device.recorded)
        slot = slots.take()
        assert event_of.get(slot.memory.data_ptr(), 0) <= device.done
        slots.sent(slot, STREAM)
        event_of[slot.memory.data_ptr()] = device.recorded
    assert len(event_of) == 3
    assert device.waited


def test_during_a_capture_it_is_refused_and_nothing_is_taken(device: Device) -> None:
    slots = Slots(8, THERE, most=1)
    sent = send(slots)
    device.capturing, device.done = True, 1
    with pytest.raises(UnsupportedError, match=r"cannot be captured .* pass tensors that are on"):
        slots.take()
    device.capturing = False
    assert send(slots) == sent


@pytest.mark.parametrize("nbytes", [1 << 60, 1 << 70])
def test_memory_that_is_not_to_be_had_is_refused(nbytes: int) -> None:
    with pytest.raises(InputError, match="GB of pinned memory are not to be had"):
        pinned_memory(nbytes)
