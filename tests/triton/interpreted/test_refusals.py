"""What a buffer on a GPU does where there is nothing, and with what is wrong.

What the host can tell is refused with a typed error before anything has changed; what only the
device knows (ids, priorities, numbers) is skipped and counted, since the host does not wait.
"""

import math

import numpy as np
import pytest
import torch

from relive import (
    ConfigError,
    Field,
    InputError,
    Proportional,
    ReplayBuffer,
    UnsupportedError,
)
from relive.ops import dispatch
from tests.triton.pretended import pretended
from tests.triton.table import BATCH, Given, arrays, new_buffer, there


@pytest.fixture
def device():
    with pretended() as there_is:
        yield there_is


def counted(buffer, *names):
    stats = buffer.stats(wait=True)
    return [stats[name] for name in names]


def assert_is_of_nothing(device, batch):
    assert device.inner(batch.ids).tolist() == [-1] * BATCH
    for name in ("weights", "obs", "reward", "discount"):
        assert not device.inner(batch[name]).any(), name


@pytest.mark.parametrize("kind", ["uniform", "proportional", "ranks", "sweeps", "many lanes"])
def test_an_empty_buffer_gives_batches_of_nothing_and_counts_them(device, kind):
    given = Given(kind)
    buffer = given.buffer
    with device.forbid_waits():
        assert not buffer.ready()
        batches = [buffer.sample(BATCH), buffer.sample(BATCH, out=given.out)]
        batches.append(buffer.sample_range(BATCH, *given.bounds))
        if buffer.prioritized:
            buffer.update_priorities(batches[0].ids, given.errors_there)
    for batch in batches:
        assert_is_of_nothing(device, batch)
    skipped = BATCH if buffer.prioritized else 0
    assert counted(buffer, "empty_samples", "stale_updates") == [3, skipped]
    buffer.check()


def test_where_all_priorities_are_0_batches_are_of_nothing_too(device):
    given = Given("uniform", sampler=Proportional(eps=0.0))
    buffer = given.buffer
    given.fill()
    ids = buffer.live_ids()
    with device.forbid_waits():
        buffer.update_priorities(ids, torch.zeros(len(ids), device="cuda"))
        assert buffer.ready(len(ids))  # the host does not know priorities
        assert_is_of_nothing(device, buffer.sample(BATCH))
        assert_is_of_nothing(device, buffer.sample_range(BATCH, *given.bounds))
    assert counted(buffer, "empty_samples") == [2]


@pytest.mark.parametrize(("start", "stop", "gone"), [(5, 5, 0), (900, 990, 0), (1, 4, 3)])
def test_a_range_without_rows_gives_nothing_and_counts_rows_that_are_gone(
    device, start, stop, gone
):
    given = Given("proportional", capacity=3)
    given.fill()  # 7 rows
    batch = given.buffer.sample_range(BATCH, start, stop)
    assert_is_of_nothing(device, batch)
    assert counted(given.buffer, "range_rows_gone", "empty_samples") == [gone, 1]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("kind", ["proportional", "ranks", "proportional, largest now"])
def test_ids_that_are_not_held_and_bad_errors_are_skipped_and_counted(device, kind):
    given = Given(kind, capacity=3)
    given.fill()  # ids 4, 5, 6 are held
    buffer, held = given.buffer, [4, 5, 6]
    before = buffer.priorities(held)
    ids = there(torch.tensor([0, 3, 7, 1 << 40, -1, -(1 << 40), 4, 5, 6]))
    errors = there(torch.tensor([1.0] * 6 + [NAN, INF, -INF]))
    with device.forbid_waits():
        buffer.update_priorities(ids, errors)
    numbers = counted(buffer, "stale_updates", "bad_priorities", "priority_updates")
    assert numbers == [6, 3, 9]
    assert buffer.priorities(held).tolist() == before.tolist()  # kept, or the largest: 1 before any
    buffer.check()


def test_values_that_the_stored_dtype_cannot_hold_are_counted_from_the_device_too(device):
    given = Given("uniform, fewer bits")
    far = {**given.step_there, "obs": given.step_there["obs"] + 7}
    with device.forbid_waits():
        given.buffer.add(**far)
    assert counted(given.buffer, "out_of_range") == [10]


WRONG = {
    "shape": {"obs": torch.zeros(1, 4)},
    "dtype": {"action": torch.zeros(1)},
    "final_obs": {"final_obs": torch.zeros(1, 3)},
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("place", ["host", "device"])
def test_a_step_that_does_not_fit_is_refused_before_anything_has_changed(device, what, place):
    given = Given("uniform")
    step = {**given.step, **WRONG[what]}
    before = given.buffer._home.intake.rows
    with device.forbid_waits():
        with pytest.raises(InputError, match=what.partition("_")[0] if "_" in what else "given"):
            given.buffer.add(**(there(step) if place == "device" else arrays(step)))
        assert given.buffer._home.intake.rows == before == 0
    assert len(given.buffer) == 0


def test_flags_on_the_device_need_final_observations_at_every_step(device):
    given = Given("same step")
    step = {name: value for name, value in given.step_there.items() if name != "final_obs"}
    with device.forbid_waits(), pytest.raises(InputError, match="final_obs is missing"):
        given.buffer.add(**step)
    assert len(given.buffer) == 0


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint16, torch.uint64, torch.float16])
@pytest.mark.parametrize("shape", [(), (3,), (2, 1)])
def test_final_observations_of_the_host_go_into_rows_of_any_dtype(device, dtype, shape):
    fields = {"obs": Field(shape, dtype), "action": Field()}
    numbers = torch.arange(3 * math.prod(shape)).view(3, *shape).to(torch.float32)
    step = {"obs": numbers.to(dtype), "next_obs": (numbers + 1).to(dtype)}
    finals = np.array([None, None, None], dtype=object)
    finals[1] = (numbers[1] % 2).to(dtype)
    rest = {
        "action": np.zeros(3, np.float32),
        "reward": np.zeros(3, np.float32),
        "terminated": np.array([False, True, False]),
        "truncated": np.zeros(3, bool),
        "final_obs": finals,
    }
    cpu, cuda = (
        ReplayBuffer(9, fields, num_envs=3, autoreset="same_step", device=where)
        for where in ("cpu", "cuda")
    )
    cpu.add(**step, **rest)
    with device.forbid_waits():
        cuda.add(**there(step), **rest)
    ours, theirs = (buffer.all().next_obs.cpu().float() for buffer in (cuda, cpu))
    assert torch.equal(ours, theirs)
    assert torch.equal(theirs[1], numbers[1] % 2)


def test_arrays_of_the_host_may_be_overwritten_at_once(device):
    given, cpu = Given("many lanes"), new_buffer("many lanes", device="cpu")
    device.lag = True
    with device.forbid_waits():
        for number in range(4):
            step = {k: np.array(v) for k, v in arrays(given.step).items()}
            step["reward"] += number
            cpu.add(**step)
            given.buffer.add(**step)
            for value in step.values():
                value.fill(1)
    device.lag = False
    assert given.buffer.all().reward.tolist() == cpu.all().reward.tolist()


def test_pinned_memory_of_the_host_may_be_overwritten_at_once_too(device):
    given, cpu = Given("proportional"), new_buffer("proportional", device="cpu")
    values = {k: v.clone().pin_memory() for k, v in given.times.items()}
    errors = given.errors.clone().pin_memory()
    cpu.extend(**given.times)
    cpu.update_priorities(given.ids, given.errors)
    device.lag = True
    with device.forbid_waits():
        given.buffer.extend(**values)
        given.buffer.update_priorities(given.ids, errors)
        for value in (*values.values(), errors):
            value.fill_(1)
    device.lag = False
    assert given.buffer.all().obs.tolist() == cpu.all().obs.tolist()
    ids = cpu.live_ids()
    assert given.buffer.priorities(ids).tolist() == cpu.priorities(ids).tolist()


def test_a_host_that_is_64_steps_ahead_waits_for_the_oldest(device):
    given = Given("uniform")
    device.launch = lambda *_: device.stream.put(lambda: None)
    device.lag = True
    with device.forbid_waits():
        for _ in range(64):
            given.buffer.add(**arrays(given.step))
    del device.waits[:]
    given.buffer.add(**arrays(given.step))
    assert device.waits == ["Event.synchronize"]


# What cannot be on a GPU.


def test_more_memory_than_is_free_is_refused_and_says_what_would_fit(device):
    device.free = 1 << 20
    with pytest.raises(ConfigError, match=r"on cuda.* are free; capacity=\d+ would fit") as caught:
        new_buffer("proportional", capacity=100_000, device="cuda")
    fits = int(str(caught.value).partition("capacity=")[2].split()[0])
    assert new_buffer("proportional", capacity=fits, device="cuda").capacity == fits


def test_host_memory_that_cannot_be_pinned_is_refused(device):
    device.most_registered = 1 << 10
    with pytest.raises(ConfigError, match=r"could not be pinned \(error 1\);.*ulimit -l"):
        new_buffer("uniform", capacity=10_000, device="cuda", rows_on="host")
    new_buffer("uniform", capacity=10, device="cuda", rows_on="host")


def test_an_error_at_a_bad_priority_is_refused_at_construction(device):
    with pytest.raises(UnsupportedError, match=r"bad_priority='raise'.*take 'keep' or"):
        new_buffer("uniform", device="cuda", sampler=Proportional(bad_priority="raise"))


def test_rows_on_the_host_are_refused_on_the_cpu():
    with pytest.raises(ConfigError, match="rows_on='host' is for a buffer on a GPU"):
        new_buffer("uniform", device="cpu", rows_on="host")


def test_without_triton_a_buffer_on_a_gpu_is_refused_and_says_what_else_works(device, monkeypatch):
    monkeypatch.setattr(dispatch, "find_spec", lambda _: None)
    with pytest.raises(UnsupportedError, match=r"pip install triton; or keep .*device='cpu'"):
        new_buffer("uniform", device="cuda")


REFUSED = {
    "priorities of a uniform buffer": (
        "uniform",
        lambda b: b.update_priorities([0], [1.0]),
        UnsupportedError,
    ),
    "ranks of a buffer without": ("proportional", lambda b: b.resort(), UnsupportedError),
    "sweeps of a buffer without": ("uniform", lambda b: b.start_sweep(3), UnsupportedError),
    "fewer errors than ids": (
        "proportional",
        lambda b: b.update_priorities([0, 1], [1.0]),
        InputError,
    ),
    "half an id": ("proportional", lambda b: b.update_priorities([0.5], [1.0]), InputError),
    "a batch of no rows": ("uniform", lambda b: b.sample(0), InputError),
    "a batch of another size": (
        "uniform",
        lambda b: b.sample(2, out=b.empty_batch(3)),
        InputError,
    ),
    "half a bound": ("uniform", lambda b: b.sample_range(2, 0.5, 3), InputError),
    "a lane that is none": ("uniform", lambda b: b.end_episode(1), InputError),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_host_can_tell_is_refused_as_on_the_cpu(device, what):
    kind, call, error = REFUSED[what]
    given, cpu = Given(kind), new_buffer(kind, device="cpu")
    with device.forbid_waits(), pytest.raises(error) as caught:
        call(given.buffer)
    with pytest.raises(error) as expected:
        call(cpu)
    assert str(caught.value).replace("cuda:0", "cpu") == str(expected.value)


def test_a_buffer_can_be_looked_at_while_a_graph_is_captured(device):
    buffer = new_buffer("proportional", device="cuda")
    with device.capture():
        assert repr(buffer).startswith("ReplayBuffer(? of ")
    assert repr(buffer).startswith("ReplayBuffer(0 of ")


def test_what_is_drawn_ahead_cannot_be_saved_in_a_capture(device):
    batches = new_buffer("uniform", device="cuda").batches(BATCH, ahead=1)
    with device.capture() as graph, pytest.raises(UnsupportedError, match="cannot be captured"):
        batches.state_dict()
    graph.replay()
