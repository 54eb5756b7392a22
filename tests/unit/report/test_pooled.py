"""What several buffers held, taken together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relive.report.pooled import counters, priorities_of, rebinned, shares_of
from relive.report.read import Run


def run_of(**measured: Any) -> Run:
    records = {"replay_measured": [{"record": "replay_measured", "step": 1, **measured}]}
    return Run(path=Path("x"), config={}, versions={}, records=records, seconds=0.0, torn_lines=0)


def test_bins_are_added_up_whatever_their_number() -> None:
    runs = [run_of(age_counts=[1, 2]), run_of(age_counts=[0, 1, 6]), run_of(age_counts=None)]
    shares = shares_of(runs, "age_counts")
    assert shares is not None
    assert shares.tolist() == [10, 30, 60]
    assert shares_of(runs[2:], "age_counts") is None
    assert shares_of([run_of(age_counts=[0, 0])], "age_counts") is None


def test_priorities_are_brought_into_common_bins() -> None:
    runs = [
        run_of(priority_edges=[0.01, 0.1, 1.0], priority_counts=[40, 0]),
        run_of(priority_edges=[0.1, 1.0], priority_counts=[60]),
        run_of(priority_edges=None, priority_counts=None),
    ]
    pooled = priorities_of(runs)
    assert pooled is not None
    edges, shares = pooled
    np.testing.assert_allclose(edges, 10 ** (np.arange(-8, 1) / 4))
    np.testing.assert_allclose(shares, [10] * 4 + [15] * 4)
    assert priorities_of(runs[2:]) is None


def test_lists_are_no_counters() -> None:
    assert counters(run_of(stats={"a": 1, "b": [1], "c": None})) == {"a": 1, "c": None}
    assert counters(run_of()) == {}


@pytest.mark.parametrize(
    ("edges", "counts"),
    [
        ([1e-3, 1e-2, 1e-1], [5.0, 7.0]),
        ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0]),
        ([0.3, 7.0], [10.0]),
    ],
)
def test_counts_in_other_bins_are_as_many(edges: list[float], counts: list[float]) -> None:
    common, inside = rebinned(np.array(edges), np.array(counts))
    assert inside.sum() == pytest.approx(sum(counts))
    assert common[0] <= edges[0] * 1.0001
    assert common[-1] >= edges[-1] * 0.9999
    np.testing.assert_allclose(np.diff(np.log10(common)), 0.25)


def test_bins_that_match_are_left_as_they_are() -> None:
    edges = 10 ** (np.arange(5) / 4)
    common, inside = rebinned(edges, np.array([1.0, 0.0, 4.0, 2.0]))
    np.testing.assert_allclose(common, edges)
    np.testing.assert_allclose(inside, [1, 0, 4, 2], atol=1e-12)
