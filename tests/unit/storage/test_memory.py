"""Planned and real memory."""

import os
from pathlib import Path

import pytest
import torch

from relive import ConfigError, Field, Proportional, ReplayBuffer, Uniform, plan
from relive.storage import memory

STATES = {"obs": Field((51,)), "action": Field((1,))}


@pytest.mark.parametrize(("capacity", "megabytes"), [(100_000, 47), (1_000_000, 470)])
def test_a_million_states_of_51_floats_with_priorities_fit_470_megabytes(capacity, megabytes):
    needed = plan(capacity, STATES, sampler=Proportional())
    assert needed.total <= megabytes * 1e6
    assert needed.rows == capacity * 448
    assert needed.priorities + needed.tree <= 8 * capacity


# Bytes a row for priorities and tree together, and how many there may be.
TREES = [
    (Proportional(normalize=None), 8),
    (Proportional(), 8),
    (Proportional(normalize=None, new_priority="max_current"), 12),
    (Proportional(new_priority="max_current"), 12),
]


@pytest.mark.parametrize("capacity", [1_000_000, 10_000_000])
@pytest.mark.parametrize(("sampler", "most"), TREES)
def test_priorities_take_8_bytes_a_row_at_most_and_12_with_the_maxima(sampler, most, capacity):
    needed = plan(capacity, STATES, sampler=sampler)
    assert needed.priorities >= 4 * capacity
    assert needed.priorities + needed.tree <= most * capacity


@pytest.mark.parametrize("sampler", [Uniform(), *(sampler for sampler, _ in TREES)])
def test_nothing_but_rows_priorities_and_tree_grows_with_the_capacity(sampler):
    settings = {"sampler": sampler, "n_step": 3, "num_envs": 8}
    small, large = (plan(capacity, STATES, **settings) for capacity in (10**5, 10**7))
    assert small.workspace == large.workspace
    assert large.rows == 100 * small.rows
    assert large.priorities + large.tree <= 100.01 * (small.priorities + small.tree)
    assert sampler.prioritized or large.priorities == large.tree == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("sampler", [Uniform(), *(sampler for sampler, _ in TREES)])
def test_memory_equals_what_the_process_grows_by(sampler):
    settings = {"sampler": sampler, "track_reuse": True}
    ReplayBuffer(1, STATES, **settings)  # libraries that are loaded when first needed
    before = resident()
    buffer = ReplayBuffer(1_000_000, STATES, **settings)
    # For the smaller tensors there may be pages that were kept when other tests gave them back.
    assert resident() - before == pytest.approx(buffer.memory().total, rel=0.03)


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_plan_allocates_nothing():
    huge = plan(10**11, STATES, sampler=Proportional())
    assert huge.total > 4.4e13


@pytest.mark.parametrize("capacity", [1, 7, 16, 17, 1000, 4097])
@pytest.mark.parametrize(
    "sampler",
    [
        Uniform(),
        Proportional(),
        Proportional(normalize="batch"),
        Proportional(new_priority="max_current"),
    ],
)
@pytest.mark.parametrize("track_reuse", [False, True])
def test_memory_equals_what_is_allocated(capacity, sampler, track_reuse):
    settings = {"sampler": sampler, "n_step": 3, "num_envs": 1, "track_reuse": track_reuse}
    buffer = ReplayBuffer(capacity, STATES, **settings)
    held = sum(tensor.nbytes for tensor in buffer._state.tensors().values())
    held += buffer._home.intake.staging.nbytes
    assert buffer.memory().total == held
    assert plan(capacity, STATES, batch_size=0, **settings) == buffer.memory()


def test_the_largest_capacity_fits_and_is_close():
    needed = plan(1000, STATES, sampler=Proportional(), batch_size=0)
    most = needed.largest_capacity(10**9)
    assert plan(most, STATES, sampler=Proportional(), batch_size=0).total <= 10**9
    assert plan(int(most * 1.01), STATES, sampler=Proportional(), batch_size=0).total > 10**9
    assert needed.largest_capacity(0) == 0


def test_more_memory_than_is_free_is_refused_with_what_would_fit(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda _: 10_000_000)
    with pytest.raises(
        ConfigError, match=r"needs 0\.10 GB on cpu, 0\.01 GB are free; capacity="
    ) as caught:
        ReplayBuffer(224_000, STATES)
    fitting = int(str(caught.value).rsplit("capacity=", 1)[1].split()[0])
    assert len(ReplayBuffer(fitting, STATES)) == 0


def test_free_memory_is_what_the_machine_says():
    free = memory.free_memory("cpu")
    assert free is None or 0 < free < 2**50


def test_pages_are_touched_at_construction():
    buffer = ReplayBuffer(1000, {"obs": Field((8,), torch.uint8), "action": Field()})
    assert not buffer._state.rows.any()


def test_a_tree_has_a_largest_capacity():
    with pytest.raises(ConfigError, match="at most 137438953472 rows"):
        plan(10**12, STATES, sampler=Proportional())


@pytest.mark.parametrize(
    "settings", [{"num_envs": 0}, {"n_step": -1}, {"batch_size": -5}, {"num_envs": 11}]
)
def test_a_plan_refuses_what_the_buffer_refuses(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        plan(10, STATES, **settings)


@pytest.mark.parametrize("capacity", [0, -1, 2.5, True, "10"])
def test_a_capacity_that_is_no_count_is_refused(capacity):
    with pytest.raises(ConfigError, match="capacity is a whole number >= 1"):
        plan(capacity, STATES)


def test_what_torch_keeps_for_later_is_free(monkeypatch):
    numbers = {"mem_get_info": (30, 100), "memory_reserved": 50, "memory_allocated": 20}
    for name, number in numbers.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, number=number: number)
    assert memory.free_memory("cuda") == 60


def test_memory_that_is_free_but_in_pieces_is_refused_as_a_setting(monkeypatch):
    def none_left(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(memory, "_zeros", none_left)
    with pytest.raises(ConfigError, match="take fewer rows than 10"):
        ReplayBuffer(10, {"obs": Field(), "action": Field()})
