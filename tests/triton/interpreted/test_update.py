"""Updates by the GPU's kernels against their definition, on states in the middle of a life."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relive import Proportional, RankBased
from relive.ops import words as w
from relive.ops.update import cpu, cuda, reference
from relive.ops.window.reference import held_ids
from tests.properties.calls import Spec, errors
from tests.triton.checker import checked
from tests.triton.random_states import assert_same, copy_of, states

SAMPLERS = {
    "sums": Proportional(normalize="batch", bad_priority="max"),
    "smallest": Proportional(alpha=1.0, demo_bonus=0.5),
    "largest": Proportional(alpha=2.0, eps=0.0, normalize=None, new_priority="max_current"),
    "both": Proportional(alpha=1.0, eps=0.0, new_priority="max_current", bad_priority="max"),
    "all alike": Proportional(alpha=0.0, eps=0.0),
    "ranked": RankBased(resort_every=10**6),
    "ranked, bad is largest": RankBased(resort_every=10**6, bad_priority="max"),
}
SPECS = {
    "one": Spec(capacity=1),
    "five": Spec(capacity=5, num_envs=2, n_step=3),
    "thirteen": Spec(capacity=13),
    "pinned": Spec(capacity=150, num_envs=3, pins=True),
    "large": Spec(capacity=5000, num_envs=40),
}
BATCHES = (1, 7, 64, 300)


def batch(state, rng, count):
    """Ids of rows, most of them held, some overwritten, unknown or named twice; and errors."""
    held, next_id = held_ids(state).numpy(), state.word(w.NEXT_ID)
    ids = rng.choice(held, count) if len(held) else np.zeros(count, np.int64)
    stale = rng.random(count) < 0.1
    ids = np.where(stale, rng.integers(0, next_id + 1, count), ids)
    ids = np.where(ids == next_id, 0, ids)
    values = errors(rng, count)
    if rng.random() < 0.2:  # all about as large: the total may collapse
        values = np.float32(10.0 ** rng.uniform(-20, 20)) * np.float32(1 + rng.random(count))
    return torch.tensor(ids), torch.tensor(values, dtype=torch.float32)


def knows(state, ids):
    return state.word(w.NEXT_ID) > 0


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", SPECS)
def test_an_update_is_that_of_the_reference(name, sampler):
    spec = Spec(**{**vars(SPECS[name]), "sampler": SAMPLERS[sampler]})
    rng = np.random.default_rng(8)
    for state in states(spec, 4, 3):
        if state.word(w.NEXT_ID) == 0:
            continue
        expected = copy_of(state)
        for count in BATCHES:
            ids, values = batch(state, rng, count)
            as_leaves = bool(rng.random() < 0.3)
            assert reference.update(expected, ids, values, as_leaves=as_leaves) == w.OK
            with checked(shuffle=2):
                assert cuda.update(state, ids, values, as_leaves=as_leaves) == w.OK
            assert_same(state, expected)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("most", [0, 4096])
def test_a_batch_of_any_size_is_that_of_the_cpu(sampler, most, monkeypatch):
    """With `most` rows to a program; many programs do the rest."""
    monkeypatch.setattr(cuda, "ONE_PROGRAM", most)
    spec = Spec(capacity=5000, num_envs=40, sampler=SAMPLERS[sampler])
    rng = np.random.default_rng(9)
    for state in states(spec, 5, 2):
        expected = copy_of(state)
        for count in (1, 300, 1500):
            ids, values = batch(state, rng, count)
            cpu.update(expected, ids, values, as_leaves=False)
            with checked(shuffle=2):
                cuda.update(state, ids, values, as_leaves=False)
            assert_same(state, expected)
