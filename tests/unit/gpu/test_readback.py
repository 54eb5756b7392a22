"""The host reads what has arrived, in order, and waits only when it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from relive.errors import UnsupportedError
from relive.gpu.readback import Readback

if TYPE_CHECKING:
    from tests.unit.gpu.conftest import Device


class OnDevice(torch.Tensor):
    """A tensor that says it is on a device."""

    @property
    def is_cpu(self) -> bool:
        return False


def there(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers).as_subclass(OnDevice)


def asked(*numbers: float, most: int = 3) -> Readback:
    """Somebody who has asked for each of these in turn."""
    readback = Readback(there(0.0), most)
    for number in numbers:
        assert readback.ask(there(number))
    return readback


def test_before_anything_has_arrived_there_is_what_it_was_made_with(device: Device) -> None:
    readback = asked(1.0, 2.0)
    assert readback.latest() == 0.0
    assert device.waited == []


@pytest.mark.parametrize(("done", "newest"), [(1, 1.0), (2, 2.0), (3, 3.0)])
def test_the_newest_that_has_arrived_is_told(device: Device, done: int, newest: float) -> None:
    readback = asked(1.0, 2.0, 3.0)
    device.done = done
    assert readback.latest() == newest
    assert readback.latest() == newest
    assert device.waited == []


def test_what_was_told_is_never_written_to_again(device: Device) -> None:
    readback, told = asked(), []
    for number in map(float, range(10)):
        readback.ask(there(number))
        device.done = device.recorded
        told.append(readback.latest())
    assert torch.cat(told).tolist() == list(range(10))


def test_a_question_too_many_is_dropped_and_the_next_one_asks_again(device: Device) -> None:
    readback = asked(1.0, 2.0, most=2)
    assert not readback.ask(there(3.0))
    device.done = 1
    assert readback.ask(there(4.0))
    device.done = device.recorded
    assert readback.latest() == 4.0
    assert device.waited == []


def test_a_copy_under_way_is_not_overwritten_by_the_next(device: Device) -> None:
    readback = asked(1.0)
    device.done = 1
    assert readback.ask(there(2.0))
    assert readback.latest() == 1.0


def test_waiting_gives_the_newest_question(device: Device) -> None:
    readback = asked(1.0, 2.0)
    assert readback.wait() == 2.0
    assert device.waited == [1, 2]
    assert readback.wait() == 2.0
    assert device.waited == [1, 2]


def test_shape_dtype_and_history(device: Device) -> None:
    words = torch.arange(6).view(2, 3).as_subclass(OnDevice)
    readback = Readback(words)
    readback.ask(words)
    assert torch.equal(readback.wait(), torch.arange(6).view(2, 3))
    loss = torch.tensor(3.0, requires_grad=True)
    readback = Readback(loss)
    readback.ask((2 * loss).as_subclass(OnDevice))
    assert readback.wait() == 6
    assert not readback.wait().requires_grad


def test_what_is_on_the_cpu_has_arrived_at_once() -> None:
    words = torch.tensor([1, 2])
    readback = Readback(words)
    assert readback.ask(words)
    words += 1
    assert readback.latest().tolist() == readback.wait().tolist() == [1, 2]


def test_during_a_capture_no_event_is_asked_and_nothing_is_queued(device: Device) -> None:
    readback = asked(1.0)
    device.done, device.capturing = 1, True
    assert readback.latest() == 0.0
    for call in (lambda: readback.ask(there(2.0)), readback.wait):
        with pytest.raises(UnsupportedError, match="cannot be captured"):
            call()
    device.capturing = False
    assert readback.latest() == 1.0
