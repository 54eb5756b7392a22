"""Updates by the GPU's kernels against their definition, on states in the middle of a life."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from relive import Proportional, RankBased, ReplayBuffer
from relive.ops import words as w
from relive.ops.decide.cuda import stamps_of
from relive.ops.update import cpu, cuda, reference
from relive.ops.window.reference import held_ids
from tests.faults.tagged import FIELDS, write
from tests.properties.calls import Spec, errors
from tests.triton.arguments import launches
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


@pytest.mark.parametrize("most", [0, 4096])
def test_the_scale_follows_the_errors_up_and_down(most, monkeypatch):
    monkeypatch.setattr(cuda, "ONE_PROGRAM", most)
    spec = Spec(capacity=150, sampler=Proportional(alpha=1.0, new_priority="max_current"))
    (state,) = states(spec, 2, 1)
    ids = held_ids(state)
    expected, scales = copy_of(state), []
    for magnitude in (1e10, 1e-10, 3e38, 1e-30, 1.0):
        values = torch.linspace(1, 2, len(ids)) * magnitude
        reference.update(expected, ids, values, as_leaves=False)
        with checked(shuffle=4):
            cuda.update(state, ids, values, as_leaves=False)
        assert_same(state, expected)
        scales.append(state.word(w.SCALE))
    assert [after > before for before, after in pairwise(scales)] == [True, False, True, False]


def test_ids_that_were_never_given_out_are_skipped_and_counted():
    (state,) = states(Spec(capacity=13, sampler=SAMPLERS["both"]), 2, 1)
    expected = copy_of(state)
    known = held_ids(state)[:2]
    unknown = [-1, -(2**63), 2**63 - 1, 2**62, 2**62 - 1, state.word(w.NEXT_ID)]
    ids = torch.cat([torch.tensor(unknown), known])
    reference.update(expected, known, torch.tensor([3.0, 5.0]), as_leaves=False)
    expected.words[w.UPDATED_ROWS] += len(unknown)
    expected.words[w.STALE_UPDATES] += len(unknown)
    with checked():
        cuda.update(state, ids, torch.tensor([9.0] * 6 + [3.0, 5.0]), as_leaves=False)
    assert_same(state, expected)


@pytest.mark.parametrize("most", [0, 4096])
def test_by_rank_a_bad_error_before_any_other_is_that_of_a_new_row(most, monkeypatch):
    monkeypatch.setattr(cuda, "ONE_PROGRAM", most)
    buffer = write(ReplayBuffer(4, FIELDS, sampler=SAMPLERS["ranked, bad is largest"]), range(4))
    state, expected = buffer._state, copy_of(buffer._state)
    for values in ([np.inf, 2, np.nan, 1], [np.nan, 1, 0, -np.inf]):  # none before, then 2
        given = torch.arange(4), torch.tensor(values)
        reference.update(expected, *given, as_leaves=False)
        with checked(shuffle=2):
            cuda.update(state, *given, as_leaves=False)
        assert_same(state, expected)


def test_nothing_to_update_counts_as_an_update():
    (state,) = states(Spec(capacity=13, sampler=SAMPLERS["ranked"]), 2, 1)
    expected = copy_of(state)
    nothing = torch.empty(0, dtype=torch.int64), torch.empty(0)
    cpu.update(expected, *nothing, as_leaves=False)
    cuda.update(state, *nothing, as_leaves=False)
    assert_same(state, expected)


@pytest.mark.parametrize(
    ("sampler", "rows", "most"),
    [
        (Proportional(), 1, 1),
        (Proportional(), 4096, 1),
        (Proportional(), 4097, 6),
        (Proportional(normalize=None), 4097, 4),
        (RankBased(), 4096, 1),
        (RankBased(), 4097, 3),
    ],
)
def test_an_update_is_few_launches(sampler, rows, most):
    state = Spec(capacity=5000, sampler=sampler).buffer()._state
    ids, values = torch.zeros(rows, dtype=torch.int64), torch.ones(rows)
    stamps_of(state)  # made once
    with launches(at_most=most) as seen:
        cuda.update(state, ids, values, as_leaves=False)
    assert len(seen) == most
    assert state.word(w.UPDATED_ROWS) == rows


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_updates_are_those_of_the_cpu(seed):
    """2,000 updates of any size, of buffers of all kinds in turn."""
    rng = np.random.default_rng(seed)
    done = 0
    while done < 500:
        name, sampler = rng.choice(list(SPECS)), rng.choice(list(SAMPLERS))
        spec = Spec(**{**vars(SPECS[name]), "sampler": SAMPLERS[sampler]})
        for state in states(spec, int(rng.integers(2**31)), 2):
            expected = copy_of(state)
            for _ in range(20 if state.word(w.NEXT_ID) else 0):
                ids, values = batch(state, rng, int(rng.integers(1, 400)))
                as_leaves = bool(rng.random() < 0.3)
                cpu.update(expected, ids, values, as_leaves=as_leaves)
                cuda.update(state, ids, values, as_leaves=as_leaves)
                assert_same(state, expected)
                done += 1
