"""A batch holds the bytes that were written, whatever they mean.

Of every dtype, at odd sizes, from rows shorter and longer than a page, in batches of 1 to 257 rows:
each field of a batch is, byte for byte, what NumPy's own indexing takes out of the arrays that were
given. So NaNs keep their payloads, zeros their signs, and denormals are not flushed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relive import Batch, Field, Mixture, Proportional, ReplayBuffer
from relive.arrays import REAL_DTYPES
from tests.gates.sides import INTERPRETED, at
from tests.gates.written import Written

DTYPES = sorted(REAL_DTYPES, key=str)
STORES = (torch.uint8, torch.float16, torch.bfloat16)
FIELDS: dict[str, dict[str, Any]] = {
    "every dtype": {
        "obs": {str(dtype)[6:]: Field((3,), dtype) for dtype in DTYPES},
        "action": Field((), torch.int64),
        **{f"one_{str(dtype)[6:]}": Field((), dtype) for dtype in DTYPES},
    },
    "narrow storage": {
        "obs": {str(store)[6:]: Field((5, 7), store=store) for store in STORES},
        "action": Field((3,)),
        **{f"one_{str(store)[6:]}": Field((), store=store) for store in STORES},
    },
    "odd sizes": {
        "obs": {"a": Field((301,), torch.uint8), "b": {"c": Field((13,), torch.float16)}},
        "action": Field((2, 3), torch.int16),
        "log_prob": Field(),
        "mask": Field((17,), torch.bool),
    },
    "4,096 bytes and a few": {"obs": Field((511,)), "action": Field((3,), torch.int8)},
    "longer than a page": {
        "obs": Field((4099,), torch.uint8),
        "action": Field((37,)),
        "half": Field((515,), store=torch.float16),
    },
}
ROWS, MORE = 7, 4
SIZES = [3] if INTERPRETED else [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 127, 255, 256, 257]


def filled(written: Written, **settings: Any) -> ReplayBuffer:
    """A ring in which the oldest row is in the middle; its newest ROWS are held."""
    fields = {name: field for name, field in written.fields.items() if name != "next_obs"}
    return ReplayBuffer(ROWS, fields, sampler=Proportional(), **settings)


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("name", FIELDS)
def test_a_batch_is_what_numpy_takes_out_of_the_arrays(
    name: str, as_tensor: bool, place: dict[str, Any]
) -> None:
    written = Written(FIELDS[name], ROWS + MORE, seed=len(name))
    buffer = filled(written, **place)
    buffer.extend(**written.steps(as_tensor=as_tensor, device=place.get("device", "cpu")))
    for size in SIZES:
        batch = buffer.sample(size)
        assert written.differences(batch, batch.ids.cpu().numpy()) == [], size
    assert written.differences(buffer.all(), np.arange(MORE, ROWS + MORE)) == []


def test_a_batch_of_257_rows_is_too(place: dict[str, Any]) -> None:
    written = Written(FIELDS["odd sizes"], ROWS, seed=1)
    buffer = filled(written, **place)
    buffer.extend(**written.steps())
    ids = np.arange(257) * 3 % ROWS
    assert written.differences(buffer.rows(ids), ids) == []


@pytest.mark.parametrize("name", ["every dtype", "narrow storage", "odd sizes"])
def test_parts_of_a_batch_may_begin_anywhere(name: str, place: dict[str, Any]) -> None:
    """Rows of the second buffer of a mixture begin at an odd row of `out`."""
    parts = [Written(FIELDS[name], ROWS, seed) for seed in (2, 3)]
    buffers = [filled(written, **place) for written in parts]
    for buffer, written in zip(buffers, parts, strict=True):
        buffer.extend(**written.steps())
    mixture = Mixture(buffers, [3, 4])
    out = mixture.empty_batch(7)
    batch = mixture.sample(7, out=out)
    assert batch is out
    source, ids = (tensor.cpu().numpy() for tensor in mixture.where(batch.ids))
    assert source.tolist() == [0] * 3 + [1] * 4
    both = parts[0]
    both.stored = {n: np.concatenate([p.stored[n] for p in parts]) for n in both.stored}
    assert both.differences(batch, ids + ROWS * source) == []


@pytest.mark.skipif(INTERPRETED, reason="memory of a GPU begins on a cache line")
def test_a_batch_may_lie_off_a_cache_line(place: dict[str, Any]) -> None:
    written = Written(FIELDS["every dtype"], ROWS, seed=4)
    buffer = filled(written, **place)
    buffer.extend(**written.steps())
    layout = buffer._home.batch_layout
    nbytes = layout.arena_bytes(19)
    for shift in (8, 24, 40):
        memory = np.full(nbytes + 64, 7, np.uint8)
        arena = torch.from_numpy(memory[shift : shift + nbytes])
        batch = buffer.sample(19, out=Batch(layout, arena, 19, layout.offsets(19)))
        assert written.differences(batch, batch.ids.numpy()) == []
        assert {*memory[:shift], *memory[shift + nbytes :]} == {7}


@pytest.mark.skipif(not INTERPRETED, reason="rows_on is a setting of buffers on a GPU")
@pytest.mark.parametrize("name", ["every dtype", "4,096 bytes and a few"])
def test_rows_in_host_memory_come_back_the_same(name: str) -> None:
    written = Written(FIELDS[name], ROWS + MORE, seed=5)
    with at("gpu") as place:
        buffer = filled(written, rows_on="host", **place)
        buffer.extend(**written.steps())
        batch = buffer.sample(3)
        assert written.differences(batch, batch.ids.cpu().numpy()) == []
        assert written.differences(buffer.all(), np.arange(MORE, ROWS + MORE)) == []
