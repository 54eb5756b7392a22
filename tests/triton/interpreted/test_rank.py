"""The sort by rank of the GPU against its definition."""

from __future__ import annotations

import pytest
import torch

from relive import RankBased
from relive.ops.rank import cuda, reference
from tests.properties.calls import Spec
from tests.triton.checker import checked
from tests.triton.random_states import assert_same, copy_of, states

SPECS = {
    "one": Spec(capacity=1),
    "five": Spec(capacity=5, num_envs=2, n_step=3),
    "pinned": Spec(capacity=150, num_envs=3, pins=True),
    "large": Spec(capacity=5000, num_envs=40),
}


@pytest.mark.parametrize("alpha", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("name", SPECS)
def test_ranks_are_those_of_the_reference(name, alpha):
    spec = Spec(**{**vars(SPECS[name]), "sampler": RankBased(alpha=alpha, resort_every=10**6)})
    generator = torch.Generator().manual_seed(3)
    for state in states(spec, 6, 8):
        ties = torch.randint(0, 5, state.errors.shape, generator=generator)
        state.errors.copy_(torch.where(ties == 0, torch.inf, ties.to(torch.float32)))
        expected = copy_of(state)
        reference.sort_by_rank(expected)
        with checked(shuffle=1):
            cuda.sort_by_rank(state)
        assert_same(state, expected)


def test_a_sort_of_no_rows_only_counts():
    state = Spec(capacity=5, sampler=RankBased()).buffer()._state
    expected = copy_of(state)
    reference.sort_by_rank(expected)
    cuda.sort_by_rank(state)
    assert_same(state, expected)
