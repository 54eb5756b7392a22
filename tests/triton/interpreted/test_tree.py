"""The tree of the GPU against its definition, on states in the middle of a buffer's life."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from relive import Proportional, RankBased
from relive.ops import words as w
from relive.ops.enter.cuda import enter_rows
from relive.ops.launch import launch
from relive.ops.tree import cuda, reference
from relive.ops.write import reference as write
from tests.properties.calls import Spec
from tests.triton.checker import checked
from tests.triton.random_states import assert_same, copy_of, states

SAMPLERS = {
    "sums": Proportional(normalize=None),
    "smallest": Proportional(alpha=1.0),
    "largest": Proportional(alpha=1.0, normalize=None, new_priority="max_current"),
    "both": Proportional(alpha=1.0, new_priority="max_current"),
    "ranked": RankBased(resort_every=3),
}
SPECS = {
    "one": Spec(capacity=1),
    "five": Spec(capacity=5, num_envs=2),
    "pinned": Spec(capacity=150, num_envs=3, pins=True),
    "large": Spec(capacity=5000, num_envs=40),
}


@triton.jit
def enter(
    words,
    leaves,
    sums,
    mins,
    maxs,
    errors,
    first_id,
    RANKED: tl.constexpr,
    LEVELS: tl.constexpr,
    MINS: tl.constexpr,
    MAXS: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    enter_rows(
        words,
        leaves,
        sums,
        mins,
        maxs,
        errors,
        tl.load(first_id),
        tl.load(words + w.NEXT_ID),
        RANKED,
        LEVELS,
        MINS,
        MAXS,
    )


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", SPECS)
def test_new_rows_enter_as_in_the_reference(name, sampler):
    spec = Spec(**{**vars(SPECS[name]), "sampler": SAMPLERS[sampler]})
    generator = torch.Generator().manual_seed(5)
    for state in states(spec, 3, 6):
        most = state.word(w.CAPACITY) + 3
        count = int(torch.randint(1, most, (), generator=generator)) if most % 2 else 1
        count = min(count, 600)
        first_id = state.words[w.NEXT_ID].clone()
        state.words[w.NEXT_ID] += count
        expected = copy_of(state)
        write._set_leaves(expected, int(first_id))
        with checked(shuffle=1):
            launch(
                enter,
                (1,),
                state.words,
                state.leaves,
                state.sums,
                state.mins,
                state.maxs,
                state.errors,
                first_id,
                RANKED=len(state.errors) > 0,
                **cuda.constants(state),
            )
        assert_same(state, expected)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", SPECS)
def test_leaves_are_set_as_in_the_reference(name, sampler):
    spec = Spec(**{**vars(SPECS[name]), "sampler": SAMPLERS[sampler]})
    rng = np.random.default_rng(8)
    for state in states(spec, 4, 4):
        for most in (1, 7, 64, 700):
            slots = rng.permutation(state.word(w.CAPACITY))[:most]
            leaves = 10.0 ** rng.uniform(-12, 12, len(slots)) * (rng.random(len(slots)) < 0.9)
            if rng.random() < 0.3:
                leaves = leaves * 0 + 10.0 ** rng.uniform(-12, 12)
            arguments = torch.tensor(slots), torch.tensor(leaves, dtype=torch.float32)
            expected = copy_of(state)
            reference.set_leaves(expected, *arguments)
            with checked(shuffle=2):
                cuda.set_leaves(state, *arguments)
            assert_same(state, expected)


@pytest.mark.parametrize("capacity", [1, 100, 2049, 20000])
def test_a_tree_is_rebuilt_from_its_leaves_alone(capacity):
    buffer = Spec(capacity=capacity, sampler=SAMPLERS["both"]).buffer()
    expected = buffer._state
    expected.leaves[:capacity] = torch.rand(capacity, generator=torch.Generator().manual_seed(1))
    expected.words[w.SCALE] = 40
    state = copy_of(expected)
    for nodes in (state.sums, state.mins, state.maxs):
        nodes.fill_(77)
    reference.rebuild(expected)
    with checked(shuffle=3):
        cuda.rebuild(state)
    assert_same(state, expected)
