"""Work is captured whatever other threads do with the device meanwhile."""

from __future__ import annotations

import gc
from threading import Thread
from typing import TYPE_CHECKING

import pytest
import torch

from relive.gpu.capture import NotNowError
from relive.gpu.pinned import pin
from relive.training.capture import WARM_UP, Graphs
from tests.triton.pretended import Device, pretended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def gpu() -> Iterator[Device]:
    with pretended() as device:
        yield device


def in_another_thread(work: Callable[[], object]) -> None:
    """Does it; raises what it raises."""
    found: list[BaseException] = []

    def kept() -> None:
        try:
            work()
        except BaseException as error:
            found.append(error)

    thread = Thread(target=kept)
    thread.start()
    thread.join()
    for error in found:
        raise error


class Beside:
    """What another thread does during a capture, once."""

    def __init__(self, what: Callable[[], object]) -> None:
        self._what, self.times = what, 0

    def __call__(self) -> None:
        if torch.cuda.is_current_stream_capturing():
            self.times += 1
            in_another_thread(self._what)


def captured(beside: Beside) -> torch.Tensor:
    """A counter, after one replay of work beside which something else happens."""
    graphs, counter = Graphs(), torch.zeros(1, device="cuda")

    def work() -> None:
        counter.add_(1)
        beside()
        counter.add_(1)

    for _ in range(WARM_UP + 1):
        graphs.run("work", work)
    assert ("work" in graphs, beside.times) == (True, 1)
    return counter


BESIDE = {
    "reads": lambda: torch.ones(2, device="cuda").tolist(),
    "copies": lambda: torch.ones(2).pin_memory().to("cuda", non_blocking=True),
    "asks an event": lambda: torch.cuda.current_stream().record_event().query(),
    "waits for its stream": lambda: torch.cuda.current_stream().synchronize(),
}


@pytest.mark.parametrize("what", BESIDE)
def test_another_thread_may_use_the_device_meanwhile(gpu: Device, what: str) -> None:
    assert captured(Beside(BESIDE[what])).item() == 2 * (WARM_UP + 1)


def test_pinned_memory_that_another_thread_lets_go_of_goes_back_afterwards(gpu: Device) -> None:
    lent = [pin(torch.zeros(4), torch.device("cuda", 0))]

    def let_go() -> None:
        lent.clear()
        gc.collect()

    captured(Beside(let_go))
    gpu.memory.tell()
    assert not gpu.registered


def test_the_first_capture_may_be_put_off(gpu: Device) -> None:
    graphs, counter, saving = Graphs(), torch.zeros(1, device="cuda"), [True]

    def work() -> None:
        counter.add_(1)
        if saving and torch.cuda.is_current_stream_capturing():
            raise NotNowError("a save is under way")

    for _ in range(WARM_UP + 1):
        graphs.run("work", work)
    assert ("work" in graphs, counter.item()) == (False, WARM_UP + 1)
    saving.clear()
    gc.collect()  # torch gives back the pool of a graph that nobody holds
    for _ in range(WARM_UP + 1):
        graphs.run("work", work)
    assert ("work" in graphs, counter.item()) == (True, 2 * (WARM_UP + 1))
