"""A device that is told when it gets where: what has no GPU runs against it."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from relive.gpu import capture, pinned, readback


class Device:
    """How far each stream has come, and what it is waited for.

    Attributes:
        done: number of the last event that has been reached.
        recorded: number of the last event that has been recorded.
        waited: numbers of events that the host has waited for.
        capturing: whether a capture is on.
    """

    def __init__(self) -> None:
        self.done = self.recorded = 0
        self.waited: list[int] = []
        self.capturing = False


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()

    class Stream:
        def __init__(self, device: object) -> None:
            del device  # there is one

        def wait_stream(self, stream: object) -> None:
            assert stream == "stream"

    class Event:
        number = 0  # before it is recorded it counts as reached

        def record(self, stream: object) -> None:
            assert isinstance(stream, Stream) or stream == "stream"
            device.recorded += 1
            self.number = device.recorded

        def query(self) -> bool:
            return self.number <= device.done

        def synchronize(self) -> None:
            device.waited.append(self.number)
            device.done = max(device.done, self.number)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "stream")
    for module in (capture, readback):
        monkeypatch.setattr(module, "is_captured", lambda _: device.capturing)
    monkeypatch.setattr(pinned, "pinned_memory", lambda n: torch.zeros(n, dtype=torch.uint8))
    return device
