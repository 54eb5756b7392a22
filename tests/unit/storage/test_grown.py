"""A larger buffer with everything the smaller one has; the memory that a buffer plans and holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relive import (
    ConfigError,
    Field,
    Linear,
    Proportional,
    RankBased,
    Recent,
    ReplayBuffer,
    Uniform,
    plan,
)
from relive.ops import words as w
from tests.equivalence.states import assert_same_batch, same_bits
from tests.faults.tagged import FIELDS, held, row, rows, write
from tests.unit.unchanged import refused

ADDED = 2**62
SAMPLERS = [
    Uniform(),
    Proportional(alpha=1.0, eps=0.0, new_priority="max_current"),
    RankBased(resort_every=2),
]
ENVS = [(1, "disabled"), (2, "same_step")]


def used(kernels: str, sampler: Any, pinned: int, num_envs: int, autoreset: str) -> ReplayBuffer:
    """A buffer in the middle of everything: wrapped, pinned, steps waiting, a sweep half done."""
    buffer = ReplayBuffer(
        14,
        FIELDS,
        kernels=kernels,
        sampler=sampler,
        window=Recent(eta=0.999, c_min=2, updates=7),
        demo_fraction=Linear(0.3, 0.7, 10),
        num_envs=num_envs,
        autoreset=autoreset,
        n_step=3,
        gamma=0.5,
        seed=11,
        track_reuse=True,
    )
    if pinned:
        buffer.extend(**rows(range(100, 100 + pinned)))
        buffer.pin_demonstrations(pinned, reserve=3)
        buffer.pin([1, 0])
    step(buffer, range(15))
    buffer.start_sweep(9)
    for _ in range(3):
        batch = buffer.sample(5)
        buffer.sample(2, train=False)
        if buffer.prioritized:
            buffer.update_priorities(batch.ids, batch.obs + 0.5)
    return buffer


def step(buffer: ReplayBuffer, ts: Any) -> None:
    """A step of every environment at each time; episodes end at different times."""
    for t in ts:
        if buffer.num_envs == 1:
            buffer.add(**row(t % 24, truncated=t % 6 == 5))
            continue
        columns = [row(t % 24 + 50 * env, truncated=(t + env) % 6 == 5) for env in range(2)]
        buffer.add(
            final_obs=[t % 24 + 0.5, t % 24 + 50.5],
            **{name: [float(c[name]) for c in columns] for name in ("obs", "reward", "next_obs")},
            **{name: [c[name] for c in columns] for name in ("action", "terminated", "truncated")},
        )


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("pinned", [0, 3])
@pytest.mark.parametrize(("num_envs", "autoreset"), ENVS)
@pytest.mark.parametrize("capacity", [14, 15, 40, 300])
def test_a_grown_buffer_has_all_rows_priorities_and_counters(
    kernels: str, sampler: Any, pinned: int, num_envs: int, autoreset: str, capacity: int
) -> None:
    buffer = used(kernels, sampler, pinned, num_envs, autoreset)
    before = {name: tensor.clone() for name, tensor in buffer._state.tensors().items()}
    larger = buffer.grown(capacity)
    for name, tensor in buffer._state.tensors().items():
        assert same_bits(tensor, before[name]), name
    assert (larger.capacity, larger.n_step, larger.num_envs) == (capacity, 3, num_envs)
    assert (larger.sampler, larger.window, larger.gamma) == (sampler, buffer.window, 0.5)
    assert_same_batch(larger.all(), buffer.all())
    if buffer.prioritized:
        ids = buffer.live_ids()
        assert torch.equal(larger.priorities(ids), buffer.priorities(ids))
    mine, its = buffer.stats(), larger.stats()
    for name in ("capacity", "rescales"):
        del mine[name], its[name]
    for name in ("effective_sample_size", "priority_entropy"):  # summed in the order of slots
        if buffer.prioritized:
            assert its.pop(name) == pytest.approx(mine.pop(name), rel=1e-12)
    assert its == mine
    larger.check()


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("pinned", [0, 3])
@pytest.mark.parametrize(("num_envs", "autoreset"), ENVS)
def test_a_grown_buffer_goes_on_where_the_other_stood(
    kernels: str, sampler: Any, pinned: int, num_envs: int, autoreset: str
) -> None:
    buffer = used(kernels, sampler, pinned, num_envs, autoreset)
    larger = buffer.grown(400)
    oldest = buffer.live_ids()[pinned]
    for one in (buffer, larger):
        step(one, range(15, 20))
        one.end_episode()
    newest = [i for i in buffer.live_ids().tolist() if oldest <= i < ADDED]
    assert_same_batch(larger.rows(newest), buffer.rows(newest))
    assert [i for i in larger.live_ids().tolist() if oldest <= i < ADDED][-1] == newest[-1]
    assert len(larger) > len(buffer)  # nothing was overwritten
    for one in (buffer, larger):  # the words of random state, progress, sweep and carry
        one.sample(4)
        one.sample(3, train=False)
    for word in (w.SEED, w.DRAWS, w.EVAL_DRAWS, w.PROGRESS, w.SWEEP, w.SWEEP_LENGTH):
        assert larger._state.word(word) == buffer._state.word(word)
    assert larger._state.real(w.DEMO_CARRY) == buffer._state.real(w.DEMO_CARRY)
    step(larger, range(400))
    assert len(larger) == 400 - (3 - 2 if pinned else 0)  # one slot is kept in reserve
    larger.check()


def test_a_buffer_that_is_not_full_draws_the_same_batches_when_grown(kernels: str) -> None:
    for sampler in SAMPLERS:
        buffer = ReplayBuffer(10, FIELDS, sampler=sampler, kernels=kernels, seed=3)
        write(buffer, range(7))
        larger = buffer.grown(25)
        for _ in range(3):
            batch, other = buffer.sample(16), larger.sample(16)
            assert torch.equal(batch.ids, other.ids)
            assert torch.allclose(batch.weights, other.weights, rtol=1e-6)


def test_an_empty_buffer_and_one_whose_priorities_are_zero_can_be_grown(kernels: str) -> None:
    buffer = ReplayBuffer(3, FIELDS, sampler=SAMPLERS[1], kernels=kernels)
    larger = buffer.grown(300)
    larger.check()
    write(larger, range(5))
    write(buffer, range(5))
    buffer.update_priorities(buffer.live_ids(), [0.0] * 3)
    zeros = buffer.grown(300)
    assert not zeros.ready()
    zeros.extend(**rows(range(5, 300)))
    zeros.check()
    buffer.clear()
    assert len(buffer.grown(4)) == 0


def test_a_buffer_of_one_row_grows_and_ids_go_on(kernels: str) -> None:
    larger = write(ReplayBuffer(1, FIELDS, kernels=kernels), range(5)).grown(3)
    write(larger, range(5, 9))
    assert larger.live_ids().tolist() == [6, 7, 8]
    assert sorted(held(larger)) == [6, 7, 8]


def test_a_late_priority_for_a_row_overwritten_before_is_late_in_the_grown_one_too(
    kernels: str,
) -> None:
    buffer = write(ReplayBuffer(4, FIELDS, sampler=SAMPLERS[1], kernels=kernels), range(6))
    larger = buffer.grown(20)
    larger.update_priorities([0, 1, 2], [5.0, 5.0, 5.0])
    assert larger.stats()["stale_updates"] == 2
    assert larger.priorities(larger.live_ids()).tolist() == [5, 1, 1, 1]


def test_reuse_goes_on_in_a_grown_buffer(kernels: str) -> None:
    buffer = write(ReplayBuffer(4, FIELDS, kernels=kernels, track_reuse=True), range(6))
    buffer.sample(32)
    larger = buffer.grown(6)
    assert larger.stats()["reuse_counts"] == buffer.stats()["reuse_counts"]
    write(larger, range(6, 14))
    counts = larger.stats()["reuse_counts"]
    assert sum(counts) == 14  # every row once, held or not


@pytest.mark.parametrize("capacity", [9, 0, -1, 10.0, "20", None, True, float("nan")])
def test_a_buffer_does_not_shrink(kernels: str, capacity: Any) -> None:
    buffer = write(ReplayBuffer(10, FIELDS, kernels=kernels, sampler=SAMPLERS[1]), range(13))
    with refused(buffer, ConfigError, "capacity grows from 10; given"):
        buffer.grown(capacity)


def test_more_memory_than_is_free_is_refused(kernels: str) -> None:
    buffer = write(ReplayBuffer(10, FIELDS, kernels=kernels), range(3))
    with refused(buffer, ConfigError, "GB are free; capacity="):
        buffer.grown(10**13)


# Memory


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("track_reuse", [False, True])
def test_a_buffer_holds_the_bytes_that_were_planned(
    kernels: str, sampler: Any, track_reuse: bool
) -> None:
    settings = {"sampler": sampler, "track_reuse": track_reuse, "n_step": 3}
    fields = {**FIELDS, "image": Field((5, 7), torch.float32, store=torch.uint8)}
    buffer = ReplayBuffer(100, fields, kernels=kernels, **settings)
    for one, capacity in ((buffer, 100), (buffer.grown(1000), 1000)):
        planned = plan(capacity, fields, batch_size=0, **settings)
        assert one.memory() == planned
        state = sum(t.numel() * t.element_size() for t in one._state.tensors().values())
        staging = one._home.intake.staging.numel()
        assert planned.total == state + staging
        assert planned.priorities == 4 * len(one._state.leaves) + 4 * len(one._state.errors)


def test_an_error_a_row_is_planned_for_ranks_only() -> None:
    needed = {
        kind: plan(4096, FIELDS, sampler=kind).priorities
        for kind in (None, Uniform(), Proportional(), RankBased())
    }
    assert list(needed.values()) == [0, 0, 4 * 4096, 8 * 4096]
