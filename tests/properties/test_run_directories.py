"""Whatever is in a run directory, a command answers it with a result or with one line.

A run directory is whole, and then something in it is replaced: a value anywhere in a record or in
the settings by a value of any kind, a line by another, bytes by bytes. `report`, `watch` and
`eval` end with status 0 or 2, and with 2 they have said one line that names a file.
"""

from __future__ import annotations

import copy
import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.cli.main import main
from relive.training import TrainConfig, save_policy
from relive.training.parts import build
from tests.unit.report.conftest import WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = TrainConfig(env="CartPole-v1", eval_episodes=1).to_json()
EXAMPLES = settings.default.max_examples // 10  # a page takes a second
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([0, -1, 2**31, 2**63, 10**400]),
        st.floats(),
        st.sampled_from([1e308, -1e308, 5e-324, float("nan"), float("inf")]),
        st.text(max_size=5),
        st.sampled_from(
            ["", "\ud800", "\x1b[31m", "[red]", "<b>", "x" * 5000, "a:b", "../x", "$x$", "漢字"]
        ),
    ),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with everything in it."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    path.mkdir()
    started = {**WHOLE[0], "config": CONFIG}
    write(path, CONFIG, [started, *WHOLE[1:5], *WHOLE[61:64], *WHOLE[-3:]])
    agent = build(TrainConfig(env="CartPole-v1")).agent
    save_policy(agent, path / "policy.safetensors")
    return path


def write(path: Path, config: Any, records: list[Any]) -> None:
    (path / "config.json").write_text(json.dumps(config))
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (path / "metrics.jsonl").write_text(lines)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside of a value."""
    if path:
        yield path
    keys = value if isinstance(value, dict) else range(len(value)) if type(value) is list else ()
    for key in keys:
        yield from places(value[key], (*path, key))


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """The value with another at a place; a place of one that is nothing else is itself."""
    value = copy.deepcopy(value)
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = new
    return value


def answers(command: list[str]) -> int:
    """The status of a command, which works, or says in one line what is wrong."""
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        status = main(command)
    assert status in {0, 2}
    if status == 2:
        assert said.getvalue().count("\n") == 1, said.getvalue()
        assert said.getvalue().startswith("relive: ")
    else:
        assert said.getvalue() == ""
    return status


def commands(path: Path, other: Path) -> tuple[list[str], ...]:
    return (
        ["watch", str(path), "--once"],
        ["report", str(path)],
        ["report", str(path), str(other), "--out", str(path / "comparison.html")],
    )


@pytest.fixture(scope="module")
def damaged(whole: Path) -> Path:
    """Where a copy is damaged."""
    return whole.parent / "damaged"


def renew(whole: Path, damaged: Path) -> tuple[Any, list[Any]]:
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(whole, damaged)
    lines = (whole / "metrics.jsonl").read_text().splitlines()
    return json.loads((whole / "config.json").read_text()), [json.loads(line) for line in lines]


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_value_of_any_kind_anywhere_is_answered(
    data: st.DataObject, whole: Path, damaged: Path
) -> None:
    config, records = renew(whole, damaged)
    everything = {"config": config, "records": records}
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(list(places(everything))))
        everything = replaced(everything, place, data.draw(VALUES))
        if place == ("records",):
            break
    written = everything["records"] if isinstance(everything["records"], list) else []
    write(damaged, everything["config"], written)
    answers(data.draw(st.sampled_from(commands(damaged, whole))))


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_keys_that_are_missing_are_answered(
    data: st.DataObject, whole: Path, damaged: Path
) -> None:
    config, records = renew(whole, damaged)
    everything = {"config": config, "records": records}
    keys = [place for place in places(everything) if len(place) > 1 and type(place[-1]) is str]
    *way, key = data.draw(st.sampled_from(keys))
    inner: Any = everything
    for step in way:
        inner = inner[step]
    del inner[key]
    write(damaged, everything["config"], everything["records"])
    answers(data.draw(st.sampled_from(commands(damaged, whole))))


@settings(max_examples=EXAMPLES)
@given(name=st.sampled_from(["config.json", "metrics.jsonl"]), data=st.data())
def test_bytes_of_any_kind_are_answered(
    name: str, data: st.DataObject, whole: Path, damaged: Path
) -> None:
    renew(whole, damaged)
    text = (whole / name).read_bytes()
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    (damaged / name).write_bytes(text[:start] + data.draw(st.binary(max_size=8)) + text[stop:])
    answers(data.draw(st.sampled_from(commands(damaged, whole))))


@pytest.mark.parametrize(
    "setting",
    [
        {"env": 3},
        {"env": None},
        {"env": ""},
        {"env": "Nowhere-v0"},
        {"env": "a:b"},
        {"env": "..x:y"},
        {"env": "\x00"},
        {"env": "Acrobot-v1"},
        {"env": "Pendulum-v1"},
        {"seed": 7},
    ],
)
def test_settings_that_do_not_fit_the_policy_are_answered(
    setting: dict[str, Any], whole: Path, damaged: Path
) -> None:
    config, records = renew(whole, damaged)
    write(damaged, {**config, **setting}, records)
    assert answers(["eval", str(damaged), "--episodes", "1"]) == (0 if "seed" in setting else 2)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_policy_of_any_bytes_is_answered(data: st.DataObject, whole: Path, damaged: Path) -> None:
    renew(whole, damaged)
    path = damaged / "policy.safetensors"
    text = bytearray(path.read_bytes())
    head = int.from_bytes(text[:8], "little") + 8
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, head))] = data.draw(st.integers(32, 126))
    path.write_bytes(bytes(text))
    answers(["eval", str(damaged), "--episodes", "1"])
