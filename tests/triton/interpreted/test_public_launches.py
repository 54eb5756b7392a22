"""What public calls give the device: always the same, little, and no memory that stays.

A CUDA graph plays a step back with the arguments it had when it was captured. Here 100 steps are
compared while all that may vary does: a buffer on the CPU goes on, and what its words say is put
into those of the one on the GPU before each step. So kernels need not run.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from relive import Linear, Proportional, RankBased, UnsupportedError
from relive.ops import words as w
from relive.ops.state import CHANGING
from relive.storage import snapshot
from tests.equivalence.states import same_bits
from tests.triton.arguments import Steps
from tests.triton.cases import PINNED
from tests.triton.pretended import pretended
from tests.triton.sameness import assert_same_batch_there, assert_same_buffer_there
from tests.triton.table import (
    BATCH,
    HOST_KNOWS,
    KINDS,
    NO,
    REFUSED,
    TABLE,
    Given,
    arrays,
    new_buffer,
    one_step,
    there,
)

STEPS, REPLAYS = 100, 2
LIVES = {
    "proportional, mixture": {
        "sampler": Proportional(mixture_weights=True, beta=Linear(0.4, 1.0, 50))
    },
    "ranks": {"sampler": RankBased(resort_every=3)},
    "sweeps": {},
    "many lanes": {},
}
VARIES = {
    "all": {"NEXT_ID", "DRAWS", "PROGRESS", "SAMPLED_ROWS"},
    "proportional, mixture": {"RING_START", "DEMO_COUNT", "DEMO_CARRY", "SCALE", "TOTAL"},
    "ranks": {"SORTS", "UPDATES", "SCALE"},
    "sweeps": {"SWEEP", "SWEEP_LENGTH"},
    "many lanes": {"SCALE", "TOTAL", "RESET_ROWS", "MAX_LEAF"},
}
# What one call gives the device: kernels, of ours and of torch's, and copies.
PLAIN = ("uniform", "proportional", "ranks", "rows on the host")
WORK = {
    ("`add` of host arrays", "arrays"): (2, "a copy and a kernel"),
    ("`add` of device tensors", "tensors"): (1, "a kernel"),
    ("`extend` of device tensors", "one lane"): (2, "a plan, rows"),
    ("`sample`", "new"): (2, "draws, rows"),
    ("`sample`", "out"): (2, "draws, rows"),
    ("`sample`", "not for training"): (2, "draws, rows"),
    ("`batches`", "ahead 0"): (2, "draws, rows"),
    ("`sample_range` with bounds on the device", "new"): (3, "bounds put together, draws, rows"),
    ("`sample_range` with numbers", "numbers"): (3, "a copy of both, draws, rows"),
    ("`update_priorities` of device tensors", "errors"): (1, "a kernel"),
    ("`update_priorities` of device tensors", "priorities"): (1, "a kernel"),
    ("`ready`", "4"): (0, "nothing"),
}
MANY_LANES = {
    ("`add` of host arrays", "arrays"): (3, "a copy, a plan, rows"),
    ("`add` of device tensors", "tensors"): (2, "a plan, rows"),
}


@pytest.fixture
def device():
    with pretended() as there_is:
        yield there_is


@pytest.fixture
def skipping(device):
    """No kernel runs; launches are seen as ever."""
    device.launch = lambda *_: device.stream.put(lambda: None)
    return device


class Life:
    """A buffer on the CPU goes on, and the words of one on the GPU with it."""

    def __init__(self, device, kind):
        self.device, self.kind, self.rng = device, kind, np.random.default_rng(0)
        self.gpu = Given(kind, **LIVES[kind])
        self.cpu = new_buffer(kind, **LIVES[kind])
        self.seen = []

    def go_on(self, number):
        cpu, rng = self.cpu, self.rng
        step = one_step(cpu)
        step["terminated"] = torch.from_numpy(rng.random(cpu.num_envs) < 0.3)
        cpu.add(**arrays(step))
        if number == 20 and self.kind == "proportional, mixture":
            cpu.pin_demonstrations(len(cpu))
        if number % 10 == 0 and self.kind == "sweeps":
            cpu.start_sweep(number + 5)
        if cpu.ready():
            ids = cpu.sample(BATCH).ids
            if cpu.prioritized:
                errors = torch.from_numpy(rng.normal(size=BATCH) * 10.0 ** rng.integers(-6, 6))
                cpu.update_priorities(ids, errors)
        words = self.device.inner(self.gpu.buffer._state.words)
        words[CHANGING] = cpu._state.words[CHANGING]
        self.seen.append(words.tolist())

    def varied(self):
        """Numbers of words that were not always the same."""
        return {
            word for word, values in enumerate(zip(*self.seen, strict=True)) if len({*values}) > 1
        }


def name_of(buffer, name):
    """Of a step: an update that sorts, which it never does in a capture, is another one."""
    known = buffer._state.workspace
    sorts = "updates" in known and known["updates"] + 1 >= known["resort_every"]
    return name + (", sorts" if sorts and "update_priorities" in name else "")


@pytest.mark.parametrize("kind", LIVES)
def test_whatever_varies_a_call_launches_the_same(skipping, kind):
    life, steps = Life(skipping, kind), Steps()
    buffer, rows = life.gpu.buffer, TABLE.items()
    calls = {
        f"{name}, {way}": call
        for name, row in rows
        if row.graph not in (REFUSED, HOST_KNOWS) and row.suits(buffer)
        for way, call in row.calls.items()
    }
    for number in range(STEPS):
        life.go_on(number)
        for name, call in calls.items():
            with steps.named(name_of(buffer, name)):
                call(life.gpu)
    assert {getattr(w, name) for name in VARIES["all"] | VARIES[kind]} <= life.varied()


@contextmanager
def work(device):
    """How much the device is given."""
    stream, given = torch.cuda.current_stream(), []
    before = stream.issued
    yield given
    given.append(stream.issued - before)


@pytest.mark.parametrize("kind", [*PLAIN, "many lanes"])
def test_a_call_gives_the_device_little(skipping, kind):
    given = Given(kind)
    expected = {**WORK, **(MANY_LANES if kind == "many lanes" else {})}
    for (name, way), (number, what) in expected.items():
        row = TABLE[name]
        if row.suits(given.buffer):
            row.calls[way](given)
            with work(skipping) as seen:
                row.calls[way](given)
            assert seen == [number], (name, way, what)


@pytest.mark.parametrize(
    ("kind", "rows", "number"),
    [
        ("proportional", 4096, 1),
        ("proportional", 4097, 4),
        ("proportional, largest now", 4097, 4),
        ("ranks", 4096, 1),
        ("ranks", 4097, 3),
    ],
)
def test_a_large_update_takes_a_few_launches(skipping, kind, rows, number):
    """At most three, and one more a level of nodes: there is one level here."""
    given = Given(kind)
    assert given.buffer._state.word(w.NUM_LEVELS) == 1
    ids, errors = there([torch.zeros(rows, dtype=torch.int64), torch.zeros(rows)])
    with work(skipping) as seen:
        given.buffer.update_priorities(ids, errors)
    assert seen == [number]


@contextmanager
def new_memory(device):
    """Memory of the device that is made inside."""
    made, enter = [], device._enter_new

    def note(call, results):
        if call.gives_ours:
            made.extend(StorageWeakRef(t.untyped_storage()) for t in call.new(results))
        enter(call, results)

    device._enter_new = note
    yield made
    device._enter_new = enter


@pytest.mark.parametrize("kind", KINDS)
def test_no_call_takes_memory_that_stays(skipping, kind):
    given = Given(kind)
    for name, row in TABLE.items():
        if row.waits != NO or not row.suits(given.buffer):
            continue
        for way, call in row.calls.items():
            call(given)
            with new_memory(skipping) as made:
                call(given)
            assert [ref for ref in made if not ref.expired()] == [], (name, way)


@pytest.mark.parametrize("kind", KINDS)
def test_replays_go_on_as_calls_one_by_one_would(device, kind):
    given, cpu = Given(kind), new_buffer(kind, device="cpu", rows_on="device")
    gpu, out = given.buffer, given.out
    cpu.extend(**arrays(given.times))
    given.fill()
    cpu.add(**arrays(given.step))
    if kind in PINNED:
        for buffer in (cpu, gpu):
            buffer.pin_demonstrations(len(cpu))
    gpu.add(**given.step_there)
    cpu.add(**given.step)
    with device.capture() as graph:
        gpu.add(**given.step_there)
        batch = gpu.sample(BATCH)
        gpu.extend(**given.times_there)
        gpu.sample_range(BATCH, *given.bounds, out=out)
        if gpu.prioritized:
            gpu.update_priorities(batch.ids, given.errors_there)
    for _ in range(REPLAYS):
        graph.replay()
        cpu.add(**given.step)
        drawn = cpu.sample(BATCH)
        cpu.extend(**given.times)
        in_range = cpu.sample_range(BATCH, *given.bounds_here)
        if cpu.prioritized:
            cpu.update_priorities(drawn.ids, given.errors)
        assert_same_batch_there(device, batch, drawn)
        assert_same_batch_there(device, out, in_range)
    if cpu.sampler.ranked:
        with device.capture() as sort:
            gpu.resort()
        sort.replay()
        cpu.resort()
    gpu.add(**arrays(given.step))  # and one by one
    cpu.add(**given.step)
    assert_same_buffer_there(device, gpu, cpu)
    assert gpu._home.intake.rows <= len(cpu)


def test_replays_overwrite_nothing_that_a_save_in_the_background_still_needs(device, tmp_path):
    given = Given("uniform", capacity=8)
    buffer = given.buffer
    given.fill()
    with device.capture() as graph:
        buffer.extend(**given.times_there)
    with buffer._lock:  # the thread that writes has to wait
        expected = buffer.state_dict()["tensors"]["rows"].cpu()
        done = buffer.save(tmp_path / "saved", background=True)
        del device.waits[:]
        graph.replay()
        buffer.add(**given.step_there)
        assert device.waits == []
    done.result()
    saved = type(buffer).load(tmp_path / "saved", device="cuda")
    assert same_bits(device.inner(saved._state.rows)[:7], expected[:7])
    assert not same_bits(device.inner(buffer._state.rows)[:7], expected[:7])


def test_a_device_without_room_for_rows_that_a_save_still_needs_gives_them_to_the_host(
    device, tmp_path, monkeypatch
):
    given = Given("uniform", capacity=8)
    given.fill()
    move = torch.Tensor.to

    def without_room(tensor, place, **options):
        if options.get("copy") and torch.device(place).type == "cuda":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return move(tensor, place, **options)

    with given.buffer._lock:  # the thread that writes has to wait
        expected = given.buffer.state_dict()["tensors"]["rows"].cpu()
        done = given.buffer.save(tmp_path / "saved", background=True)
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "to", without_room)
            given.buffer.extend(**given.times_there)
    done.result()
    saved = type(given.buffer).load(tmp_path / "saved", device="cuda")
    assert same_bits(device.inner(saved._state.rows)[:7], expected[:7])


def test_a_save_leaves_half_of_a_device_to_others(device, tmp_path, monkeypatch):
    given = Given("uniform", capacity=8)
    buffer = given.buffer
    given.fill()
    with device.capture():
        buffer.extend(**given.times_there)
    row_bytes = buffer.memory().row_bytes
    monkeypatch.setattr(snapshot, "PIECE", row_bytes)
    with buffer._lock:  # the thread that writes has to wait
        expected = buffer.state_dict()["tensors"]["rows"].cpu()
        device.free = 2 * 3 * row_bytes
        done = buffer.save(tmp_path / "saved", background=True)
        kept, _ = buffer._saver._running
        assert [piece.is_cuda for piece in kept.rows._taken] == [True] * 3 + [False] * 4
        device.free = 70 << 30
        buffer.extend(**given.times_there)
    done.result()
    saved = type(buffer).load(tmp_path / "saved", device="cuda")
    assert same_bits(device.inner(saved._state.rows)[:7], expected[:7])


@pytest.mark.parametrize("kind", ["proportional", "ranks"])
def test_nothing_is_captured_while_a_save_is_under_way(device, tmp_path, kind):
    given = Given(kind)
    given.fill()
    buffer = given.buffer
    calls = [
        lambda: buffer.add(**given.step_there),
        lambda: buffer.extend(**given.times_there),
        lambda: buffer.sample(BATCH, out=given.out),
        lambda: buffer.sample_range(BATCH, *given.bounds),
        lambda: buffer.update_priorities(given.ids_there, given.errors_there),
    ]
    calls += [buffer.resort] if buffer.sampler.ranked else []
    with buffer._lock:  # the thread that writes has to wait
        done = buffer.save(tmp_path / "saved", background=True)
        for call in calls:
            with device.capture() as graph:
                with pytest.raises(UnsupportedError, match="while a save is under way"):
                    call()
                assert graph.works == []
    done.result()
    with device.capture() as graph:
        calls[2]()
    assert graph.works != []
