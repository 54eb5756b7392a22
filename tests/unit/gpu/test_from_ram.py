"""Batches of a buffer in RAM on a device that lags: it copies only when it is waited for.

What is drawn over too early, read too early, or used by a stream that has not waited, is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from relive import (
    Batch,
    Field,
    Mixture,
    Proportional,
    ReplayBuffer,
    Uniform,
    UnsupportedError,
)
from relive.gpu.pinned import MOST
from relive.gpu.readback import Readback
from tests.triton.pretended import Device, pretended
from tests.unit.unchanged import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relive.sampling import Sampler

FIELDS = {
    "obs": Field((3,)),
    "action": Field((), torch.int64),
    "done_before": Field((), torch.bool),
}
B = 16


@pytest.fixture
def gpu() -> Iterator[Device]:
    with pretended() as device:
        device.lag = True
        yield device


def filled(sampler: Sampler | None = None, seed: int = 0) -> ReplayBuffer:
    buffer = ReplayBuffer(64, FIELDS, sampler=sampler or Uniform(), seed=seed)
    number = torch.arange(50)
    buffer.extend(
        obs=number[:, None].expand(-1, 3).float(),
        action=number,
        reward=number.float(),
        next_obs=number[:, None].expand(-1, 3).float() + 1,
        terminated=number % 7 == 0,
        done_before=number % 5 == 0,
    )
    return buffer


def arrived(device: Device, batch: Batch) -> dict[str, torch.Tensor]:
    """Its fields as they are on the device now."""
    arena = device.inner(batch._arena)
    return values(Batch(batch._layout, arena, len(batch), batch._offsets))


def values(batch: Batch) -> dict[str, torch.Tensor]:
    return {name: batch._view(name).clone() for name in batch._layout.columns}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("where", ["cuda", "cuda:0", torch.device("cuda")])
def test_a_batch_is_sent_without_waiting(gpu: Device, where: str | torch.device) -> None:
    buffer, plain = filled(Proportional()), filled(Proportional())
    with gpu.forbid_waits():
        batch = buffer.sample(B, device=where)
        assert batch.device == torch.device("cuda:0")
        assert batch.obs.is_cuda
        assert batch.to("cuda") is batch
    assert not same(arrived(gpu, batch), values(plain.sample(B)))  # it is on its way
    gpu.catch_up()
    plain.reseed(0)
    assert same(arrived(gpu, batch), values(plain.sample(B)))


def test_what_is_under_way_is_not_drawn_over_and_the_host_is_held_back(gpu: Device) -> None:
    buffer, plain = filled(), filled()
    with gpu.forbid_waits():
        batches = [buffer.sample(B, device="cuda") for _ in range(MOST)]
    batches += [buffer.sample(B, device="cuda") for _ in range(MOST)]
    assert len(gpu.waits) == MOST
    gpu.catch_up()
    for batch in batches:
        assert same(arrived(gpu, batch), values(plain.sample(B)))


def test_a_device_that_keeps_up_is_never_waited_for(gpu: Device) -> None:
    gpu.lag = False
    buffer, plain = filled(), filled()
    with gpu.forbid_waits():
        for _ in range(3 * MOST):
            batch = buffer.sample(B, device="cuda")
            assert same(arrived(gpu, batch), values(plain.sample(B)))


def test_batches_of_two_sizes_have_memory_of_their_own(gpu: Device) -> None:
    buffer, plain = filled(), filled()
    sizes = [B, 3, B, 5, 3, 7, 9, B]
    batches = [buffer.sample(size, device="cuda") for size in sizes]
    gpu.catch_up()
    for size, batch in zip(sizes, batches, strict=True):
        assert same(arrived(gpu, batch), values(plain.sample(size)))


def test_during_a_capture_it_is_refused_and_nothing_is_drawn(gpu: Device) -> None:
    buffer = filled()
    batches = buffer.batches(B, ahead=1, device="cuda")
    next(batches)
    for call in (
        lambda: buffer.sample(B, device="cuda"),
        lambda: next(batches),
        lambda: next(buffer.batches(B, device="cuda")),
    ):
        with (
            refused(buffer, UnsupportedError, "cannot be captured in a CUDA graph"),
            gpu.capture(),
        ):
            call()


@pytest.mark.parametrize("ahead", [0, 1, 3, MOST + 1])
def test_batches_drawn_ahead_arrive_before_they_are_used(gpu: Device, ahead: int) -> None:
    buffer, plain = filled(), filled()
    batches, sums, expected = buffer.batches(B, ahead=ahead, device="cuda"), [], []
    for _ in range(12):
        sums.append(next(batches).obs.sum(0))
        expected.append(plain.sample(B).obs.sum(0))
    torch.cuda.synchronize()
    assert torch.equal(torch.stack(list(map(gpu.inner, sums))), torch.stack(expected))


@pytest.mark.parametrize("ahead", [1, 2])
def test_drawn_ahead_on_a_device_that_keeps_up_nothing_waits(gpu: Device, ahead: int) -> None:
    gpu.lag = False
    batches = filled().batches(B, ahead=ahead, device="cuda")
    with gpu.forbid_waits():
        for _ in range(10):
            next(batches).obs.sum()


def test_the_copies_do_not_run_behind_the_work_of_the_stream_in_use(gpu: Device) -> None:
    batches = filled().batches(B, ahead=1, device="cuda")
    next(batches)
    here = torch.cuda.current_stream()
    side = next(stream for stream in gpu.streams if stream is not here)
    before = side.issued
    next(batches)
    assert side.issued > before
    assert here not in side.seen  # the copies wait for nothing


@pytest.mark.parametrize("is_resumed", [False, True])
def test_memory_that_the_stream_in_use_still_reads_is_kept_from_the_copies(
    gpu: Device, is_resumed: bool
) -> None:
    gpu.lag = False
    buffer = filled()
    batches, sides = buffer.batches(B, ahead=2, device="cuda"), [torch.cuda.Stream() for _ in "ab"]
    for _ in range(4):
        for side in sides:
            if is_resumed:
                state, batches = batches.state_dict(), buffer.batches(B, ahead=2, device="cuda")
                batches.load_state_dict(state)
            with torch.cuda.stream(side):
                next(batches).obs.sum()
    gpu.memory.tell()


def test_it_may_be_used_on_any_stream(gpu: Device) -> None:
    buffer, plain = filled(), filled()
    batches = buffer.batches(B, ahead=2, device="cuda")
    for _ in range(5):
        with torch.cuda.stream(torch.cuda.Stream()):
            total = next(batches).obs.sum()
            assert float(total) == float(plain.sample(B).obs.sum())


def test_what_is_drawn_ahead_can_be_saved_from_the_device_and_taken_there(gpu: Device) -> None:
    buffer = filled(Proportional())
    batches = buffer.batches(B, ahead=2, device="cuda")
    next(batches)
    others = filled(Proportional())
    others.load_state_dict(buffer.state_dict())
    again = others.batches(B, ahead=2, device="cuda")
    again.load_state_dict(batches.state_dict())
    for _ in range(5):
        one, other = next(batches), next(again)
        assert other.obs.is_cuda
        gpu.catch_up()
        assert same(arrived(gpu, one), arrived(gpu, other))


def test_priorities_come_back_from_the_device(gpu: Device) -> None:
    buffer, plain = (filled(Proportional()) for _ in range(2))
    for _ in range(3):
        batch, expected = buffer.sample(B, device="cuda"), plain.sample(B)
        buffer.update_priorities(batch.ids, batch.reward)
        plain.update_priorities(expected.ids, expected.reward)
    assert torch.equal(*(b.priorities(b.live_ids()) for b in (buffer, plain)))


def test_a_mixture_sends_its_batches_too(gpu: Device) -> None:
    mixture, plain = (Mixture([filled(seed=1), filled(seed=2)], [1, 2]) for _ in range(2))
    batches = mixture.batches(B, ahead=1, device="cuda")
    given = [mixture.sample(B, device="cuda"), next(batches), next(batches)]
    gpu.catch_up()
    for batch in given:
        assert same(arrived(gpu, batch), values(plain.sample(B)))


def test_an_answer_is_of_the_moment_of_its_question(gpu: Device) -> None:
    words = torch.zeros(4, dtype=torch.int64, device="cuda")
    readback = Readback(words)
    for number in range(3):
        with gpu.forbid_waits():
            words += 1
            assert readback.ask(words)
            assert readback.latest().tolist() == [min(number, 1)] * 4
        if number == 0:
            gpu.catch_up()
            assert readback.latest().tolist() == [1] * 4
    assert readback.latest().tolist() == [1] * 4
    words += 1
    assert readback.wait().tolist() == [3] * 4
    assert readback.latest().tolist() == [3] * 4


def test_questions_too_many_are_dropped_without_waiting(gpu: Device) -> None:
    words = torch.zeros(1, device="cuda")
    readback = Readback(words, most=2)
    with gpu.forbid_waits():
        assert [readback.ask(words) for _ in range(4)] == [True, True, False, False]
    words += 1
    gpu.catch_up()
    assert readback.ask(words)
    assert readback.wait().tolist() == [1]
