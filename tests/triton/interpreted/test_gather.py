"""Rows that Triton copies are those of the CPU, whatever their fields are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relive import Field, ReplayBuffer
from relive.fields import CONVERSIONS
from relive.ops.gather import layout
from relive.ops.launch import launch
from relive.ops.sample import cpu, cuda
from tests.triton.checker import checked

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
STORES = list(CONVERSIONS)
FIELDS = {
    "flat": {"obs": Field((17,)), "action": Field((6,))},
    "every dtype": {
        "obs": {str(dtype)[6:]: Field((3,), dtype) for dtype in DTYPES},
        "action": Field((), torch.int64),
        **{f"one_{k}": Field((), dtype) for k, dtype in enumerate(DTYPES)},
    },
    "converted": {
        "obs": {str(k): Field((37,), store=store) for k, store in enumerate(STORES)},
        "action": Field((), torch.int32),
        **{f"one_{k}": Field((), store=store) for k, store in enumerate(STORES)},
    },
    "a large odd field": {"obs": Field((301,), torch.uint8), "action": Field((2, 3), torch.int16)},
    "images": {"obs": Field((3, 50, 50), store=torch.uint8), "action": Field((), torch.int64)},
    "long and odd": {
        "obs": Field((5003,), torch.uint8),
        "action": Field((1100,)),
        "half": Field((1030,), store=torch.float16),
        "wide": Field((2048,)),
        "pairs": Field((1500,), torch.int16),
    },
}


def zeros(fields: Any, steps: int) -> Any:
    """Of a field, or of a dict of fields, for some steps."""
    if isinstance(fields, Field):
        return torch.zeros(steps, *fields.shape, dtype=fields.dtype)
    return {name: zeros(field, steps) for name, field in fields.items()}


def wrapped(fields: dict[str, Any], capacity: int = 9) -> ReplayBuffer:
    """A ring whose oldest row is in the middle; the rows are random bytes."""
    buffer, steps = ReplayBuffer(capacity, fields), capacity + capacity // 2
    values = zeros(fields, steps)
    flags = {name: np.zeros(steps, bool) for name in ("terminated", "truncated")}
    buffer.extend(**values, next_obs=values["obs"], reward=np.zeros(steps), **flags)
    rng = np.random.default_rng(0)
    buffer._state.rows.copy_(torch.from_numpy(rng.integers(0, 256, buffer._state.rows.shape)))
    return buffer


def arenas(buffer: ReplayBuffer, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes of a batch of rows, copied by Triton and by the CPU."""
    given, expected = (buffer.empty_batch(len(ids))._arena.fill_(7) for _ in range(2))
    with checked(shuffle=len(ids)):
        cuda.gather(buffer._state, torch.tensor(ids), given)
    cpu.gather(buffer._state, torch.tensor(ids), expected)
    return given, expected


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("count", [1, 2, 11])
def test_every_field_is_copied_whole(fields: dict[str, Any], count: int) -> None:
    buffer = wrapped(fields)
    ids = np.random.default_rng(count).choice(buffer.live_ids().numpy(), count).tolist()
    given, expected = arenas(buffer, ids)
    assert torch.equal(given, expected)


def test_programs_of_many_tiles_copy_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MANY_ROWS", 30)
    monkeypatch.setattr(layout, "MOST_TOGETHER", 4)
    buffer = wrapped(FIELDS["flat"], capacity=50)
    given, expected = arenas(buffer, buffer.live_ids().tolist())
    assert torch.equal(given, expected)


@pytest.mark.parametrize("name", ["flat", "images"])
def test_an_id_of_minus_1_becomes_zeros(name: str) -> None:
    buffer = wrapped(FIELDS[name])
    held = buffer.live_ids()[[2, 5]].tolist()
    batch = buffer.empty_batch(3)
    batch._arena.fill_(7)
    with checked():
        cuda.gather(buffer._state, torch.tensor([held[0], -1, held[1]]), batch._arena)
    _, expected = arenas(buffer, [held[0], held[0], held[1]])
    for field in ("reward", "obs", "action", "next_obs", "terminated"):
        start = batch._offsets[field]
        bytes_of_one = batch[field][0].nbytes
        rows = slice(start, start + 3 * bytes_of_one)
        given = batch._arena[rows].view(3, bytes_of_one)
        assert torch.equal(given[[0, 2]], expected[rows].view(3, bytes_of_one)[[0, 2]])
        assert not given[1].any()


@pytest.mark.parametrize("store", CONVERSIONS, ids=str)
def test_every_stored_value_is_read_as_the_cpu_reads_it(store: torch.dtype) -> None:
    """All 2^8 or 2^16 of them, NaNs with their bits too."""
    values = 2 ** (8 * store.itemsize)
    buffer = wrapped({"obs": Field((values,), store=store), "action": Field()}, capacity=1)
    offset = buffer._home.layout.columns["obs"].offset
    stored = torch.arange(values).to(torch.int32)
    stored = stored.to(torch.uint8) if store == torch.uint8 else stored.to(torch.int16)
    buffer._state.rows[0, offset : offset + stored.nbytes] = stored.view(torch.uint8)
    given, expected = arenas(buffer, buffer.live_ids().tolist())
    assert torch.equal(given, expected)


def test_rows_are_copied_in_one_launch() -> None:
    buffer = wrapped(FIELDS["every dtype"])
    launches: list[Any] = []
    launch.listeners.append(lambda kernel, *_: launches.append(kernel))
    try:
        cuda.gather(buffer._state, buffer.live_ids(), buffer.empty_batch(9)._arena)
    finally:
        launch.listeners.pop()
    assert len(launches) == 1
