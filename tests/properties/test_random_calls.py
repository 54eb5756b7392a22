"""Long seeded runs of mixed calls, each compared with the twin after every call."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from relive import Linear, Proportional, RankBased, Recent
from tests.properties.calls import Calls, Spec
from tests.properties.pair import Pair

if TYPE_CHECKING:
    from pathlib import Path

# `make test` runs the profile "ci" of hypothesis; "nightly" makes these runs 50 times longer.
EFFORT = settings.default.max_examples
CALLS, REFERENCE_CALLS = 5 * EFFORT, EFFORT

LONG_CALLS = 60_000  # a million and more for all SPECS together; `make test-long`

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
    "uniform, newest rows, demonstrations": Spec(
        capacity=20, window=Recent(5), pins=True, n_step=2, track_reuse=True
    ),
    "uniform, shrinking window, one pool": Spec(
        capacity=40, window=Recent(eta=0.9, c_min=3, updates=7), pins=True, demo_fraction=None
    ),
    "proportional, shrinking window, four environments": Spec(
        capacity=60,
        num_envs=4,
        n_step=3,
        autoreset="next_step",
        sampler=Proportional(alpha=0.7, beta=beta, uniform_share=0.2),
        window=Recent(eta=Linear(0.5, 1.0, 300), c_min=2, updates=9, of="capacity"),
    ),
    "proportional, demonstrations of a changing share": Spec(
        capacity=30,
        num_envs=2,
        n_step=2,
        autoreset="same_step",
        sampler=Proportional(beta=beta, demo_bonus=0.5, bad_priority="max", normalize="batch"),
        pins=True,
        demo_fraction=Linear(0.9, 0.1, 200),
        track_reuse=True,
    ),
    "proportional, mixture weights, newest rows": Spec(
        capacity=25,
        sampler=Proportional(
            mixture_weights=True, uniform_share=0.3, beta=0.7, new_priority="max_current"
        ),
        window=Recent(8),
        pins=True,
        demo_fraction=0.3,
    ),
    "rank, exact": Spec(capacity=30, sampler=RankBased(resort_every=1, beta=beta), n_step=5),
    "rank, demonstrations, max": Spec(
        capacity=24,
        num_envs=3,
        autoreset="next_step",
        sampler=RankBased(
            resort_every=4, bad_priority="max", uniform_share=0.1, mixture_weights=True, beta=1.0
        ),
        pins=True,
        track_reuse=True,
    ),
    "rank, shrinking window, one pool, refused": Spec(
        capacity=50,
        n_step=4,
        sampler=RankBased(
            alpha=1.0, resort_every=7, bad_priority="raise", normalize=None, stratified=False
        ),
        window=Recent(eta=0.95, c_min=4, updates=11),
        pins=True,
        demo_fraction=None,
    ),
}
# All public calls, of which some depend on the settings.
ALWAYS = {"add", "extend", "end_episode", "clear", "sample", "sample_range", "save", "load", "swap"}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_buffer_does_what_its_twin_does(spec: Spec, tmp_path: Path) -> None:
    pair, made = Pair(spec, folder=tmp_path), set()
    for name, arguments in Calls(spec, pair, seed=1).take(CALLS):
        pair.call(name, arguments)  # compares everything
        made.add(name)
    assert made >= ALWAYS
    assert pair.most_added > 3 * spec.capacity  # through the seam


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_buffer_does_what_its_twin_does_in_its_share_of_a_million_calls(
    spec: Spec, tmp_path: Path
) -> None:
    pair = Pair(spec, folder=tmp_path, check_every=10)
    calls = Calls(spec, pair, seed=3).take(2 * LONG_CALLS)  # not all can be made
    for name, arguments in itertools.islice(calls, LONG_CALLS):
        pair.call(name, arguments)  # compares everything
    assert pair.calls == LONG_CALLS
    assert pair.most_added > 100 * spec.capacity


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_the_reference_does_what_the_twin_does(spec: Spec, tmp_path: Path) -> None:
    pair = Pair(spec, "reference", folder=tmp_path)
    for name, arguments in Calls(spec, pair, seed=2).take(REFERENCE_CALLS):
        pair.call(name, arguments)  # compares everything
    assert pair.most_added > spec.capacity  # through the seam
