"""Whether a call is captured is asked of the stream that it goes to, whichever device is current.

There are two devices here as far as `torch.cuda` tells: which is current, and where a capture is.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch

from relive import UnsupportedError
from relive.gpu.capture import is_captured, refuse_capture, require_no_capture
from relive.gpu.pinned import Slots
from relive.gpu.transfer import moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)


class Devices:
    """Which is current, and on which the current stream is being captured."""

    def __init__(self) -> None:
        self.current, self.captured = 0, 0

    @contextmanager
    def select(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, device.index
        yield
        self.current = before


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    there = Devices()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: there.current)
    monkeypatch.setattr(torch.cuda, "device", there.select)
    monkeypatch.setattr(
        torch.cuda, "is_current_stream_capturing", lambda: there.current == there.captured
    )
    return there


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("captured", [0, 1])
@pytest.mark.parametrize("device", [FIRST, SECOND])
def test_the_stream_that_is_current_on_the_device_itself_counts(
    devices: Devices, device: torch.device, captured: int, current: int
) -> None:
    devices.current, devices.captured = current, captured
    assert is_captured(device) == (device.index == captured)
    assert devices.current == current


def test_nothing_is_captured_on_the_cpu(devices: Devices) -> None:
    assert not is_captured(torch.device("cpu"))


def test_a_device_without_a_number_is_the_current_one(devices: Devices) -> None:
    devices.current = devices.captured = 1
    assert is_captured(torch.device("cuda"))


REFUSED = {
    "refuse_capture": refuse_capture,
    "require_no_capture": lambda device: require_no_capture(device, "call"),
    "Slots": lambda device: Slots(8, device).take(),
    "moved": lambda device: moved(torch.zeros(1), device),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_where_it_goes_and_only_there(
    devices: Devices, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call: Callable[[torch.device], object] = REFUSED[name]
    with pytest.raises(UnsupportedError, match="cannot be captured"):
        call(FIRST)  # where both are
    devices.current = 1
    with pytest.raises(UnsupportedError, match="cannot be captured"):
        call(FIRST)
    devices.current = 0
    if name in ("refuse_capture", "require_no_capture"):  # the others go on to what is not here
        call(SECOND)
