"""Pictures: what they show, and that they suit a page."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from relive.report import plots
from relive.report.canvas import HALF_OF_PAGE, THIRD_OF_PAGE

STEPS = np.arange(1.0, 201.0)


def pictures() -> dict[str, str]:
    noise = np.random.default_rng(0).normal(size=200)
    return {
        "learning": plots.learning((STEPS, noise), [(100.0, 1.0, 0.5), (200.0, 2.0, 0.1)], 3.0),
        "lines": plots.lines("lines", [("one", STEPS, noise), ("two", STEPS, -noise)]),
        "log": plots.lines("log", [("one", STEPS, np.exp(4 * noise))], log=True),
        "priorities": plots.priorities(np.array([0.1, 1, 10]), np.array([5, 7]), THIRD_OF_PAGE),
        "age": plots.doublings("age", [0, 3, 4, 0, 2, 0, 0], "rows", HALF_OF_PAGE),
    }


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_equal_data_give_equal_pictures() -> None:
    assert pictures() == pictures()


@pytest.mark.parametrize("name", ["learning", "lines", "log", "priorities", "age"])
def test_a_picture_takes_colours_and_font_from_the_page(name: str) -> None:
    svg = pictures()[name]
    assert svg.startswith("<svg ")
    assert "var(--first)" in svg
    assert not re.findall(r"#[0-9a-f]{6}\b", svg)
    for foreign in ("font-family", "<style", "<metadata", "<!DOCTYPE", "http"):
        assert foreign not in svg


def test_two_pictures_on_a_page_share_no_id_and_refer_to_their_own() -> None:
    drawn = pictures()
    ids = [name for svg in drawn.values() for name in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids))
    for svg in drawn.values():
        own = set(re.findall(r'\bid="([^"]+)"', svg))
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', svg)) <= own


def test_the_learning_curve_names_what_it_shows() -> None:
    named = {"training, mean of 10 episodes", "reference", "greedy evaluation ± deviation"}
    assert named <= set(texts(pictures()["learning"]))


def test_bins_that_double_are_labelled_by_where_they_begin() -> None:
    labels = texts(pictures()["age"])
    assert labels[:5] == ["0", "1", "2", "4", "8"]


def test_a_picture_of_a_million_episodes_stays_small() -> None:
    many = np.arange(1e6)
    assert len(plots.learning((many, many), [], None)) < 300_000


@pytest.mark.parametrize("points", [0, 1])
def test_few_points_make_a_picture_too(points: int) -> None:
    few = np.arange(1.0, 1.0 + points)
    assert plots.learning((few, few), [(5.0, 1.0, 0.0)], None).startswith("<svg")
    assert plots.lines("few", [("one", np.ones(1), np.ones(1))]).startswith("<svg")
    assert plots.priorities(np.array([1.0, 2.0]), np.array([1]), (3, 2)).startswith("<svg")


def test_without_matplotlib_a_run_can_be_read_and_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None; import relive.report.read\n"
        "from relive.errors import MissingExtraError\n"
        "try: import relive.report.page\n"
        "except MissingExtraError as error: print(error)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "matplotlib is not installed: pip install 'relive[report]'\n"
