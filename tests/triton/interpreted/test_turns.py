"""Calls of one buffer from several streams and threads come one after the other on the device.

The pretended device raises OrderError where two streams use one memory and neither waits.
"""

import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch

from relive import ReplayBuffer
from relive.ops.launch import launch
from tests.triton.pretended import OrderError, pretended
from tests.triton.sameness import assert_same_batch_there, assert_same_buffer_there
from tests.triton.table import BATCH, Given, arrays, new_buffer, one_step


@pytest.fixture
def device():
    with pretended() as there_is:
        yield there_is


@contextmanager
def events_recorded(monkeypatch):
    """A list that grows with each event that is recorded."""
    seen, record = [], torch.cuda.Event.record

    def note(event, stream=None):
        seen.append(event)
        record(event, stream)

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda.Event, "record", note)
        yield seen


def side_stream():
    """Another stream; what calls are given is there already."""
    torch.cuda.synchronize()
    return torch.cuda.Stream()


def everything(given):
    """A call of each kind; the batch it drew."""
    buffer = given.buffer
    buffer.add(**given.step_there)
    buffer.add(**arrays(given.step))
    batch = buffer.sample(BATCH)
    buffer.sample_range(BATCH, *given.bounds)
    buffer.update_priorities(given.ids_there, given.errors_there)
    buffer.extend(**given.times_there)
    buffer.end_episode()
    buffer.set_progress(3)
    buffer.stats()
    return batch


def everything_on_the_cpu(given, cpu):
    cpu.add(**given.step)
    cpu.add(**given.step)
    batch = cpu.sample(BATCH)
    cpu.sample_range(BATCH, *given.bounds_here)
    cpu.update_priorities(given.ids, given.errors)
    cpu.extend(**given.times)
    cpu.end_episode()
    cpu.set_progress(3)
    return batch


@pytest.mark.parametrize("kind", ["proportional", "many lanes"])
def test_streams_take_turns_without_a_wait_of_the_host(device, kind):
    given, cpu = Given(kind), new_buffer(kind, device="cpu")
    given.fill()
    cpu.extend(**given.times)
    cpu.add(**given.step)
    streams = [side_stream(), torch.cuda.default_stream(), side_stream()]
    device.lag = True
    drawn = []
    with device.forbid_waits():
        for stream in streams:
            with torch.cuda.stream(stream):
                drawn.append(everything(given))
    device.lag = False
    torch.cuda.synchronize()
    for batch in drawn:
        assert_same_batch_there(device, batch, everything_on_the_cpu(given, cpu))
    assert_same_buffer_there(device, given.buffer, cpu)


CALLS = {
    "add": lambda g: g.buffer.add(**g.step_there),
    "add, arrays": lambda g: g.buffer.add(**arrays(g.step)),
    "extend": lambda g: g.buffer.extend(**g.times_there),
    "sample": lambda g: g.buffer.sample(BATCH),
    "sample_range": lambda g: g.buffer.sample_range(BATCH, *g.bounds),
    "update_priorities": lambda g: g.buffer.update_priorities(g.ids_there, g.errors_there),
    "reseed": lambda g: g.buffer.reseed(2),
    "end_episode": lambda g: g.buffer.end_episode(),
    "clear": lambda g: g.buffer.clear(),
    "stats": lambda g: g.buffer.stats(),
    "rows": lambda g: g.buffer.rows([1]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_missing_wait_would_be_found_in_every_call(device, name, monkeypatch):
    given = Given("proportional")
    given.fill()
    sides = side_stream(), side_stream()
    given.buffer.add(**given.step_there)
    with torch.cuda.stream(sides[0]):
        CALLS[name](given)
    monkeypatch.setattr(torch.cuda.Stream, "wait_event", lambda *_: None)
    with torch.cuda.stream(sides[1]), pytest.raises(OrderError):
        CALLS[name](given)


def test_a_new_buffer_may_be_used_on_another_stream_at_once(device):
    given = Given("proportional")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        given.buffer.sample(BATCH)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        given.buffer.stats()


def test_no_event_is_recorded_while_all_calls_come_from_one_stream(device, monkeypatch):
    given = Given("proportional")
    device.launch = lambda *_: device.stream.put(lambda: None)
    quiet = [CALLS[name] for name in CALLS if name not in ("add, arrays", "stats", "rows")]
    with events_recorded(monkeypatch) as seen:  # those have events of pinned memory
        for _ in range(2):
            for call in quiet:
                call(given)
        assert seen == []
        with torch.cuda.stream(side_stream()):
            given.buffer.sample(BATCH)
        assert len(seen) == 2  # behind the call before, and behind this one


@pytest.mark.parametrize("name", ["add, arrays", "sample", "update_priorities"])
def test_a_buffer_that_is_let_go_of_is_given_to_nobody_before_all_streams_are_done(device, name):
    given = Given("ranks")
    given.fill()
    with torch.cuda.stream(side_stream()):
        CALLS[name](given)
    given.buffer = None
    gc.collect()
    device.memory.tell()


@pytest.mark.parametrize("ahead", [1, 3])
def test_batches_drawn_ahead_may_be_used_on_any_stream(device, ahead):
    given, cpu = Given("proportional"), new_buffer("proportional", device="cpu")
    given.fill()
    cpu.extend(**given.times)
    cpu.add(**given.step)
    batches, others = given.buffer.batches(BATCH, ahead=ahead), cpu.batches(BATCH, ahead=ahead)
    streams = [side_stream(), torch.cuda.default_stream(), side_stream()]
    for stream in streams * 2:
        with torch.cuda.stream(stream):
            ids = next(batches).ids + 0  # the batch itself is gone at once
        assert torch.equal(device.inner(ids), next(others).ids)
        torch.cuda.synchronize()


@contextmanager
def current_device_at_launches(monkeypatch, number):
    """A list of which device is current when kernels are launched, where it was `number` before."""
    seen, current = [], [number]

    @contextmanager
    def select(device):
        before, current[0] = current[0], device.index
        yield
        current[0] = before

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "current_device", lambda: current[0])
        patch.setattr(torch.cuda, "device", select)
        patch.setattr(launch, "listeners", [lambda *_: seen.append(current[0])])
        yield seen
        assert current == [number]


@pytest.mark.parametrize("capacity", [60, 50])
def test_kernels_are_launched_on_the_device_of_a_buffer_whichever_is_current(
    device, capacity, monkeypatch, tmp_path
):
    given = Given("proportional")
    with current_device_at_launches(monkeypatch, 1) as seen:
        everything(given)
        given.buffer.save(tmp_path)
        before = len(seen)
        loaded = ReplayBuffer.load(tmp_path, device="cuda:0", capacity=capacity)
        assert len(seen) > before  # for its sums
        loaded.grown(70)
    assert set(seen) == {0}


def test_the_device_that_was_current_is_so_again_after_a_call_that_fails(device, monkeypatch):
    given = Given("proportional")
    with torch.cuda.stream(side_stream()):
        given.buffer.sample(BATCH)  # events are recorded from now on

    def fail(*_):
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    with current_device_at_launches(monkeypatch, 1), monkeypatch.context() as patch:
        patch.setattr(torch.cuda.Event, "record", fail)
        with pytest.raises(torch.AcceleratorError):
            given.buffer.sample(BATCH)


def test_threads_with_streams_of_their_own_write_and_draw(device):
    given, number, workers = Given("proportional"), 6, 2
    given.fill()
    streams = [side_stream() for _ in range(workers)]

    def work(stream):
        with torch.cuda.stream(stream):
            for _ in range(number):
                given.buffer.add(**given.step_there)
                batch = given.buffer.sample(BATCH)
                given.buffer.update_priorities(batch.ids, given.errors_there)
            return device.inner(batch.ids).tolist()

    with device.forbid_waits(), ThreadPoolExecutor(workers) as pool:
        drawn = list(pool.map(work, streams))
    stats = given.buffer.stats(wait=True)
    assert (stats["added"], stats["samples"]) == (7 + number * workers, number * workers)
    assert all(0 <= row < stats["added"] for ids in drawn for row in ids)
    given.buffer.check()


def test_a_capture_on_a_side_stream_stands_between_calls(device):
    given, cpu = Given("proportional"), new_buffer("proportional", device="cpu")
    given.fill()
    cpu.extend(**given.times)
    cpu.add(**given.step)
    with torch.cuda.stream(side_stream()):  # several streams before, too
        given.buffer.sample(BATCH)
    cpu.sample(BATCH)
    with device.capture() as graph:
        given.buffer.add(**given.step_there)
        batch = given.buffer.sample(BATCH)
    given.buffer.add(**given.step_there)
    cpu.add(**given.step)
    graph.replay()
    given.buffer.sample(BATCH)
    cpu.add(**given.step)
    assert_same_batch_there(device, batch, cpu.sample(BATCH))
    cpu.sample(BATCH)
    assert_same_buffer_there(device, given.buffer, cpu)


def test_a_replay_is_no_call_of_the_buffer_so_its_stream_must_be_waited_for(device):
    given = Given("proportional")
    given.fill()
    with device.capture() as graph:
        given.buffer.add(**given.step_there)
    side = side_stream()
    with torch.cuda.stream(side):
        graph.replay()
    with pytest.raises(OrderError):
        given.buffer.sample(BATCH)
    torch.cuda.current_stream().wait_stream(side)
    given.buffer.sample(BATCH)


@pytest.mark.parametrize("name", CALLS)
def test_a_capture_on_another_device_is_none_of_the_buffers(device, name, monkeypatch):
    given = Given("proportional")
    given.fill()
    with current_device_at_launches(monkeypatch, 1):
        current = torch.cuda.current_device
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: current() == 1)
        CALLS[name](given)


def test_a_buffer_is_made_on_its_device_whichever_is_current(device, monkeypatch):
    with current_device_at_launches(monkeypatch, 1) as seen:
        buffer = new_buffer("ranks", device="cuda:0", on_failure="cpu")
        buffer.add(**arrays(one_step(buffer)))
        buffer.sample(BATCH)
        buffer.resort()
    assert set(seen) == {0}


def test_a_buffer_with_rows_on_the_host_is_let_go_of_behind_its_kernels(device):
    given = Given("rows on the host")
    given.fill()
    with torch.cuda.stream(side_stream()):
        given.buffer.sample(BATCH)
    given.buffer = None
    gc.collect()
    device.memory.tell()
    assert not device.registered
