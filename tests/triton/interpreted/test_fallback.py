"""A buffer whose GPU fails it is the buffer that was on the CPU from the start, bit for bit."""

from __future__ import annotations

import gc
import itertools
import pickle
import warnings
import weakref
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from relive import (
    DeviceLostError,
    InputError,
    Mixture,
    NotReadyError,
    Proportional,
    RankBased,
    ReplayBuffer,
    TrajectoryStore,
    Uniform,
    UnsupportedError,
)
from tests.equivalence.states import assert_same_state
from tests.properties.calls import FIELDS, Calls, Spec, errors, steps
from tests.triton.lives import SPECS
from tests.triton.pretended import Device, pretended
from tests.triton.pretended.failures import (
    dead,
    dead_device,
    failing_launch,
    failing_memory,
    no_kernel,
    no_more_memory,
)
from tests.triton.sameness import assert_same_batch_there, assert_same_buffer_there

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
FAILS = "and is on the CPU from now on"
FAULTS = {
    "no memory": failing_memory,
    "no start": failing_launch,
    "no kernel": lambda at=1: failing_launch(at, no_kernel),
}


@pytest.fixture
def device() -> Device:
    with pretended() as there:
        yield there


def pair(spec: Spec, **settings: Any) -> tuple[ReplayBuffer, ReplayBuffer]:
    """One on the CPU, and one on the GPU that may leave it."""
    return spec.buffer(), spec.buffer("auto", device="cuda", on_failure="cpu", **settings)


def there(values: dict[str, Any]) -> dict[str, Any]:
    """Values as tensors of the device."""
    found = {}
    for name, value in values.items():
        tensor = torch.as_tensor(np.asarray(value))
        whole = name in FIELDS and not FIELDS[name].dtype.is_floating_point
        found[name] = (tensor.to(FIELDS[name].dtype) if whole else tensor).to("cuda")
    return found


def both(device: Device, cpu: ReplayBuffer, gpu: ReplayBuffer, name: str, given: Any) -> None:
    """A call of both; what they answer must be the same."""
    here = {
        k: device.inner(v) if isinstance(v, torch.Tensor) and v.device == CUDA else v
        for k, v in given.items()
    }
    try:
        expected = getattr(cpu, name)(**here)
    except (InputError, NotReadyError, UnsupportedError):
        return  # a GPU would not refuse it, or refuses it too
    answer = getattr(gpu, name)(**given)
    if name.startswith("sample"):
        assert answer.device == CUDA
        assert_same_batch_there(device, answer, expected)


@pytest.mark.parametrize(
    ("kind", "fault"), [*zip(SPECS, itertools.cycle(["no start", "no kernel"]), strict=False)]
)
def test_whatever_was_called_before_and_is_after(device: Device, kind: str, fault: str) -> None:
    settings = {"rows_on": "host"} if kind == "rows on the host" else {}
    cpu, gpu = pair(SPECS[kind], **settings)
    calls = Calls(SPECS[kind], cpu, seed=len(kind))
    for name, given in calls.take(40):
        both(device, cpu, gpu, name, given)
    size = len(cpu)
    some = [*calls.take(12), ("sample", {"batch_size": 6})]
    with FAULTS[fault](), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for name, given in some:
            both(device, cpu, gpu, name, given)
    assert [FAILS in str(warning.message) for warning in told] == [True]
    assert gpu.device == CPU
    assert gpu.failure is not None
    assert (gpu.failure.device, gpu.failure.prioritized) == ("cuda:0", cpu.prioritized)
    assert abs(gpu.failure.rows - size) < 13 * SPECS[kind].num_envs + 700
    for name, given in calls.take(30):
        both(device, cpu, gpu, name, given)
    gpu.check()
    assert_same_state(gpu, cpu)


SPEC = Spec(capacity=30, num_envs=2, n_step=2, autoreset="next_step", track_reuse=True)
CALLS = {
    "add": lambda rng: ("add", steps(rng, 2)),
    "add from the device": lambda rng: ("add", there(steps(rng, 2))),
    "extend": lambda rng: ("extend", {**steps(rng, 40, 2), "env": None}),
    "sample": lambda _: ("sample", {"batch_size": 5}),
    "sample_range": lambda _: ("sample_range", {"batch_size": 4, "start": 0, "stop": 60}),
    "update": lambda rng: ("update_priorities", {"ids": [25, 27], "td_errors": errors(rng, 2)}),
    "end_episode": lambda _: ("end_episode", {}),
    "clear": lambda _: ("clear", {}),
    "load_state_dict": lambda rng: ("load_state_dict", {"state": filled(rng).state_dict()}),
    "check": lambda _: ("check", {}),
}
WITHOUT_MEMORY = {"end_episode", "clear"}  # calls that may take none
WITHOUT_KERNELS = {"clear", "load_state_dict", "check"}  # of ours


def filled(rng: np.random.Generator) -> ReplayBuffer:
    """Another one of the same settings."""
    buffer = Spec(**{**vars(SPEC), "sampler": Proportional()}).buffer()
    buffer.extend(**steps(rng, 25, 2), env=None)
    return buffer


@pytest.mark.parametrize("fault", ["no memory", "no start"])
@pytest.mark.parametrize("call", CALLS)
def test_wherever_in_a_call_it_comes_the_call_is_made_once(
    device: Device, call: str, fault: str
) -> None:
    sampler = RankBased(resort_every=1) if "update" in call else Proportional()
    spec = Spec(**{**vars(SPEC), "sampler": sampler})
    failed, at, moved = True, 0, 0
    least = 0 if fault == "no memory" and call in WITHOUT_MEMORY else 1
    least = 0 if fault == "no start" and call in WITHOUT_KERNELS else least
    while failed:
        at += 1 + at // 20  # a pass over the whole state takes memory a hundred times
        rng = np.random.default_rng(5)
        cpu, gpu = pair(spec)
        both(device, cpu, gpu, "extend", {**steps(rng, 22, 2), "env": None})
        name, given = CALLS[call](rng)
        with FAULTS[fault](at) as countdown, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            both(device, cpu, gpu, name, given)
        failed = countdown.left <= 0
        if gpu.device == CPU:
            moved += 1
            assert_same_state(gpu, cpu)
        else:  # a copy was not to be had, and not needed
            assert_same_buffer_there(device, gpu, cpu)
    assert moved >= least


def test_by_default_the_error_is_raised_and_nothing_has_changed(device: Device) -> None:
    cpu, gpu = SPEC.buffer(), SPEC.buffer("auto", device="cuda")
    one = steps(np.random.default_rng(1), 2)
    with failing_launch(), pytest.raises(RuntimeError, match="out of resource"):
        gpu.add(**one)
    both(device, cpu, gpu, "add", one)
    assert gpu.device == CUDA
    assert gpu.failure is None


@pytest.mark.parametrize("rows_on", ["device", "host"])
def test_a_buffer_that_does_not_fit_is_made_on_the_cpu(device: Device, rows_on: str) -> None:
    device.free = 1000
    with pytest.warns(RuntimeWarning, match="it held no rows yet; batches go to cuda"):
        cpu, gpu = pair(SPEC, rows_on=rows_on)
    assert gpu.device == CPU
    rng = np.random.default_rng(0)
    both(device, cpu, gpu, "add", there(steps(rng, 2)))
    both(device, cpu, gpu, "add", steps(rng, 2))
    both(device, cpu, gpu, "sample", {"batch_size": 3})
    assert_same_state(gpu, cpu)


@pytest.mark.parametrize("fault", [failing_memory, failing_launch], ids=["memory", "launch"])
def test_memory_that_is_missing_in_the_middle_of_making_it_is_no_end(
    device: Device, fault: Any
) -> None:
    for at in (1, 5, 14):
        with fault(at) as countdown:
            expected = pytest.warns(RuntimeWarning) if fault is failing_memory else nullcontext()
            with expected:
                _, gpu = pair(SPEC)
        assert gpu.device == (CPU if countdown.left <= 0 else CUDA)


def test_settings_that_cannot_work_are_refused_as_ever(device: Device) -> None:
    for bad in ({"capacity": 0}, {"gamma": 2}, {"on_failure": "gpu"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            ReplayBuffer(**{"capacity": 9, "fields": FIELDS, "device": "cuda", **bad})
    assert ReplayBuffer(9, FIELDS, on_failure="cpu").failure is None


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.add(**steps(np.random.default_rng(0), 2)),
        lambda b: b.sample(3),
        lambda b: b.update_priorities([1], [1.0]),
        lambda b: b.stats(wait=True),
        len,
    ],
    ids=["add", "sample", "update", "stats", "len"],
)
def test_a_device_that_dies_takes_the_buffer_with_it_and_says_so(device: Device, call: Any) -> None:
    spec = Spec(**{**vars(SPEC), "sampler": Proportional()})
    _, gpu = pair(spec)
    gpu.add(**steps(np.random.default_rng(0), 2))
    with (
        dead_device(),
        pytest.raises(DeviceLostError, match=r"illegal memory .* device='cpu'"),
    ):
        call(gpu)


def test_what_torch_cannot_let_go_of_is_kept_when_the_device_has_died(device: Device) -> None:
    _, gpu = pair(SPEC)
    gpu.add(**steps(np.random.default_rng(0), 2))
    gpu.stats()
    pinned = [weakref.ref(gpu._home.intake.pinned), weakref.ref(gpu._home.numbers)]
    tensors = [weakref.ref(tensor) for tensor in gpu._home.memory()]
    with dead_device():
        with pytest.raises(DeviceLostError):
            gpu.sample(3)
        del gpu
        gc.collect()
    assert all(one() is not None for one in pinned + tensors)


def test_a_batch_that_its_device_has_no_memory_for_says_so(device: Device) -> None:
    cpu, _ = pair(SPEC)
    cpu.add(**steps(np.random.default_rng(0), 2))
    cpu.end_episode()
    batch = cpu.sample(3)
    with no_more_memory(), pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        batch.to("cuda")
    with dead_device(), pytest.raises(torch.AcceleratorError, match="illegal memory"):
        batch.to("cuda")


def test_an_error_that_was_made_before_is_found_while_moving(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, gpu = pair(SPEC)

    def told_late(_: object = None) -> None:
        raise dead()

    monkeypatch.setattr(torch.cuda, "synchronize", told_late)
    with failing_launch(), pytest.raises(DeviceLostError, match="illegal memory"):
        gpu.add(**steps(np.random.default_rng(0), 2))


def test_a_call_half_done_by_kernels_that_were_known_is_not_trusted(device: Device) -> None:
    _, gpu = pair(SPEC)
    gpu.add(**steps(np.random.default_rng(0), 2))
    gpu.end_episode()
    gpu.sample(4)
    with failing_launch(2), pytest.raises(DeviceLostError, match="half done"):
        gpu.sample(4)


def test_a_state_that_was_damaged_there_is_not_taken_over(device: Device) -> None:
    _, gpu = pair(Spec(sampler=Proportional()))
    gpu.extend(**steps(np.random.default_rng(0), 9))
    gpu._state.sums[0:1].fill_(7)
    with failing_launch(), pytest.raises(DeviceLostError, match="damaged: broken invariant"):
        gpu.sample(4)


def test_the_steps_of_a_tee_are_given_once_and_go_on(device: Device, tmp_path: Any) -> None:
    rng = np.random.default_rng(3)
    cpu, gpu = pair(Spec(capacity=50, num_envs=2, autoreset="next_step", n_step=3))
    stores = [TrajectoryStore(tmp_path / name, fields=FIELDS) for name in ("cpu", "gpu")]
    for buffer, store in zip((cpu, gpu), stores, strict=True):
        buffer.tee(store)
    for t in range(20):
        fault = failing_launch() if t == 7 else nullcontext()
        warned = pytest.warns(RuntimeWarning, match=FAILS) if t == 7 else nullcontext()
        with fault, warned:
            both(device, cpu, gpu, "add", steps(rng, 2, end=0.2))
    for buffer, store in zip((cpu, gpu), stores, strict=True):
        buffer.tee(None)
        store.close()
    told = [
        [(len(e), np.asarray(e.reward).tolist()) for e in TrajectoryStore(tmp_path / name)]
        for name in ("cpu", "gpu")
    ]
    assert told[0] == told[1]
    assert_same_state(gpu, cpu)


def test_batches_made_before_are_filled_after(device: Device) -> None:
    rng = np.random.default_rng(0)
    cpu, gpu = pair(Spec(capacity=40, sampler=Proportional()))
    both(device, cpu, gpu, "extend", steps(rng, 30))
    out, ahead = gpu.empty_batch(5), gpu.batches(5, ahead=1)
    mine, others = cpu.empty_batch(5), cpu.batches(5, ahead=1)
    assert_same_batch_there(device, next(ahead), next(others))
    with failing_launch(), pytest.warns(RuntimeWarning, match=FAILS):
        both(device, cpu, gpu, "add", steps(rng))
    assert gpu.sample(5, out=out) is out
    assert_same_batch_there(device, out, cpu.sample(5, out=mine))
    assert gpu.empty_batch(5).device == CUDA
    for _ in range(3):
        assert_same_batch_there(device, next(ahead), next(others))
    ids = cpu.live_ids()[:4]
    assert_same_batch_there(device, gpu.rows(ids), cpu.rows(ids))
    assert gpu.rows(ids).device == CUDA


def test_a_mixture_goes_on_with_one_buffer_less_on_the_device(device: Device) -> None:
    rng = np.random.default_rng(0)
    pairs = [pair(Spec(capacity=40, sampler=Proportional(), seed=seed)) for seed in (1, 2)]
    for cpu, gpu in pairs:
        both(device, cpu, gpu, "extend", steps(rng, 30))
    cpu, gpu = (Mixture([pairs[0][k], pairs[1][k]], shares=[1, 2]) for k in (0, 1))
    assert_same_batch_there(device, gpu.sample(9), cpu.sample(9))
    with failing_launch(), pytest.warns(RuntimeWarning, match=FAILS):
        both(device, *pairs[1], "add", steps(rng))
    for _ in range(3):
        batch, expected = gpu.sample(9), cpu.sample(9)
        assert_same_batch_there(device, batch, expected)
        given = errors(rng, 9)
        cpu.update_priorities(expected.ids, given)
        gpu.update_priorities(batch.ids, torch.as_tensor(given).to("cuda"))
    assert_same_state(pairs[1][1], pairs[1][0])


def test_saves_and_copies_go_on(device: Device, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    cpu, gpu = pair(Spec(capacity=40, sampler=Proportional()))
    both(device, cpu, gpu, "extend", steps(rng, 30))
    gpu.save(tmp_path / "a")
    with failing_launch(), pytest.warns(RuntimeWarning, match=FAILS):
        both(device, cpu, gpu, "add", steps(rng))
    gpu.save(tmp_path / "a", background=True).result()  # rows of another width are there
    assert_same_state(ReplayBuffer.load(tmp_path / "a"), cpu)
    assert_same_state(pickle.loads(pickle.dumps(gpu)), cpu)
    assert_same_state(gpu.grown(50), cpu.grown(50))


def test_a_save_under_way_is_of_the_moment_it_began(device: Device, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    cpu, gpu = pair(Spec(capacity=20, sampler=Uniform()))
    both(device, cpu, gpu, "extend", steps(rng, 30))
    saved = gpu.state_dict()
    future = gpu.save(tmp_path / "a", background=True)
    with failing_launch(), pytest.warns(RuntimeWarning, match=FAILS):
        both(device, cpu, gpu, "add", steps(rng))
    both(device, cpu, gpu, "extend", steps(rng, 30))
    future.result()
    before = ReplayBuffer.load(tmp_path / "a", device="cpu")
    again = Spec(capacity=20, sampler=Uniform()).buffer()
    again.load_state_dict(
        {
            name: {
                k: device.inner(t) if isinstance(t, torch.Tensor) else t for k, t in part.items()
            }
            for name, part in saved.items()
        }
    )
    assert_same_state(before, again)
    gpu.save(tmp_path / "a")
    assert_same_state(ReplayBuffer.load(tmp_path / "a"), cpu)


def test_a_silly_batch_is_refused_and_drives_nobody_away(device: Device) -> None:
    _, gpu = pair(Spec())
    gpu.extend(**steps(np.random.default_rng(0), 9))
    gpu.sample(30_000)
    device.total = 1000  # bytes
    with failing_memory(), pytest.raises(InputError, match="more than there is"):
        gpu.sample(30_000)
    assert gpu.device == CUDA
    device.total = 1 << 40
    with failing_memory(), pytest.warns(RuntimeWarning, match=FAILS):
        assert len(gpu.sample(30_000)) == 30_000
    assert gpu.device == CPU


def test_during_a_capture_the_error_is_raised(device: Device) -> None:
    _, gpu = pair(Spec())
    gpu.extend(**steps(np.random.default_rng(0), 9))
    gpu.sample(4)
    with pytest.raises(RuntimeError, match="out of resource"), device.capture(), failing_launch():
        gpu.sample(4)
    assert gpu.device == CUDA
