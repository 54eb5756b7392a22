"""The same seed draws the same rows for ever: in each version, on each device, bit for bit.

Ids and weights of every kind of sampler, window and share of demonstrations stand in
`sequences.json`; how they come about, in `sequences.py`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gates.sequences import CASES, FILE, FIRST, drawn

EXPECTED = json.loads(FILE.read_text()) if FILE.exists() else {}


def test_the_file_holds_every_case() -> None:
    assert list(EXPECTED) == list(CASES)


def test_the_sequences_differ_and_are_no_sequences_of_one_row() -> None:
    assert len({json.dumps(batches) for batches in EXPECTED.values()}) == len(CASES)
    for batches in EXPECTED.values():
        assert all(len(set(batch["ids"])) > 1 for batch in batches)


def test_the_shares_of_two_parts_are_carried_over() -> None:
    demonstrations = [sum(row < FIRST for row in b["ids"]) for b in EXPECTED["two parts"]]
    assert demonstrations == [2, 2, 3]  # of 2.4 a batch


@pytest.mark.parametrize("name", CASES)
def test_a_seed_draws_the_same_rows_as_ever(name: str, place: dict[str, Any]) -> None:
    assert drawn(name, place) == EXPECTED[name]
