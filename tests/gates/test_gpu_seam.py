"""Where the newest row meets the oldest, nothing goes wrong on a (pretended) GPU.

As `test_cpu_seam.py`, with smaller rings: the kernels run in Triton's interpreter.
"""

from __future__ import annotations

import pytest

from tests.gates.seam import Pair, cross, require_refusals
from tests.gates.sides import at


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize(("size", "lanes"), [(4, 1), (4, 3)])
@pytest.mark.parametrize("n_step", [1, 3])
def test_the_seam_is_that_of_a_plain_list(size, n_step, lanes, pinned) -> None:
    with at("gpu") as place:
        pair = Pair(size, n_step, lanes, pinned, place)
        cross(pair, longest=0)
        require_refusals(pair)


def test_a_ring_may_be_all_seam() -> None:
    with at("gpu") as place:
        pair = Pair(1, 3, 1, False, place)
        cross(pair, longest=0)
        require_refusals(pair)
