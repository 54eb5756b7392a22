"""Each gate on the definition and the CPU, or (TRITON_INTERPRET=1) on a pretended GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.gates.sides import INTERPRETED, SIDES, at

if TYPE_CHECKING:
    from collections.abc import Iterator

collect_ignore = ["test_cpu_seam.py" if INTERPRETED else "test_gpu_seam.py"]


@pytest.fixture(params=SIDES)
def place(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Arguments of a buffer that lives on a side."""
    with at(request.param) as arguments:
        yield arguments
