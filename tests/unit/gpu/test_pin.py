"""Memory of the host that a GPU reads and writes is unpinned when the GPU is done, not before."""

from __future__ import annotations

import gc
import weakref
from threading import Thread
from typing import TYPE_CHECKING

import pytest
import torch

from relive.gpu import pinned
from relive.gpu.pinned import kept, pin
from tests.triton.pretended import Device, pretended
from tests.triton.pretended.failures import dead_device

if TYPE_CHECKING:
    from collections.abc import Iterator

THERE = torch.device("cuda", 0)


@pytest.fixture
def gpu() -> Iterator[Device]:
    with pretended() as device:
        yield device
        assert not pinned._let_go_of


class Lent:
    """Memory that is pinned, and whether it is there.

    Attributes:
        rows: What is pinned.
    """

    def __init__(self) -> None:
        memory = torch.arange(4.0)
        self.rows = pin(memory, THERE)
        self._memory = weakref.ref(memory.untyped_storage())

    def let_go(self) -> None:
        del self.rows
        gc.collect()

    @property
    def is_there(self) -> bool:
        return self._memory() is not None


def use(rows: torch.Tensor) -> torch.Tensor:
    return rows.to("cuda", non_blocking=True) + 1


def test_it_is_the_same_memory(gpu: Device) -> None:
    memory = torch.arange(4.0)
    rows = pin(memory, THERE)
    assert rows.is_pinned()
    rows += 1
    assert torch.equal(memory, torch.arange(1.0, 5.0))


def test_it_is_unpinned_behind_what_every_stream_does_with_it(gpu: Device) -> None:
    lent, results = Lent(), []
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            results.append(use(lent.rows))
    lent.let_go()
    gpu.memory.tell()
    assert (gpu.registered, gpu.waits) == ({}, ["torch.cuda.synchronize"])
    assert not lent.is_there
    assert [gpu.inner(result).tolist() for result in results] == [[1, 2, 3, 4]] * 2


def test_a_view_keeps_it(gpu: Device) -> None:
    lent = Lent()
    view = lent.rows[1:3]
    lent.let_go()
    assert gpu.registered
    assert view.tolist() == [1, 2]
    del view
    assert not gpu.registered


def test_let_go_of_in_a_capture_it_stays_and_the_capture_goes_on(gpu: Device) -> None:
    lent, x = Lent(), torch.zeros(4, device="cuda")
    with gpu.capture() as graph:
        x += 1
        lent.let_go()
        x += 1
    assert gpu.registered
    assert lent.is_there
    graph.replay()
    assert x.tolist() == [2, 2, 2, 2]
    pin(torch.zeros(1), THERE)  # which is let go of at once
    gpu.memory.tell()
    assert not gpu.registered
    assert not lent.is_there


def in_another_thread(lent: Lent) -> None:
    thread = Thread(target=lent.let_go)
    thread.start()
    thread.join()


def test_what_another_thread_lets_go_of_breaks_no_capture_of_ours(gpu: Device) -> None:
    lent = Lent()
    with kept(), gpu.capture():
        before = list(gpu.waits)
        in_another_thread(lent)
        assert gpu.registered
        assert gpu.waits == before
    gpu.memory.tell()
    assert not gpu.registered


def test_where_a_capture_that_nobody_told_of_refuses_the_wait_it_stays(gpu: Device) -> None:
    lent = Lent()
    with pytest.raises(torch.AcceleratorError, match="previous error"), gpu.capture():
        in_another_thread(lent)
    assert gpu.registered
    torch.cuda.set_stream(torch.cuda.default_stream())  # torch leaves that of the capture
    pin(torch.zeros(1), THERE)
    assert not gpu.registered


def test_of_a_device_that_is_lost_it_is_let_go_of_without_a_word(gpu: Device) -> None:
    lent = Lent()
    with dead_device():
        lent.let_go()
    assert not lent.is_there


def test_where_cuda_is_not_running_as_in_a_forked_child_nothing_is_asked_of_it() -> None:
    with pretended() as device:
        lent = Lent()
        device.registered.clear()
    lent.let_go()
    assert not lent.is_there
    assert not pinned._let_go_of
