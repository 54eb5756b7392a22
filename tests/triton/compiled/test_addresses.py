"""Wherever the columns of a step begin, its kernel is compiled once."""

import pytest
import torch

from relive import Proportional, ReplayBuffer
from relive.ops.write.cuda import extend
from tests.triton.cases import FIELDS
from tests.triton.compiled.driver import compiled_launches

TIMES = 20


@pytest.mark.parametrize("capability", [80, 90])
def test_rows_of_larger_tensors_at_any_address_are_compiled_for_once(capability):
    buffer = ReplayBuffer(150, FIELDS, sampler=Proportional())
    columns = [
        (column.offset, column.nbytes, torch.zeros(TIMES, 1, column.nbytes, dtype=torch.uint8))
        for name, column in buffer._home.layout.columns.items()
        if name not in ("lane", "prev", "next", "discount")
    ]
    with compiled_launches(capability) as kernels:
        for time in range(TIMES):
            row = [(offset, nbytes, values[time]) for offset, nbytes, values in columns]
            options = {"ready_made": False, "close": False}
            extend(buffer._state, row, 1, range(1), buffer._home.intake.staging, **options)
    assert len(kernels) == TIMES
    assert len({kernel.code.hash for kernel in kernels}) == 1
