"""From words to settings."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, fields
from inspect import cleandoc
from typing import Literal

import pytest

from relive.agents.kinds import CONFIGS
from relive.cli.options import console, option_names, parse, value_of
from relive.cli.record import RecordOptions
from relive.closest import ranked, unknown
from relive.errors import ConfigError
from relive.training.config import ReplayConfig, TrainConfig
from relive.training.demonstrations import DemosConfig


@dataclass(frozen=True, kw_only=True)
class Part:
    kind: Literal["a", "b"] = "a"
    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 0:
            reason = " ".join(["and this is why"] * 20)
            raise ConfigError(f"size is at least 0, got {self.size} {reason}")


@dataclass(frozen=True, kw_only=True)
class Whole:
    long_name: float = 0.5
    flag: bool = False
    sizes: tuple[int, ...] = (1, 2)
    part: Part = field(default_factory=Part)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", Whole()),
        ("--long-name 2 --flag", Whole(long_name=2.0, flag=True)),
        ("--long_name=2 --no-flag", Whole(long_name=2.0)),
        ("--part.kind b --sizes 5 6 7", Whole(sizes=(5, 6, 7), part=Part(kind="b"))),
        ("--part.size 50_000", Whole(part=Part(size=50_000))),
    ],
)
def test_words_become_settings(words: str, expected: Whole) -> None:
    assert parse(Whole, words.split(), command="relive test") == expected


def test_what_is_not_given_comes_from_the_default() -> None:
    default = Whole(long_name=7, part=Part(kind="b"))
    assert parse(Whole, ["--part.size", "3"], command="relive test", default=default) == Whole(
        long_name=7, part=Part(kind="b", size=3)
    )


def test_the_names_of_options_are_those_of_the_fields() -> None:
    expected = ["--long-name", "--flag", "--sizes", "--part.kind", "--part.size"]
    assert list(option_names(Whole)) == expected


@pytest.mark.parametrize("columns", [20, 80, 300])
def test_a_long_refusal_of_a_setting_is_told_in_full(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert shutil.get_terminal_size().columns == columns
    with pytest.raises(ConfigError) as refused:
        parse(Whole, ["--part.size", "-1"], command="relive test")
    reason = " ".join(["and this is why"] * 20)
    assert str(refused.value) == f"size is at least 0, got -1 {reason}"


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--env", "a"], "a"),
        (["--env=a"], "a"),
        (["--seed", "1", "--env", "a", "--x"], "a"),
        (["--env"], None),
        (["--envy", "a"], None),
        ([], None),
    ],
)
def test_an_option_can_be_looked_up_before_the_others(words: list[str], value: str | None) -> None:
    assert value_of("--env", words) == value


@pytest.mark.parametrize(
    ("word", "known", "first"),
    [
        ("unifrom", ["proportional", "uniform"], "uniform"),
        ("--gamma", ["--agent.grad", "--replay.gamma"], "--replay.gamma"),
        ("DQN", ["c51", "dqn"], "dqn"),
    ],
)
def test_the_most_alike_name_comes_first(word: str, known: list[str], first: str) -> None:
    assert ranked(word, known)[0] == first


def test_of_many_names_some_are_shown_and_the_rest_counted() -> None:
    said = unknown("thing", "zzz", ["a", "b", "c"], most=2)
    assert said == "there is no thing 'zzz'; there are: a, b and 1 more"


@pytest.mark.parametrize(("columns", "width"), [("132", 132), ("40", 40), (None, 80), ("wide", 80)])
def test_a_pipe_is_as_wide_as_columns_says(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert console().width == width


@pytest.mark.parametrize(
    "settings", [TrainConfig, ReplayConfig, DemosConfig, RecordOptions, *CONFIGS.values()]
)
def test_what_is_told_of_a_setting_is_told_in_python_too_and_breaks_nowhere(settings: type) -> None:
    told = cleandoc(settings.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    lines = told.splitlines()
    names = [line.partition(":")[0].strip() for line in lines if not line.startswith(" " * 8)]
    assert names == [field.name for field in fields(settings)]
    # a line of anything but words is a paragraph to tyro
    assert all(line.strip()[0].isalpha() for line in lines)
