"""`relive plan`: bytes by component."""

from __future__ import annotations

import pytest
import torch

from relive.cli import plan
from relive.cli.main import main
from relive.fields import Field

GB = 10**9


def planned(words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The bytes of each component as printed; the last line as "verdict"."""
    main(["plan", *words.split()])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    rows = [line.split() for line in out.splitlines() if line.strip()]
    found = {row[0]: " ".join(row[1:3]) for row in rows[2:-1] if len(row) > 2}
    return {**found, "title": " ".join(rows[0]), "verdict": " ".join(rows[-1])}


@pytest.mark.parametrize(("capacity", "most"), [(100_000, 47), (1_000_000, 470)])
def test_rows_of_51_floats_stay_within_their_budget(
    capacity: int, most: float, capsys: pytest.CaptureFixture[str]
) -> None:
    found = planned(f"--capacity {capacity} --obs 51 --action 1 --sampler proportional", capsys)
    size, unit = found["total"].split()
    assert unit == "MB"
    assert 0.9 * most < float(size) <= most


def test_the_components_are_rows_priorities_tree_and_workspace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = planned("--capacity 100000 --obs 51 --action 1", capsys)
    assert found["title"] == "100 000 rows of 448 bytes"
    assert found["rows"] == "44.8 MB"
    assert list(found)[:5] == ["rows", "priorities", "tree", "workspace", "total"]


@pytest.mark.parametrize(("store", "rows"), [("", "22.58 GB"), ("--obs-store uint8", "5.65 GB")])
def test_images_stored_as_bytes_take_a_quarter(
    store: str, rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(f"--obs 4x84x84 --sampler uniform {store}", capsys)["rows"] == rows


def test_a_uniform_buffer_has_no_priorities_and_no_tree(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned("--env CartPole-v1 --sampler uniform", capsys)
    assert (found["rows"], found["priorities"], found["tree"]) == ("6.4 MB", "0 B", "0 B")


@pytest.mark.parametrize(
    ("free", "status", "verdict"),
    [
        (24 * GB, 0, "It fits: 24.00 GB are free on cpu, up to "),
        (10**7, 1, "It does not fit: 10.0 MB are free on cpu, up to "),
        (None, 0, "This machine does not say how much cpu memory is free."),
    ],
)
def test_it_says_what_fits_into_the_memory_that_is_free(
    free: int | None,
    status: int,
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(plan, "free_memory", lambda _: free)
    assert main(["plan", "--obs", "51", "--action", "1"]) == status
    assert verdict in capsys.readouterr().out


def test_the_largest_capacity_that_is_named_fits_indeed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan, "free_memory", lambda _: GB)
    main(["plan", "--obs", "51"])
    words = capsys.readouterr().out.split("up to ")[1]
    most = int(words.partition(" rows")[0].replace("\u202f", ""))
    assert most > 2_000_000
    assert main(["plan", "--obs", "51", "--capacity", str(most)]) == 0
    assert main(["plan", "--obs", "51", "--capacity", str(round(1.02 * most))]) == 1


def test_nothing_is_allocated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--capacity", str(10**10), "--obs", "4x84x84"]) == 1
    assert "10\u202f000\u202f000\u202f000 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"obs": "51"}, {"obs": Field((51,)), "action": Field((), torch.int64)}),
        (
            {"obs": "4x84X84", "obs_dtype": "uint8", "action": "6"},
            {"obs": Field((4, 84, 84), torch.uint8), "action": Field((6,))},
        ),
        ({"env": "CartPole-v1"}, {"obs": Field((4,)), "action": Field((), torch.int64)}),
    ],
)
def test_a_row_is_given_by_shapes_or_by_an_environment(
    words: dict[str, str], expected: dict[str, Field]
) -> None:
    assert plan.fields(plan.PlanOptions(**words)) == expected


def test_the_memory_of_a_device_that_is_not_there_is_unknown() -> None:
    assert plan.can_ask("cpu")
    assert plan.can_ask("cuda") is torch.cuda.is_available()
