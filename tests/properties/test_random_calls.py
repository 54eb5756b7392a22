"""Long seeded runs of mixed calls, each compared with the twin after every call."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings

from relive import Linear, Proportional
from tests.properties.calls import Calls, Spec
from tests.properties.pair import Pair

# `make test` runs the profile "ci" of hypothesis; "nightly" makes these runs 50 times longer.
EFFORT = settings.default.max_examples
CALLS, REFERENCE_CALLS = 5 * EFFORT, EFFORT // 2

LONG_CALLS = 112_000  # a million and more for all SPECS together; `make test-long`

beta = Linear(0.4, 1.0, 100)
SPECS = {
    "uniform, one step": Spec(track_reuse=True),
    "uniform, three steps": Spec(n_step=3, gamma=0.5),
    "uniform, three environments, next step": Spec(num_envs=3, n_step=2, autoreset="next_step"),
    "uniform, windows longer than the ring": Spec(capacity=3, n_step=5, num_envs=2),
    "proportional": Spec(sampler=Proportional(beta=beta), track_reuse=True),
    "proportional, same step, alpha 1": Spec(
        num_envs=3,
        n_step=3,
        autoreset="same_step",
        sampler=Proportional(alpha=1.0, eps=0.0, beta=1.0, normalize="batch", bad_priority="max"),
    ),
    "proportional, independent, max current": Spec(
        capacity=200,
        n_step=2,
        sampler=Proportional(
            alpha=1.0,
            eps=0.0,
            beta=0.5,
            normalize=None,
            stratified=False,
            new_priority="max_current",
        ),
    ),
    "proportional, bad numbers refused": Spec(
        capacity=16,
        num_envs=2,
        autoreset="next_step",
        sampler=Proportional(alpha=2.0, beta=beta, bad_priority="raise", weight_clip=0.3),
    ),
    "proportional, alpha 0, one row": Spec(
        capacity=1, n_step=2, sampler=Proportional(alpha=0.0), track_reuse=True
    ),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_buffer_does_what_its_twin_does(spec: Spec) -> None:
    pair, made = Pair(spec), set()
    for name, arguments in Calls(spec, pair.buffer, seed=1).take(CALLS):
        pair.call(name, arguments)  # compares everything
        made.add(name)
    assert {"add", "extend", "end_episode", "clear", "sample"} <= made
    assert pair.buffer.stats()["added"] > spec.capacity  # through the seam


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_buffer_does_what_its_twin_does_in_its_share_of_a_million_calls(spec: Spec) -> None:
    pair = Pair(spec, check_every=10)
    calls = Calls(spec, pair.buffer, seed=3).take(2 * LONG_CALLS)  # not all can be made
    for name, arguments in itertools.islice(calls, LONG_CALLS):
        pair.call(name, arguments)  # compares everything
    assert pair.calls == LONG_CALLS
    assert pair.buffer.stats()["added"] > 1000 * spec.capacity


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_the_reference_does_what_the_twin_does(spec: Spec) -> None:
    pair = Pair(spec, "reference")
    for name, arguments in Calls(spec, pair.buffer, seed=2).take(REFERENCE_CALLS):
        pair.call(name, arguments)  # compares everything
    assert pair.buffer.stats()["added"] > spec.capacity  # through the seam
