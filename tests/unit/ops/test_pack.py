"""Columns of values become rows of bytes, the same by every implementation."""

import numpy as np
import pytest
import torch
from numba import carray

from relive.ops.compiled import int64_pointer, kernel
from relive.ops.pack import cpu, reference

SIZES = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 68, 100, 255, 256, 257, 1000]


@kernel
def _pack(table, num_columns, rows, count, row_bytes):
    columns = carray(int64_pointer(table), (num_columns, 3))
    for i in range(count):
        cpu.pack_row(columns, i, rows + i * row_bytes)


def compiled(rows, columns):
    table = cpu.table_of(columns)
    _pack(table.buffer_info()[0], len(columns), rows.data_ptr(), *rows.shape)


IMPLEMENTATIONS = {"reference": reference.pack, "cpu": compiled}


@pytest.mark.parametrize("pack", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
@pytest.mark.parametrize("nbytes", SIZES)
def test_a_value_of_any_size_arrives_whole_and_touches_nothing_else(pack, nbytes):
    values = np.random.default_rng(nbytes).integers(8, 256, (9, nbytes)).astype(np.uint8)
    for offset in (0, 3, 16):
        rows = torch.full((9, nbytes + 32), 7, dtype=torch.uint8)
        pack(rows, [(offset, nbytes, values)])
        assert np.array_equal(rows[:, offset : offset + nbytes].numpy(), values)
        assert (rows[:, :offset] == 7).all()
        assert (rows[:, offset + nbytes :] == 7).all()


@pytest.mark.parametrize("pack", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
def test_columns_of_several_dtypes_are_packed_in_one_call(pack):
    flags = np.array([True, False, True])
    flags.flags.writeable = False
    floats = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rows = torch.zeros(3, 16, dtype=torch.uint8)
    pack(rows, [(0, 1, flags), (4, 8, floats)])
    assert rows[:, 0].tolist() == [1, 0, 1]
    assert torch.equal(rows[:, 4:12].contiguous().view(torch.float32), floats)
