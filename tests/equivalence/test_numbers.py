"""Random numbers and powers: the reference, the compiled kernels and what is known about them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relive.ops.philox import reference as philox
from relive.ops.power.reference import power
from tests.equivalence import compiled
from tests.properties import draws

# The known answers of Random123 for philox4x32-10: counter, key, output.
KNOWN_ANSWERS = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
INT64 = np.iinfo(np.int64)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_of_the_twin_gives_the_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], answer: tuple[int, ...]
) -> None:
    seed = key[1] * 2**32 + key[0]
    words = draws.philox(seed, counter[1] * 2**32 + counter[0], counter[2], counter[3])
    assert tuple(words) == answer


def test_philox_is_the_same_in_the_reference_the_kernels_and_the_twin() -> None:
    rng = np.random.default_rng(0)
    seeds = np.concatenate([rng.integers(INT64.min, INT64.max, 300), [0, -1, INT64.min]])
    counters = np.concatenate([rng.integers(0, INT64.max, 300), [0, 2**32 - 1, 2**32]])
    streams = rng.integers(0, 3, 303)
    found = compiled.bits(seeds, counters, streams).tolist()
    given = (seeds.tolist(), counters.tolist(), streams.tolist())
    for bits, *arguments in zip(found, *given, strict=True):
        words = philox.philox(*arguments)
        assert list(words) == draws.philox(*arguments)
        assert bits == words[0] << 32 | words[1]


@pytest.mark.parametrize(
    "bound", [1, 2, 3, 10, 1000, 2**31, 2**33 + 1, 2**53 + 1, 2**62, 2**63 - 1]
)
def test_integers_below_a_bound_are_the_same(bound: int) -> None:
    counters = np.arange(500)
    found = compiled.all_below(bound, -7, counters, 1)
    expected = [philox.random_below(bound, -7, counter, 1) for counter in counters.tolist()]
    assert found.tolist() == expected
    assert expected == [draws.below(bound, -7, counter, 1) for counter in counters.tolist()]
    assert 0 <= min(expected) <= max(expected) < bound


EXPONENTS = [-1.0, -0.7, -0.4, 0.0, 1e-3, 0.4, 0.5, 0.6, 0.7, 1.0, 1.3, 2.0]


@pytest.fixture(scope="module")
def bases() -> np.ndarray:
    """Float32 numbers over 48 decades, and the powers of two among them."""
    values = 10 ** np.random.default_rng(0).uniform(-24, 24, 20_000)
    return np.concatenate([values.astype(np.float32), 2.0 ** np.arange(-80.0, 81)]).astype(float)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_are_the_same_bit_for_bit(bases: np.ndarray, exponent: float) -> None:
    reference = power(torch.from_numpy(bases), exponent).numpy()
    np.testing.assert_array_equal(compiled.powers(bases, exponent), reference)
    np.testing.assert_array_equal(compiled.powers_one_by_one(bases, exponent), reference)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 63, 64, 65, 255])
def test_powers_of_any_number_of_bases_are_the_same(bases: np.ndarray, count: int) -> None:
    reference = power(torch.from_numpy(bases[:count]), 0.6).numpy()
    np.testing.assert_array_equal(compiled.powers(bases[:count], 0.6), reference)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_are_correctly_rounded_but_for_rare_ties(bases: np.ndarray, exponent: float) -> None:
    with np.errstate(over="ignore", under="ignore"):
        right = (bases.astype(np.longdouble) ** np.longdouble(exponent)).astype(np.float32)
    normal = np.isfinite(right) & (right > 2.0**-126)
    found, right = compiled.powers(bases, exponent)[normal], right[normal]
    np.testing.assert_array_max_ulp(found, right, maxulp=1)
    assert np.mean(found == right) >= 0.9999
    assert normal.mean() > 0.6


@pytest.mark.parametrize("exponent", [1.0, 2.0, 0.5])
def test_powers_of_four_are_exact(exponent: float) -> None:
    bases = 4.0 ** np.arange(-20.0, 21)
    assert compiled.powers(bases, exponent).tolist() == (bases**exponent).tolist()
    assert power(torch.from_numpy(bases), exponent).tolist() == (bases**exponent).tolist()
