"""The page that compares runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from relive.cli.main import main
from relive.errors import InputError
from relive.report.comparison import MOST_GROUPS, default_folder, page, write_comparison
from relive.report.page import page as page_of_one
from relive.report.read import read_run
from tests.unit.report.conftest import (
    CONFIG,
    ENDED,
    EPISODES,
    EVALUATED,
    MEASURED,
    POLICY,
    STARTED,
    WHOLE,
)
from tests.unit.report.test_page import Tags, text_of

LEARNING = ["learning", "learning_narrow", "results"]
TRAINING = ["loss", "td_error", "q_mean", "grad_norm"]
PICTURES = [*LEARNING, *TRAINING, "priorities", "age_counts", "reuse_counts"]


def write(path: Path, records: list[dict[str, Any]] = WHOLE, **settings: Any) -> Path:
    path.mkdir(parents=True)
    config = {**CONFIG, **settings}
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (path / "metrics.jsonl").write_text(lines)
    (path / "config.json").write_text(json.dumps(config))
    return path


def replay(sampler: str) -> dict[str, Any]:
    return {"replay": {"sampler": sampler, "capacity": 1000}}


@pytest.fixture
def four(tmp_path: Path) -> list[Path]:
    """Two samplers, two seeds each."""
    paths = []
    for number, (sampler, seed) in enumerate((s, k) for s in ("uniform", "rank") for k in (1, 2)):
        mean = 100.0 + 10 * number
        records = [*WHOLE[:-2], {**EVALUATED, "mean": mean}, ENDED]
        name = tmp_path / "runs" / f"{sampler}-{seed}"
        paths.append(write(name, records, seed=seed, out=str(name), **replay(sampler)))
    return paths


def pictures(html: str, section: str = "s0") -> list[str]:
    return re.findall(rf'<svg role="img" aria-label="{section}_(\w+)"', html)


@pytest.mark.parametrize(
    ("left_out", "shown"),
    [((), ["actor_loss", "temperature", "entropy"]), (("temperature", "entropy"), ["actor_loss"])],
    ids=["with entropy", "without"],
)
def test_numbers_of_policies_are_compared_where_there_are_some(
    tmp_path: Path, left_out: tuple[str, ...], shown: list[str]
) -> None:
    records = [STARTED, *({**record, **dict.fromkeys(left_out)} for record in POLICY)]
    paths = [write(tmp_path / "runs" / f"s{seed}", records, seed=seed) for seed in (1, 2)]
    html = write_comparison(paths).read_text(encoding="utf-8")
    assert pictures(html) == [*TRAINING, *shown]


def test_a_page_compares_groups_and_needs_nothing_else(four: list[Path]) -> None:
    html = write_comparison(four).read_text(encoding="utf-8")
    tags = Tags(html)
    assert {ref for ref in tags.references if not ref.startswith("#")} == {"data:,"}
    assert not tags.seen & {"script", "iframe", "img", "object", "embed", "form"}
    assert not re.search(r"https?:|@import|url\((?!#)", html)
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert pictures(html) == PICTURES


def test_the_page_says_what_was_measured(four: list[Path]) -> None:
    words = text_of(page([read_run(path) for path in four]))
    for expected in (
        "4 runs on CartPole-v1 2 groups",
        "sampler uniform 2 runs, seeds 1, 2",
        "sampler rank 2 runs, seeds 1, 2",
        "mean of 3 training episodes, then over seeds",
        "95 % interval of the mean over seeds (bootstrap, percentile)",
        "dashed: reference 500",
        "sampler uniform 105 100 … 110 200",
        "sampler rank 125 120 … 130 200",
        "stale updates 7 7",
        "replay sampler uniform rank",
        "6 settings that are equal",
        "hidden 256, 256",
        "(sampler rank, seed 2, finished)",
        "torch 2.13.0",
    ):
        assert expected in words
    assert "not finished" not in words


def test_one_seed_twice_has_no_interval(tmp_path: Path) -> None:
    runs = [write(tmp_path / name) for name in ("a", "b")]
    words = text_of(page([read_run(path) for path in runs]))
    assert f"all runs 1 run, seed 3; left out, of a seed that is there: {runs[1]}" in words
    assert "a single run has no band" in words


def test_equal_runs_give_equal_pages(four: list[Path]) -> None:
    runs = [read_run(path) for path in four]
    assert page(runs) == page(runs)


def test_each_environment_has_a_section(tmp_path: Path, four: list[Path]) -> None:
    other = write(tmp_path / "other", env="Acrobot-v1")
    html = page([read_run(path) for path in [*four, other]])
    words = text_of(html)
    assert "5 runs on CartPole-v1 and Acrobot-v1 3 groups" in words
    assert pictures(html, "s0") == pictures(html, "s1") == PICTURES
    assert "a single run has no band" in words


PARTIAL: dict[str, tuple[list[dict[str, Any]], list[str], str]] = {
    "nothing": ([], [], "not finished at step 0"),
    "only the first record": ([STARTED], [], "2 not finished"),
    "one episode": ([STARTED, EPISODES[0]], LEARNING[:2], "mean of 1 training episodes"),
    "interrupted": ([STARTED, {**ENDED, "interrupted": True}], [], "interrupted at step 1"),
    "an evaluation of nothing": ([STARTED, {**EVALUATED, "mean": None}], [], "– –"),
    "no priorities": (
        [STARTED, {**MEASURED, "priority_edges": None, "priority_counts": None}],
        ["age_counts", "reuse_counts"],
        "stale updates 7",
    ),
    "nothing drawn": (
        [STARTED, {**MEASURED, "age_counts": [], "reuse_counts": [0], "priority_counts": None}],
        [],
        "stale updates 7",
    ),
    "counters that are 0": ([{**MEASURED, "stats": {"a_b": 0}}], PICTURES[7:], "1 counters that"),
    "counters that are words": (
        [{**MEASURED, "stats": {"mode": "a", "share": None}}],
        PICTURES[7:],
        "mode a a share – –",
    ),
}


@pytest.mark.parametrize("case", PARTIAL)
def test_partial_runs_are_compared_in_what_there_is(tmp_path: Path, case: str) -> None:
    records, expected, words = PARTIAL[case]
    runs = [write(tmp_path / str(seed), records, seed=seed, lr=seed) for seed in (1, 2)]
    html = page([read_run(path) for path in runs])
    Tags(html)
    assert pictures(html) == expected
    assert words in text_of(html)


def test_a_short_run_is_mentioned(tmp_path: Path) -> None:
    short = write(tmp_path / "short", [STARTED, *EPISODES[:30]], seed=1)
    whole = write(tmp_path / "whole", seed=2)
    words = text_of(page([read_run(short), read_run(whole)]))
    assert "a group's curve ends with its shortest run" in words
    assert "1 not finished" in words


def test_a_short_run_of_another_group_leaves_the_smoothing_as_it_is(tmp_path: Path) -> None:
    short = write(tmp_path / "short", [STARTED, *EPISODES[:2]], total_steps=10)
    whole = write(tmp_path / "whole")
    words = text_of(page([read_run(short), read_run(whole)]))
    assert "mean of 1 to 3 training episodes, as a group's shortest run allows, then" in words


def test_what_comes_from_a_file_is_not_taken_for_html(tmp_path: Path) -> None:
    odd = {"env": "<script>", "x<b>y": "<b>&</b>"}
    runs = [write(tmp_path / str(seed), seed=seed, x=f"<i>{seed}", **odd) for seed in (1, 2)]
    assert not Tags(page([read_run(path) for path in runs])).seen & {"script", "b", "i"}


def test_the_page_stands_beside_the_runs_or_in_the_current_directory() -> None:
    assert default_folder([Path("runs/a"), Path("runs/b")]) == Path("runs")
    assert default_folder([Path("runs/a"), Path("old/b")]) == Path()


def test_a_run_named_twice_is_refused(four: list[Path]) -> None:
    with pytest.raises(InputError, match="is named twice"):
        write_comparison([*four, four[0] / ".." / four[0].name])


def test_more_groups_than_can_be_told_apart_are_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / str(k), [STARTED], lr=k) for k in range(MOST_GROUPS + 1)]
    with pytest.raises(InputError, match="at most 12: name fewer runs"):
        write_comparison(paths)


def test_the_command_says_where_the_page_is(
    four: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", *map(str, four)]
    assert main(words) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'runs' / 'comparison.html'}\n"
    out = tmp_path / "page.html"
    assert main([*words, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text().startswith("<!doctype html>")
    assert main([*words, "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'comparison.html'}\n"
    assert main(["report", str(four[0]), "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert main(["report", str(four[0]), "--out", str(out)]) == 0
    assert "DQN on CartPole-v1" in out.read_text()


def test_a_command_on_a_page_can_be_typed_again(tmp_path: Path) -> None:
    runs = [write(tmp_path / "my runs" / name, [STARTED], seed=n) for n, name in enumerate("ab")]
    quoted = " ".join(f"&#x27;{run}&#x27;" for run in runs)
    assert f"relive report {quoted}</code>" in write_comparison(runs).read_text()
    assert f"relive report &#x27;{runs[0]}&#x27;</code>" in page_of_one(read_run(runs[0]))


def test_a_report_of_nothing_names_the_runs_there_are(
    four: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 2
    assert "name a run; these are: runs/rank-1, " in capsys.readouterr().err
    assert main(["report", "uns"]) == 2
    assert "uns is not a run directory" in capsys.readouterr().err


def test_a_folder_means_its_runs_and_no_page_of_relive_is_taken_for_one(
    four: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", "runs"]) == 0
    first = Path("runs/comparison.html").read_text()
    assert main(["report", *map(str, sorted(Path("runs").glob("*")))]) == 0
    said = capsys.readouterr()
    assert said.out == "runs/comparison.html\n" * 2
    assert said.err == "left out: runs/comparison.html, a page of relive report\n"
    assert Path("runs/comparison.html").read_text() == first
    Path("runs/notes.html").write_text("mine")
    assert main(["report", "runs/notes.html", "runs/rank-1"]) == 2
    assert "runs/notes.html is not a run directory" in capsys.readouterr().err
    assert len(four) == 4
