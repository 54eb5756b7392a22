"""The page about a run: what stands in it, and that it needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from relive.report.page import page, write_report
from relive.report.read import read_run
from tests.unit.report.conftest import (
    CONFIG,
    ENDED,
    EPISODES,
    EVALUATED,
    MEASURED,
    POLICY,
    PROGRESS,
    STARTED,
    SUMMARIES,
    WHOLE,
)

if TYPE_CHECKING:
    from tests.unit.report.conftest import MakeRun

LEARNING = ["learning", "learning_narrow"]
TRAINING = ["loss", "exploration", "action", "gradient"]
PICTURES = [*LEARNING, *TRAINING, "priorities", "age", "reuse"]


class Tags(HTMLParser):
    """Collects tags and what they refer to; raises when tags are not nested."""

    VOID = frozenset({"meta", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.references: set[str] = set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        loading = {"href", "src", "srcset", "data", "action", "poster"}
        self.references |= {value or "" for name, value in attrs if name in loading}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def text_of(html: str) -> str:
    """The words of a page, without tags."""
    body = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    return re.sub(r"[ \n]+", " ", re.sub(r"<[^>]+>", " ", body))


def test_the_report_of_a_run_loads_nothing_and_runs_nothing(make_run: MakeRun) -> None:
    html = write_report(make_run()).read_text(encoding="utf-8")
    tags = Tags(html)
    assert {ref for ref in tags.references if not ref.startswith("#")} == {"data:,"}
    assert not tags.seen & {"script", "iframe", "img", "object", "embed", "form"}
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert not re.search(r"https?:", html)


def test_the_page_shows_every_picture_and_number(make_run: MakeRun) -> None:
    html = page(read_run(make_run()))
    assert re.findall(r'<svg role="img" aria-label="(\w+)"', html) == PICTURES
    words = text_of(html)
    for expected in (
        "DQN on CartPole-v1 proportional seed 3",
        "result 490.3 ± 7.8 mean of 3 greedy episodes",
        "reference 500 known result",
        "environment steps 1\u202f200 550 updates",
        "time 6 s 200 steps per second",
        "hidden 256, 256",
        "double yes",
        "out –",
        "stale updates 7",
        "torch 2.13.0",
    ):
        assert expected in words
    assert "age counts" not in words


def test_equal_runs_give_equal_reports(make_run: MakeRun) -> None:
    path = make_run()
    assert write_report(path).read_bytes() == write_report(path).read_bytes()


NO_PRIORITIES = {**MEASURED, "priority_edges": None, "priority_counts": None}
NO_REUSE = {**MEASURED, "reuse_counts": [0, 0]}
NOTHING_DRAWN = {**NO_PRIORITIES, "age_counts": [], "reuse_counts": []}
NO_BETA = [{**record, "beta": None} for record in PROGRESS]
NO_UPDATES = [
    {**record, "loss": None, "td_error": None, "q_mean": None, "grad_norm": None}
    for record in NO_BETA
]
ZERO_LOSS = [{**record, "loss": 0.0, "td_error": 0.0, "grad_norm": 0.0} for record in PROGRESS]


@pytest.mark.parametrize(
    ("records", "pictures", "words"),
    [
        ([], [], "not finished at step 0"),
        ([STARTED], [], "0 updates"),
        ([STARTED, *EPISODES[:1]], LEARNING, "training return 2 mean of the last 1 training"),
        ([STARTED, *EPISODES, *PROGRESS], PICTURES[:6], "not finished at step 1\u202f200"),
        ([STARTED, *EPISODES, {**ENDED, "interrupted": True}], LEARNING, "interrupted at step"),
        ([STARTED, *PROGRESS[:1]], TRAINING[1:], "50 updates"),
        ([STARTED, *NO_UPDATES], ["exploration"], "seed 3"),
        ([STARTED, *ZERO_LOSS], ["exploration", "action"], "seed 3"),
        ([STARTED, EVALUATED], LEARNING, "result 490.3"),
        ([STARTED, {**EVALUATED, "reference": None}], LEARNING, "result 490.3"),
        ([STARTED, NO_PRIORITIES], ["age", "reuse"], "stale updates 7"),
        ([STARTED, NO_REUSE], ["priorities", "age"], "No row has been written."),
        ([STARTED, NOTHING_DRAWN], [], "Not recorded."),
        ([STARTED, {**ENDED, "seconds": 0.0}], [], "550 updates"),
    ],
)
def test_a_partial_run_has_a_page_with_what_there_is(
    make_run: MakeRun, records: list[dict[str, Any]], pictures: list[str], words: str
) -> None:
    html = page(read_run(make_run(records)))
    Tags(html)
    assert re.findall(r'<svg role="img" aria-label="(\w+)"', html) == pictures
    assert words in text_of(html)


def test_a_run_with_a_policy_shows_its_loss_temperature_and_entropy(make_run: MakeRun) -> None:
    html = page(read_run(make_run([STARTED, *POLICY])))
    assert re.findall(r'<svg role="img" aria-label="(\w+)"', html) == [
        *TRAINING,
        "temperature",
        "entropy",
    ]
    words = text_of(html)
    assert "policy loss" in html
    assert "Temperature" in words
    assert "Entropy" in words


def test_a_policy_without_entropy_shows_its_loss_beside_the_values(make_run: MakeRun) -> None:
    records = [{**record, "temperature": None, "entropy": None} for record in POLICY]
    html = page(read_run(make_run([STARTED, *records])))
    assert re.findall(r'<svg role="img" aria-label="(\w+)"', html) == TRAINING
    assert "policy loss" in html


def test_means_of_episodes_are_a_learning_curve_too(make_run: MakeRun) -> None:
    run = read_run(make_run([STARTED, *SUMMARIES, *PROGRESS, ENDED]))
    written = page(run)
    assert "Learning curve" in written
    assert "mean of the last 11 log intervals" in written
    steps, returns = run.returns()
    assert (steps[0], returns[-1], len(steps)) == (100, 110, 11)


def test_a_torn_last_line_is_mentioned(make_run: MakeRun) -> None:
    words = text_of(page(read_run(make_run(tail='{"rec'))))
    assert "The last line of metrics.jsonl was cut off and is left out." in words


def test_a_run_without_settings_is_called_by_its_directory(make_run: MakeRun) -> None:
    html = page(read_run(make_run([EVALUATED], config={})))
    assert "<h1>run</h1>" in html


def test_what_comes_from_a_file_is_not_taken_for_html(make_run: MakeRun) -> None:
    config = {**CONFIG, "env": "<script>alert(1)</script>", "note": "<b>&</b>"}
    html = page(read_run(make_run(WHOLE, config=config)))
    assert "script" not in Tags(html).seen
    assert "b" not in Tags(html).seen
