"""Both implementations of the operations."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["reference", "cpu"])
def kernels(request: pytest.FixtureRequest) -> str:
    return request.param
