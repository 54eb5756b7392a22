"""Where the newest row meets the oldest, nothing goes wrong on the CPU.

With the seam at every slot of rings of several sizes, one-step and n-step, of one and of several
lanes, behind demonstrations and without: rows, links, windows of n steps, windows and ranges to
draw from, priorities and late updates are those of a plain list of dicts (`seam.py`).
"""

from __future__ import annotations

import pytest

from tests.gates.seam import Pair, cross, require_refusals


@pytest.mark.parametrize("kernels", ["reference", "cpu"])
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("size", [4, 5, 7, 16, 17])
def test_the_seam_is_that_of_a_plain_list(size, n_step, lanes, pinned, kernels) -> None:
    pair = Pair(size, n_step, lanes, pinned, {"kernels": kernels})
    cross(pair, longest=2 * size + 2)
    require_refusals(pair)


@pytest.mark.parametrize("kernels", ["reference", "cpu"])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("n_step", [1, 3])
def test_a_ring_may_be_all_seam(size, n_step, kernels) -> None:
    pair = Pair(size, n_step, 1, False, {"kernels": kernels})
    cross(pair, longest=3)
    require_refusals(pair)
