"""The textbook sum tree of capacity 8, from a file: which slot lies at which mass."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from relive import Proportional, ReplayBuffer
from relive.ops import words as w
from relive.ops.tree import reference
from tests.equivalence import compiled
from tests.properties.calls import FIELDS, steps
from tests.properties.draws import Heap

CASES = json.loads((Path(__file__).parent / "heap8.json").read_text())["cases"]
UNIT = 1024  # of the twin: every mass in the file is a multiple of 1/1024


@pytest.mark.parametrize("case", CASES)
def test_the_textbook_heap_finds_the_slots(case: dict[str, list[float]]) -> None:
    heap = Heap([int(leaf * UNIT) for leaf in case["leaves"]])
    assert [node / UNIT for node in heap.nodes[1:8]] == case["nodes"]
    assert [heap.find(int(mass * UNIT)) for mass in case["masses"]] == case["slots"]


@pytest.mark.parametrize("kernels", ["reference", "cpu"])
@pytest.mark.parametrize("case", CASES)
def test_the_tree_finds_the_same_slots(case: dict[str, list[float]], kernels: str) -> None:
    sampler = Proportional(alpha=1.0, eps=0.0)
    buffer = ReplayBuffer(8, FIELDS, sampler=sampler, kernels=kernels)
    buffer.extend(**steps(np.random.default_rng(0), 8))
    buffer.update_priorities(list(range(8)), case["leaves"])
    state = buffer._state
    unit = 2 ** state.word(w.SCALE)
    assert state.word(w.TOTAL) == case["nodes"][0] * unit
    targets = np.array([int(mass * unit) for mass in case["masses"]])
    if kernels == "reference":
        leaf_masses = reference.masses(state.leaves, state.word(w.SCALE))
        found = reference.find(leaf_masses, torch.from_numpy(targets))
    else:
        found = compiled.slots(state.header, targets)
    assert found.tolist() == case["slots"]
