"""What is written is run: the Python in README and docs works, the commands named there exist."""

import re
import shlex
from pathlib import Path

import pytest

from relive import Field, ReplayBuffer
from relive.cli.bench import BenchOptions
from relive.cli.doctor import DoctorOptions
from relive.cli.eval import EvalOptions
from relive.cli.export import ExportOptions
from relive.cli.main import COMMANDS
from relive.cli.options import option_names
from relive.cli.plan import PlanOptions
from relive.cli.record import RecordOptions
from relive.cli.report import ReportOptions
from relive.cli.train import RESUME
from relive.cli.watch import WatchOptions
from relive.training import TrainConfig

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
)
SETTINGS = {
    "train": TrainConfig,
    "eval": EvalOptions,
    "export": ExportOptions,
    "watch": WatchOptions,
    "record": RecordOptions,
    "report": ReportOptions,
    "bench": BenchOptions,
    "doctor": DoctorOptions,
    "plan": PlanOptions,
}
FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def python_blocks(text: str) -> list[tuple[int, str]]:
    """Line number and text of each block to run; one marked `python no-run` is not."""
    return [
        (text[: block.start("text")].count("\n"), block["text"])
        for block in FENCE.finditer(text)
        if block["kind"].strip() == "python"
    ]


def commands(text: str) -> list[list[str]]:
    """The words of each `relive ...` and `make ...` in code, inline or in a block for a shell."""
    lines = [line for block in FENCE.finditer(text) for line in block["text"].splitlines()]
    lines = [line.strip().removeprefix("$ ") for line in lines]
    lines += INLINE.findall(FENCE.sub("", text))
    found = [shlex.split(line, comments=True) for line in lines if re.match("(relive|make) ", line)]
    return [words for words in found if len(words) > 1]


def complaint(words: list[str]) -> str | None:
    """What does not exist in a command."""
    program, command, *rest = words
    if program == "make":
        named = [word for word in words[1:] if re.fullmatch("[a-z][a-z-]*", word)]
        return next((f"make {word}" for word in named if word not in TARGETS), None)
    if command.isupper() or command.startswith("-"):
        return None if command in {"COMMAND", "--help", "--version"} else f"relive {command}"
    if command not in COMMANDS:
        return f"relive {command}"
    known = {*option_names(SETTINGS[command]), RESUME, "--help"}
    options = [word.partition("=")[0] for word in rest if re.match(r"--[a-z]", word)]
    return next((f"relive {command} {option}" for option in options if option not in known), None)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = list(python_blocks(text))
    assert len(blocks) <= text.count("```python")  # none is made up
    assert blocks or page != "README.md"
    for line, block in blocks:
        # Blank lines before it, so that a traceback shows the line of the page.
        exec(compile("\n" * line + block, str(ROOT / page), "exec"), names)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [complaint(words) for words in commands(text) if complaint(words)] == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`make tset`", "make tset"),
        ("`make lint types dosc`", "make dosc"),
        ("`make test-lng ARGS=-x`", "make test-lng"),
        ('`make train ARGS="--seed 1"`', None),
        ("```sh\nrelive trian dqn\n```", "relive trian"),
        ("```console\n$ relive train dqn --sed=1\n```", "relive train --sed"),
        ("`relive plan --obs 3 --help`", None),
        ("relive plan is not code, nor is make it", None),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, missing: str | None) -> None:
    assert next(filter(None, map(complaint, commands(text))), None) == missing


def test_a_block_marked_so_is_not_run() -> None:
    text = "a\n```python\n1\n```\n```python no-run\n2\n```\n```sh\n3\n```\n"
    assert python_blocks(text) == [(2, "1\n")]


def test_the_reference_says_what_each_number_of_a_buffer_is():
    page = (ROOT / "docs/reference/buffer.md").read_text()
    table = page.partition("## What a buffer counts")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    buffer = ReplayBuffer(4, {"obs": Field(), "action": Field()}, track_reuse=True)
    assert sorted(named) == sorted(buffer.stats())
