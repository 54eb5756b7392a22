"""What is shown: tables, the chart, the machine, the command."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from relive.bench import WORKLOADS
from relive.bench.chart import chart
from relive.bench.machine import commit, machine, today
from relive.bench.tables import times_of, verdict_of
from relive.cli.bench import BenchOptions, command, run
from relive.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

TIMES = {
    "uniform sample 256": {"relive": 30, "relive out": 15, "cpprb": 60, "copy": 10, "take": 12},
    "per sample 256": {
        "relive batch": 40,
        "relive batch out": 20,
        "relive buffer": 41,
        "relive buffer out": 21,
        "cpprb": 100,
        "copy": 10,
        "search": 4321,
    },
    "per add 1": {"relive batch": 5, "relive buffer": 5, "cpprb": 20},
}
WORKLOAD: dict[str, Any] = {
    "title": "17 + 17 + 6 floats",
    "cases": {
        case: {name: {"cpu": {"median": time}} for name, time in times.items()}
        for case, times in TIMES.items()
    },
}


def test_a_table_has_a_row_an_operation_and_ratios_at_its_end() -> None:
    headings, rows = times_of(WORKLOAD, "uniform")
    assert headings == [
        *("operation", "relive", "out=", "cpprb", "copy", "take"),
        *("to best", "to copy", "to take"),
    ]
    assert rows == [["sample 256", "30", "15", "60", "10", "12", "0.50 0.25", "1.50", "1.25"]]


def test_prioritized_operations_have_a_row_a_normaliser() -> None:
    headings, rows = times_of(WORKLOAD, "per")
    assert headings[-2:] == ["to best", "to copy"]
    assert [row[0] for row in rows] == [
        *("sample 256 batch", "sample 256 buffer", "add 1 batch", "add 1 buffer")
    ]
    assert rows[1][1:] == ["41", "21", "100", "10", "4321", "0.41 0.21", "2.10"]
    assert rows[3][1:] == ["5", "·", "20", "·", "·", "0.25", "·"]


def test_a_target_that_was_not_measured_has_no_ratio() -> None:
    found = {"workload": "W1", "case": "c", "ours": "o", "versus": "v", "limit": 0.2}
    assert verdict_of({**found, "ratio": None})[-2:] == ["0.2", "·"]
    assert verdict_of({**found, "ratio": 0.5})[-2:] == ["0.2", "0.50"]


def test_the_chart_has_a_bar_a_library_and_equal_figures_give_equal_text() -> None:
    result = {"workloads": {"W1": WORKLOAD}, "machine": {"processor": "Some Processor"}}
    text = chart(result)
    assert text == chart(result)
    words = re.findall(r">([^<>\n]+)</text>", text)
    assert words.count("cpprb") == 3
    assert "relive buffer out=" in words
    assert "4321" not in text
    assert any("Some Processor" in word for word in words)


def test_without_figures_there_is_nothing_to_draw() -> None:
    with pytest.raises(ConfigError, match="nothing to draw"):
        chart({"workloads": {"W1": {"title": "", "cases": {}}}})
    with pytest.raises(ConfigError, match="nothing to draw"):
        chart({"workloads": {}})


def test_the_machine_is_named() -> None:
    found = machine()
    assert found["processor"]
    assert found["cores"] >= 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", today())
    assert re.fullmatch(r"[0-9a-f]{12}\+?|None", str(commit()))


def test_the_command_names_no_path_of_this_machine() -> None:
    options = BenchOptions(workload=("W1", "start"), peer_python=("cpprb=/home/me/python",))
    assert command(options) == "relive bench --workload W1 start --rounds 9 --seconds 0.03"
    few = BenchOptions(workload=("W4",), peers=("cpprb",), quick=True)
    assert command(few) == "relive bench --workload W4 --peers cpprb --quick"


@pytest.mark.parametrize(("words", "said"), [("--rounds 0", "rounds"), ("--seconds 0", "seconds")])
def test_a_run_of_nothing_is_refused(words: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"{said} is"):
        run(words.split())


def test_a_quick_run_measures_us_and_tells_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, drawn = tmp_path / "new" / "replay.json", tmp_path / "replay.svg"
    words = ["--quick", "--workload", "W2", "--peers", "cpprb", "--peer-python"]
    words += [f"cpprb={sys.executable}", "--save", str(saved), "--chart", str(drawn)]
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "W2, prioritized: 4 + 4 + 1 floats" in out
    assert "quick: these figures say nothing about speed" in out
    assert "skipped cpprb (W2): ModuleNotFoundError: No module named 'cpprb'" in out
    result = json.loads(saved.read_text())
    assert result["command"] == "relive bench --workload W2 --peers cpprb --quick"
    assert set(result["versions"]) == {"relive", "floors"}
    workload = WORKLOADS["W2"].quick()
    for case in (case for sampler in workload.samplers for case in workload.cases(sampler)):
        figures = result["workloads"]["W2"]["cases"][case.name]
        assert set(figures) == set(case.columns)
        for found in figures.values():
            assert 0 < found["cpu"]["low"] <= found["cpu"]["median"] <= found["cpu"]["high"]
    assert drawn.read_text().startswith("<?xml")
