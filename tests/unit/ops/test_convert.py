"""Floats stored in fewer bits: what comes back, for every value that can be stored."""

import numpy as np
import pytest
import torch

from relive.fields import CONVERSIONS, NO_CONVERSION
from relive.ops.compiled import kernel
from relive.ops.convert import cpu, reference

STORES = {torch.uint8: 2**8, torch.float16: 2**16, torch.bfloat16: 2**16}


@kernel
def _convert(conversion, target, source, nbytes, past_caches):
    cpu.convert(conversion, target, source, nbytes, past_caches)


def every_value(store):
    """All that a stored number can be."""
    bits = np.arange(STORES[store], dtype=np.uint8 if store == torch.uint8 else np.uint16)
    return torch.from_numpy(bits).view(store)


def compiled(stored, past_caches=False, shift=0):
    conversion = next(c for c, dtype in reference.STORED_DTYPES.items() if dtype == stored.dtype)
    found = torch.empty(len(stored) + 64)
    start = -found.data_ptr() // 4 % 16 + shift
    target = found[start : start + len(stored)]
    _convert(conversion, target.data_ptr(), stored.data_ptr(), stored.nbytes, past_caches)
    return target


@pytest.mark.parametrize("store", STORES, ids=str)
@pytest.mark.parametrize("past_caches", [False, True])
@pytest.mark.parametrize("shift", [0, 1])
def test_every_stored_value_is_read_alike_by_all(store, past_caches, shift):
    stored = every_value(store)
    found, expected = compiled(stored, past_caches, shift), reference.decode(stored)
    assert torch.equal(found.isnan(), expected.isnan())
    numbers = ~expected.isnan()
    assert torch.equal(found.view(torch.int32)[numbers], expected.view(torch.int32)[numbers])


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100, 255])
def test_a_row_of_any_length_is_read_whole(count):
    stored = every_value(torch.uint8)[:count].clone()
    assert torch.equal(compiled(stored, past_caches=True), reference.decode(stored))


@pytest.mark.parametrize("store", STORES, ids=str)
def test_what_was_read_is_stored_as_it_was(store):
    stored = every_value(store)
    stored = stored[~reference.decode(stored).isnan()]
    again, outside = reference.encode(reference.decode(stored), store)
    assert int(outside) == 0
    bits = torch.uint8 if store == torch.uint8 else torch.int16
    assert torch.equal(again.view(bits), stored.view(bits))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_byte_is_what_numpy_calls_k_over_255(dtype):
    floats = torch.from_numpy(np.arange(256) / 255).to(dtype)
    stored, _ = reference.encode(floats, torch.uint8)
    assert stored.tolist() == list(range(256))
    assert reference.decode(stored).tolist() == (np.arange(256) / 255).astype(np.float32).tolist()


def test_other_floats_become_the_nearest_byte():
    values = torch.from_numpy(np.random.default_rng(0).random(10**5))
    stored, outside = reference.encode(values, torch.uint8)
    assert int(outside) == 0
    distance = (reference.decode(stored).double() - values).abs()
    others = (torch.arange(256, dtype=torch.float64)[:, None] / 255 - values[:1000]).abs().amin(0)
    assert torch.allclose(distance[:1000], others, rtol=0, atol=1e-7)
    assert float(distance.max()) <= 0.5 / 255 + 1e-7


OUTSIDE = {
    torch.uint8: [(-0.1, 0.0), (1.1, 1.0), (np.nan, 0.0), (np.inf, 1.0), (-np.inf, 0.0)],
    torch.float16: [(1e5, 65504.0), (-1e5, -65504.0)],
    torch.bfloat16: [(3.4e38, float(torch.finfo(torch.bfloat16).max))],
}


@pytest.mark.parametrize("store", STORES, ids=str)
def test_what_does_not_fit_becomes_the_nearest_that_does_and_is_counted(store):
    given, expected = zip(*OUTSIDE[store], strict=True)
    stored, outside = reference.encode(torch.tensor([0.5, *given]), store)
    assert int(outside) == len(given)
    assert reference.decode(stored)[1:].tolist() == list(expected)


@pytest.mark.parametrize("store", [torch.float16, torch.bfloat16], ids=str)
def test_infinities_and_nan_pass_through_floats(store):
    stored, outside = reference.encode(torch.tensor([np.inf, -np.inf, np.nan]), store)
    assert int(outside) == 0
    assert np.array_equal(
        reference.decode(stored).numpy(), [np.inf, -np.inf, np.nan], equal_nan=True
    )


def test_conversions_are_words_of_their_own():
    assert sorted([NO_CONVERSION, *CONVERSIONS.values()]) == [0, 1, 2, 3]
