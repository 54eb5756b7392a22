"""Pictures of several groups: told apart by colour and by line, and fit for a page."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from relive.report import overlays
from relive.report.canvas import GROUPS, HALF_OF_PAGE, NARROW
from relive.report.curves import Curve, mean_curve
from relive.report.overlays import Result, look

STEPS = np.arange(1.0, 101.0)
SHARES = np.array([0.0, 20.0, 50.0, 30.0, 0.0])


def curve(scale: float = 1.0, runs: int = 3) -> Curve:
    made = mean_curve([(STEPS, scale * STEPS + run) for run in range(runs)])
    assert made is not None
    return made


def pictures() -> dict[str, str]:
    results = [
        (0, Result("one", np.array([1.0, 2.0, 4.0]), 2.3, (1.0, 4.0))),
        (1, Result("two", np.array([3.0]), 3.0, None)),
    ]
    edges = np.array([0.01, 0.1, 1.0, 10.0])
    return {
        "curves": overlays.curves("curves", [(0, curve()), (1, curve(2, 1))], reference=300.0),
        "log": overlays.curves("log", [(0, curve())], log=True, size=NARROW),
        "results": overlays.results("results", results, 5.0),
        "priorities": overlays.priorities("priorities", [(0, edges, SHARES[1:4])], HALF_OF_PAGE),
        "ages": overlays.doublings("ages", [(0, SHARES), (6, SHARES)], "rows", HALF_OF_PAGE),
    }


def test_equal_data_give_equal_pictures() -> None:
    assert pictures() == pictures()


@pytest.mark.parametrize("name", ["curves", "log", "results", "priorities", "ages"])
def test_a_picture_takes_its_colours_from_the_page(name: str) -> None:
    svg = pictures()[name]
    assert "var(--g1)" in svg
    assert not re.findall(r"#[0-9a-f]{6}\b", svg)


def test_thirty_five_groups_differ_in_colour_or_line() -> None:
    looks = [(look(index)["c"], str(look(index)["ls"])) for index in range(35)]
    assert len(set(looks)) == 35
    assert len({colour for colour, _ in looks[:7]}) == 7
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in pairwise(looks))


def test_the_key_of_a_group_has_its_colour_and_its_dashes() -> None:
    assert "var(--g1)" in overlays.key(0)
    assert "dasharray" not in overlays.key(0)
    assert "var(--g2)" in overlays.key(1)
    assert "dasharray" in overlays.key(1)
    assert f"var(--g{len(GROUPS)})" in overlays.key(len(GROUPS) - 1)


def test_a_single_step_is_seen() -> None:
    one = mean_curve([(np.array([5.0]), np.array([1.0]))])
    assert one is not None
    assert "<use" in overlays.curves("single", [(0, one)])
