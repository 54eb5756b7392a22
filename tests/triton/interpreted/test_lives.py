"""A buffer on a pretended GPU and one on the CPU live the same life, bit for bit."""

import pytest

from tests.triton.lives import SPECS, live
from tests.triton.pretended import pretended

CALLS = 180


@pytest.mark.parametrize("name", SPECS)
def test_the_same_calls_give_the_same_bits(name, tmp_path):
    with pretended() as device:
        live(name, device, tmp_path, CALLS)
