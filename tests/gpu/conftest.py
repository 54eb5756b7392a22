"""Tests of a buffer on a CUDA device, which need torch, NumPy, Numba, Triton and pytest alone.

Each runs on a device that is there, and at small size on one that is pretended: in a process with
TRITON_INTERPRET=1, which runs no kernels on a GPU. Where there is neither, it is skipped.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
import torch

from benchmarks.gpu.workload import TINY, Scale
from tests.gpu.real import RealDevice

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore = [] if find_spec("triton") else ["test_checks.py", "test_buffer.py"]
MIDDLE = Scale(rows=100_000, rivals=(20_000,), leaves=(20_000,), lives=100, chunk=1 << 16)


@dataclass(frozen=True)
class Place:
    """Where a test runs.

    Attributes:
        device: The one that is there, or the one that is pretended.
        scale: How large its buffers are.
        calls: Of a random life.
    """

    device: Any
    scale: Scale
    calls: int


@pytest.fixture(params=["there", "pretended"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "there":
        if INTERPRETED or not torch.cuda.is_available():
            pytest.skip("there is no CUDA device, or kernels are interpreted")
        yield Place(RealDevice(), MIDDLE, 1000)
        torch.cuda.empty_cache()
    elif not INTERPRETED:
        pytest.skip("kernels are not interpreted: set TRITON_INTERPRET=1")
    else:
        from tests.triton.pretended import pretended  # which needs more of torch than a GPU does

        with pretended() as device:
            yield Place(device, TINY, 10)
