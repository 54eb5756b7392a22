"""Columns become rows by a kernel as they do by definition."""

from __future__ import annotations

import pytest
import torch

from relive.ops.pack import cuda, reference
from tests.triton.arguments import launches
from tests.triton.checker import checked

SIZES = [1, 2, 3, 4, 8, 9, 12, 16, 24, 68, 100, 1000]


def values_of(rows: int, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(nbytes)
    values = torch.randint(0, 256, (rows * nbytes,), dtype=torch.uint8, generator=generator)
    return values.view(dtype).view(rows, -1)


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_value_of_any_size_arrives_whole_and_touches_nothing_else(nbytes: int) -> None:
    for offset in (0, 3, 16):
        column = (offset, nbytes, values_of(9, nbytes, torch.uint8))
        rows = torch.full((9, 1024), 7, dtype=torch.uint8)
        expected = rows.clone()
        reference.pack(expected, [column])
        with checked(shuffle=nbytes, reachable=[column[2]]):
            cuda.pack(rows, [column])
        assert torch.equal(rows, expected)


@pytest.mark.parametrize("count", [1, 3, 16, 100])
def test_columns_of_several_dtypes_are_packed_in_one_launch(count: int) -> None:
    columns = [
        (0, 1, values_of(count, 1, torch.uint8) > 100),
        (4, 8, values_of(count, 8, torch.float32)),
        (16, 8, values_of(count, 8, torch.float64)),
        (24, 6, values_of(count, 6, torch.bfloat16)),
    ]
    rows = torch.zeros(count, 32, dtype=torch.uint8)
    expected = rows.clone()
    reference.pack(expected, columns)
    with checked(shuffle=count, reachable=[values for _, _, values in columns]):
        cuda.pack(rows, columns)
    assert torch.equal(rows, expected)


def test_nothing_is_packed_of_no_rows() -> None:
    rows, column = torch.zeros(0, 32, dtype=torch.uint8), (0, 4, torch.zeros(0, 1))
    with launches(at_most=0):
        cuda.pack(rows, [column])


@pytest.mark.parametrize(
    ("offset", "nbytes", "expected"),
    [(0, 8, 8), (8, 64, 8), (4, 8, 4), (22, 84, 2), (24, 3, 1), (21, 1, 1)],
)
def test_a_value_is_copied_in_the_largest_words_that_fit(
    offset: int, nbytes: int, expected: int
) -> None:
    assert cuda.word_bytes(offset, nbytes) == expected


def test_columns_at_odd_places_are_packed_like_others() -> None:
    columns = [
        (4, 8, torch.arange(7.0)[1:].view(3, 2)),
        (12, 3, torch.arange(12, dtype=torch.uint8)[3:].view(3, 3)),
    ]
    rows = torch.zeros(3, 32, dtype=torch.uint8)
    expected = rows.clone()
    reference.pack(expected, columns)
    cuda.pack(rows, columns)
    assert torch.equal(rows, expected)
