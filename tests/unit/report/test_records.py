"""Records as they are checked, line by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relive.errors import InputError
from relive.report.records import Lines, parse
from tests.unit.report.conftest import ENDED, EPISODES, EVALUATED, MEASURED, PROGRESS, STARTED

FILE = Path("metrics.jsonl")


def read(*records: object) -> list[dict[str, object]]:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    return list(Lines(FILE).records(lines))


WRONG = {
    "a return that is a string": ({**EPISODES[0], "episode_return": "2"}, "a number or null"),
    "a loss that is a flag": ({**PROGRESS[0], "loss": True}, "loss should be a number or null"),
    "a huge whole number": ({**PROGRESS[0], "loss": 10**200}, "loss should be a number or null"),
    "updates that are nothing": ({**PROGRESS[0], "updates": None}, "a whole number from 0 on"),
    "a length below 0": ({**EPISODES[0], "length": -1}, "a whole number from 0 on"),
    "returns that are a number": ({**EVALUATED, "returns": 3}, "a list of numbers, got 3"),
    "a mean that is missing": (
        {"record": "evaluated", "step": 1, "returns": [], "std": 0.0},
        "evaluated has no mean",
    ),
    "edges that descend": ({**MEASURED, "priority_edges": [3, 2, 1]}, "ascending positive"),
    "bins without edges": ({**MEASURED, "priority_edges": None}, "4 bins and 0 edges"),
    "counts that are no numbers": ({**MEASURED, "age_counts": ["a"]}, "a list of whole numbers"),
    "stats that are a list": ({**MEASURED, "stats": []}, "stats should be an object"),
    "a version that is a number": ({**STARTED, "versions": {"torch": 2}}, "an object of strings"),
    "settings that are a string": ({**STARTED, "config": "x"}, "config should be an object"),
    "a setting of a wrong type": ({**STARTED, "config": {"env": 3}}, "config: env should be a"),
    "an end that is no flag": ({**ENDED, "interrupted": 0}, "true or false, got 0"),
    "a very long value": ({**EPISODES[0], "length": "x" * 999}, "got 'xxxxxxxx"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_field_of_a_wrong_type_is_refused_by_line_and_name(case: str) -> None:
    record, message = WRONG[case]
    with pytest.raises(InputError) as refused:
        read(STARTED, record)
    assert str(refused.value).startswith("metrics.jsonl, line 2: ")
    assert message in str(refused.value)
    assert len(str(refused.value)) < 200


def test_records_and_fields_of_another_version_are_left_as_they_are() -> None:
    strange = {"record": "checkpoint_saved", "step": 3, "loss": "x", "seconds": []}
    more = {**PROGRESS[1], "learning_rate": "new"}
    assert read(strange, more) == [strange, more]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-2e150"])
def test_numbers_that_are_not_finite_become_nothing(number: str) -> None:
    assert parse(f'{{"a": {number}}}') == {"a": None}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 300 + "1" + "}" * 300])
def test_what_is_nested_too_deep_is_no_json_of_ours(text: str) -> None:
    with pytest.raises(ValueError, match="more than 200 lists"):
        parse(text)


def test_half_a_character_is_replaced() -> None:
    assert parse(r'{"env": "a\ud800b"}') == {"env": "a?b"}


@pytest.mark.parametrize("line", ["{oops", "[]", "3", "", '{"record": "x"}', '{"step": 1}'])
def test_a_line_that_is_no_record_is_refused_once_something_else_follows(line: str) -> None:
    lines = Lines(FILE)
    assert list(lines.records([json.dumps(STARTED), line])) == [STARTED]
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2 is no record"):
        list(lines.records([json.dumps(ENDED)]))
