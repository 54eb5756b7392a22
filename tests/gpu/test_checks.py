"""What `make bench-gpu` requires before it measures holds, at another size too."""

import pytest
import torch

from benchmarks.gpu.checks import CHECKS
from benchmarks.gpu.flow import FLOW


@pytest.mark.parametrize("name", [*CHECKS, *FLOW])
def test_a_check_of_the_benchmark_holds(place, name):
    found = {**CHECKS, **FLOW}[name](torch.device("cuda"), place.scale)
    assert name != "far rows" or found["over_32_bits"] == (found["rows"] > 5_000_000)
