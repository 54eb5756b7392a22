"""Frames kept once on a pretended GPU: the bits of the CPU, and the batches of whole stacks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from relive import Proportional, frames
from tests.equivalence.states import same_bits
from tests.triton.checker import checked
from tests.triton.pretended import pretended
from tests.triton.sameness import assert_same_batch_there, assert_same_buffer_there
from tests.triton.stacks import ALL_NEW, DROPPING, SPECS, Life, Spec, copy_into

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

CALLS = 40


def shuffled(number: int) -> AbstractContextManager[None]:
    """Kernels are watched, and their programs run in another order each time."""
    return checked(shuffle=number)


@pytest.fixture
def device() -> Any:
    with pretended() as there_is:
        yield there_is


@pytest.mark.parametrize("name", SPECS)
def test_the_same_calls_give_the_same_bits(device, name, monkeypatch):
    spec = SPECS[name]
    monkeypatch.setattr(frames, "STEPS_AT_ONCE", spec.at_once)
    Life(spec, device, len(name), shuffled).live(CALLS)


@pytest.mark.parametrize("name", DROPPING)
def test_rows_are_dropped_early_as_on_the_cpu(device, name, monkeypatch):
    spec = DROPPING[name]
    monkeypatch.setattr(frames, "STEPS_AT_ONCE", spec.at_once)
    life = Life(spec, device, 3, shuffled)
    life.write("extend", life.steps.extend(range(spec.num_envs), 150 // spec.num_envs), env=None)
    life.live(CALLS // 2)
    assert life.cpu.stats()["evicted_rows"] > 20
    assert len(life.cpu) < spec.capacity
    life.cpu.check()


def test_more_rows_are_looked_at_than_a_program_takes_at_once(device, monkeypatch):
    """Nearly all have lost a frame."""
    monkeypatch.setattr(frames, "STEPS_AT_ONCE", 300)
    spec = Spec(capacity=700, stack=2, different=ALL_NEW, sampler=Proportional())
    life = Life(spec, device, 1)
    for _ in range(3):
        life.write("extend", life.steps.extend(0, 300), env=0)
    assert_same_buffer_there(device, life.gpu, life.cpu)
    assert life.cpu.stats()["evicted_rows"] > 256


@pytest.mark.parametrize("name", ["same step", "fakes"])
def test_a_captured_step_goes_on_where_the_last_replay_ended(device, name, monkeypatch):
    spec = replace(SPECS[name], different=3)
    monkeypatch.setattr(frames, "STEPS_AT_ONCE", spec.at_once)
    life = Life(spec, device, 2)
    gpu, cpu = life.gpu, life.cpu
    life.write("extend", life.steps.extend(range(spec.num_envs), 8), env=None)
    first = life.steps.add()
    static = life.there(first)
    times = life.steps.extend(0, 5)
    times_there = life.there(times)
    gpu.add(**static)
    cpu.add(**first)
    torch.cuda.synchronize()
    with device.capture() as graph:
        gpu.add(**static)
        batch = gpu.sample(4)
        gpu.extend(**times_there, env=0)
    for number in range(3):
        step = life.steps.add()
        copy_into(static, life.there(step))
        device.lag = number == 1
        graph.replay()
        cpu.add(**step)
        drawn = cpu.sample(4)
        cpu.extend(**times, env=0)
        device.catch_up()
        assert_same_batch_there(device, batch, drawn)
        assert gpu._home.intake.rows <= len(cpu)
    assert_same_buffer_there(device, gpu, cpu)


def test_rows_that_are_not_held_become_zeros(device):
    spec = SPECS["one lane"]
    life = Life(spec, device, 1)
    batch = life.gpu.sample(3)  # of nothing
    assert not device.inner(batch.obs).any()
    assert device.inner(batch.ids).tolist() == [-1] * 3
    life.write("extend", life.steps.extend(0, 4), env=0)
    assert same_bits(device.inner(life.gpu.all().obs), life.plain.all().obs)


def test_a_plan_counts_what_is_kept(device):
    for spec in (SPECS["one lane"], SPECS["fakes"]):
        gpu = spec.buffer(device="cuda")
        held = sum(tensor.nbytes for tensor in gpu._home.memory())
        planned = gpu.memory()
        notes = gpu._state.workspace["sampling"][1]
        stamps = len(gpu._state.leaves) * 4 if "stamps" not in gpu._state.workspace else 0
        assert planned.on_device == held - notes.nbytes + stamps
