"""Memory: what is stored in which dtype, how much it takes, large offsets, no growth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relive import ConfigError, Field, InputError, Linear, Proportional, ReplayBuffer, Uniform, plan
from relive.ops import words as w
from relive.storage.memory import free_memory
from tests.faults.tagged import BYTES, FIELDS, held, row, rows, uniform, write

MEGABYTE = 2**20


def test_F42_rows_beyond_two_gigabytes_are_where_they_should_be() -> None:
    # a row is 2 MiB and a little, so row 1023 straddles byte 2^31
    fields = {"obs": Field((MEGABYTE,), torch.uint8), "action": Field((), torch.int64)}
    buffer = ReplayBuffer(1030, fields, sampler=Proportional())
    assert buffer._state.rows.numel() > 2**31
    image, after = (torch.empty(MEGABYTE, dtype=torch.uint8) for _ in range(2))
    for t in range(1030):
        if t in (0, 1) or t >= 1020:
            image.fill_(t % 251)
            after.fill_((t + 1) % 251)
        buffer.add(obs=image, action=t, reward=t, next_obs=after, terminated=False, truncated=False)
    for t in (0, 1, *range(1020, 1030)):
        batch = buffer.rows([t])
        assert (int(batch.action), float(batch.reward)) == (t, t)
        assert int(batch.obs.min()) == int(batch.obs.max()) == t % 251
        assert int(batch.next_obs.min()) == int(batch.next_obs.max()) == (t + 1) % 251
    assert buffer.priorities(buffer.live_ids()).tolist() == [1] * 1030


@pytest.mark.parametrize("first_id", [2**31 - 2, 2**32 - 2, 2**53 - 2, 2**62 - 40])
def test_F42_ids_need_64_bits_everywhere(kernels: str, first_id: int) -> None:
    sampler = Proportional(alpha=1.0, eps=0.0)
    buffer = ReplayBuffer(4, FIELDS, sampler=sampler, n_step=2, kernels=kernels)
    buffer._state.words[w.NEXT_ID] = buffer._state.words[w.BASE_ID] = first_id
    write(buffer, range(7))
    ids = [first_id + k for k in range(2, 6)]
    assert buffer.live_ids().tolist() == ids
    assert buffer.rows(ids).obs.tolist() == [2, 3, 4, 5]
    assert set(buffer.sample(16).ids.tolist()) == set(ids)
    buffer.update_priorities(np.array(ids), [1.0, 2.0, 3.0, 4.0])
    assert buffer.priorities(ids).tolist() == [1, 2, 3, 4]
    assert set(buffer.sample(16, train=False).ids.tolist()) == set(ids)
    buffer.check()


@pytest.mark.parametrize(("distance", "link"), [(2**31 - 1, 2**31 - 1), (2**31, 0), (2**33, 0)])
def test_F42_a_link_that_needs_more_than_32_bits_is_none(
    kernels: str, distance: int, link: int
) -> None:
    buffer = write(uniform(4, kernels), [0])
    buffer._state.words[w.NEXT_ID] = distance  # as if other environments had written that many
    write(buffer, [1])
    slot = distance % 4
    assert buffer._state.rows[slot, :12].view(torch.int32).tolist() == [0, link, 0]


def test_F54_images_take_a_byte_a_pixel() -> None:
    fields = {"obs": Field((84, 84, 4), torch.uint8), "action": Field((), torch.int64)}
    buffer = ReplayBuffer(1000, fields)
    memory = buffer.memory()
    assert memory.rows + memory.priorities + memory.tree <= 2 * 28_224_000 + 100_000
    assert memory.workspace <= 500_000  # whatever the capacity
    assert buffer._state.rows.numel() == memory.rows
    image = np.full((84, 84, 4), 255, np.uint8)
    buffer.add(obs=image, action=0, reward=0, next_obs=image, terminated=False, truncated=False)
    batch = buffer.sample(2)
    assert batch.obs.dtype == batch.next_obs.dtype == torch.uint8
    assert int(batch.obs.min()) == 255


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_F54_fields_keep_their_dtype_and_values(kernels: str, dtype: torch.dtype) -> None:
    fields = {"obs": Field((3,), dtype), "action": Field(), "own": Field((), dtype)}
    buffer = uniform(4, kernels, fields=fields)
    given = torch.tensor([0, 1, 1]).to(dtype)
    if dtype not in (torch.bool, torch.bfloat16):
        limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        given = torch.tensor([limits.min, 3, limits.max], dtype=dtype)
    for value in [given] if dtype == torch.bfloat16 else [given, given.numpy()]:
        call = {**row(0), "obs": value, "next_obs": value, "own": value[2]}
        buffer.add(**call)
    batch = buffer.sample(4)
    for found in (batch.obs, batch.next_obs):
        assert found.dtype == dtype
        assert torch.equal(found, given.expand(4, 3))
    assert torch.equal(batch.own, given[2].expand(4))


# The dtype of a field, and what would not survive being stored in it.
UNFIT: list[tuple[torch.dtype, Any]] = [
    (torch.uint8, 256),
    (torch.uint8, -1),
    (torch.uint8, 0.5),
    (torch.int8, np.int64(128)),
    (torch.int32, 2**31),
    (torch.int32, torch.tensor(0)),  # the values of a tensor are not looked at
    (torch.int64, 1.0),
    (torch.bool, 1),
    (torch.bool, 0.0),
    (torch.uint16, 70_000),
    (torch.uint16, -1),
    (torch.uint16, 2.7),
    (torch.uint32, 2**32),
    (torch.uint64, -1),
    (torch.float32, "1"),
    (torch.float32, None),
    (torch.float32, 1j),
]


@pytest.mark.parametrize(("dtype", "value"), UNFIT)
def test_F54_a_value_that_does_not_fit_its_field_is_refused(dtype: torch.dtype, value: Any) -> None:
    buffer = uniform(4, fields={"obs": Field(), "action": Field((), dtype)})
    with pytest.raises(InputError, match="action"):
        buffer.add(**{**row(0), "action": value})
    assert len(buffer) == 0


def test_F55_float64_is_stored_as_float32_and_plain_numbers_are_taken(kernels: str) -> None:
    buffer = uniform(4, kernels, fields={"obs": Field((2,)), "action": Field((1,))})
    buffer.add(
        obs=np.array([0.1, 0.2]),
        action=np.array([0.3], np.float64),
        reward=16_777_217.0,
        next_obs=[0.3, 0.4],
        terminated=np.bool_(True),
        truncated=False,
    )
    batch = buffer.rows([0])
    assert batch.obs.dtype == batch.action.dtype == batch.reward.dtype == torch.float32
    assert batch.obs.tolist() == np.float32([[0.1, 0.2]]).tolist()
    assert batch.reward.tolist() == [16_777_216]  # the nearest float32, as documented
    assert batch.terminated.tolist() == [True]


def test_F55_values_that_are_no_numbers_are_stored_as_given(kernels: str) -> None:
    buffer = uniform(4, kernels)
    buffer.add(**{**row(0), "obs": np.nan, "reward": -np.inf, "next_obs": np.inf})
    assert np.isnan(buffer.rows([0]).obs.item())
    assert held(buffer).popitem()[1] == (-np.inf, 0.5, np.inf, False)


def test_F56_more_memory_than_is_free_is_refused_with_a_capacity_that_would_fit() -> None:
    fields = {"obs": Field((1000,)), "action": Field()}
    capacity = free_memory() * 10 // plan(1, fields, batch_size=0).row_bytes
    with pytest.raises(ConfigError, match=r"needs [\d.]+ GB .* [\d.]+ GB are free.*fit") as refusal:
        ReplayBuffer(capacity, fields)
    fitting = int(str(refusal.value).split("capacity=")[1].split()[0])
    assert 0.8 < plan(fitting, fields).total / free_memory() < 1


SETTINGS = [
    {"sampler": Uniform()},
    {"sampler": Proportional(), "track_reuse": True},
    {"sampler": Proportional(new_priority="max_current", beta=Linear(0.4, 1.0, 10)), "n_step": 5},
    {"sampler": Proportional(normalize=None), "num_envs": 16, "n_step": 3},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("capacity", [16, 1000, 100_000])
def test_F56_a_plan_tells_the_bytes_without_allocating(capacity: int, settings: Any) -> None:
    fields = {"obs": Field((17,)), "action": Field((6,))}
    planned = plan(capacity, fields, batch_size=0, **settings)
    buffer = ReplayBuffer(capacity, fields, autoreset="disabled", **settings)
    tensors = [*buffer._state.tensors().values(), buffer._home.intake.staging]
    allocated = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    assert planned.total == pytest.approx(allocated, rel=0.01)
    assert buffer.memory() == planned


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("capacity", [16, 1000, 100_000])
def test_F56_the_largest_capacity_of_a_plan_does_fit(capacity: int, settings: Any) -> None:
    fields = {"obs": Field((17,)), "action": Field((6,))}
    available = 10**9
    largest = plan(capacity, fields, **settings).largest_capacity(available)
    assert plan(largest, fields, **settings).total <= available


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_F57_a_full_buffer_does_not_grow() -> None:
    buffer = ReplayBuffer(10_000, FIELDS, sampler=Proportional(), n_step=3, track_reuse=True)
    step = rows(range(50))
    errors = np.random.default_rng(0).normal(size=256)
    after = []
    for number in range(3000):
        buffer.extend(**step)
        batch = buffer.sample(256)
        buffer.update_priorities(batch.ids, errors)
        if number in (600, 2999):
            after.append(resident())
    assert after[1] == pytest.approx(after[0], rel=0.01)


def test_F57_memory_is_taken_when_the_buffer_is_made_not_when_it_is_filled() -> None:
    buffer = ReplayBuffer(500_000, BYTES)
    assert buffer._state.rows.numel() == 16_000_000
    before = resident()
    buffer._state.rows.fill_(1)
    assert resident() - before < MEGABYTE
    write(buffer, [])
