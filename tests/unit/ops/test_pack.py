"""Columns of values become rows of bytes, the same by every implementation."""

import numpy as np
import pytest
import torch

from relive.ops.pack import cpu, reference

SIZES = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 68, 100, 255, 256, 257, 1000]


def _packed(pack, values, offset, row_bytes):
    steps = torch.full((len(values), 1, row_bytes), 7, dtype=torch.uint8)
    pack(steps, [(offset, values.shape[1], values)])
    return steps.view(len(values), row_bytes)


@pytest.mark.parametrize("pack", [reference.pack, cpu.pack], ids=["reference", "cpu"])
@pytest.mark.parametrize("nbytes", SIZES)
def test_a_value_of_any_size_arrives_whole_and_touches_nothing_else(pack, nbytes):
    values = np.random.default_rng(nbytes).integers(8, 256, (9, nbytes)).astype(np.uint8)
    for offset in (0, 3, 16):
        rows = _packed(pack, values, offset, nbytes + 32)
        assert np.array_equal(rows[:, offset : offset + nbytes].numpy(), values)
        assert (rows[:, :offset] == 7).all()
        assert (rows[:, offset + nbytes :] == 7).all()


def test_columns_of_several_dtypes_are_packed_in_one_call():
    flags = np.array([True, False, True])
    floats = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    found = []
    for pack in (reference.pack, cpu.pack):
        steps = torch.zeros(3, 1, 16, dtype=torch.uint8)
        pack(steps, [(0, 1, flags), (4, 8, floats)])
        found.append(steps)
    assert torch.equal(*found)
    assert found[0][:, 0, 0].tolist() == [1, 0, 1]
    assert torch.equal(found[0][:, 0, 4:12].contiguous().view(torch.float32), floats)
