"""Draws, weights, returns and discounts of a fixed history, from a file, bit for bit."""

from __future__ import annotations

import json

import pytest

from tests.golden.history import FILE, SAMPLERS, history

EXPECTED = json.loads(FILE.read_text()) if FILE.exists() else {}


def test_the_file_holds_every_history() -> None:
    assert list(EXPECTED) == list(SAMPLERS)


@pytest.mark.parametrize("kernels", ["reference", "cpu"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_fixed_history_gives_the_same_bits_as_ever(name: str, kernels: str) -> None:
    assert history(name, kernels) == EXPECTED[name]
