"""The reference and the compiled kernels: same seed, same calls, same bits."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import numpy as np
import pytest
import torch

from relive import (
    Batch,
    InputError,
    Linear,
    NotReadyError,
    Proportional,
    RankBased,
    Recent,
    Uniform,
    UnsupportedError,
)
from relive.ops.dispatch import operations
from tests.equivalence.states import assert_same_batch, assert_same_state
from tests.properties.calls import Calls, Spec, steps

CALLS = 200
SETTINGS = {
    "alpha": [0.6, 1.0],
    "normalize": [None, "batch", "buffer"],
    "stratified": [True, False],
    "new_priority": ["max_seen", "max_current"],
    "bad_priority": ["keep", "max", "raise"],
    "n_step": [1, 2, 4],
    "num_envs, autoreset": [(1, "disabled"), (3, "disabled"), (3, "next_step"), (3, "same_step")],
    "track_reuse": [False, True],
    "capacity": [13, 150, 600],
}


def combinations(number: int) -> list[dict[str, object]]:
    """Some of all combinations of the settings, every value of each among them."""
    chosen = random.Random(3).sample(list(itertools.product(*SETTINGS.values())), number)
    for values, seen in zip(SETTINGS.values(), zip(*chosen, strict=True), strict=True):
        assert set(values) == set(seen)
    return [dict(zip(SETTINGS, values, strict=True)) for values in chosen]


def proportional(combination: dict[str, object]) -> Spec:
    names = ("alpha", "normalize", "stratified", "new_priority", "bad_priority")
    sampler = {name: combination[name] for name in names}
    num_envs, autoreset = combination["num_envs, autoreset"]
    return Spec(
        capacity=combination["capacity"],
        num_envs=num_envs,
        autoreset=autoreset,
        n_step=combination["n_step"],
        track_reuse=combination["track_reuse"],
        sampler=Proportional(eps=0.0, beta=Linear(0.4, 1.0, 50), **sampler),
    )


def label(spec: Spec) -> str:
    chosen = (spec.capacity, spec.num_envs, spec.n_step, spec.autoreset)
    sampler = dataclasses.astuple(spec.sampler)[3:-1] if spec.sampler.prioritized else ()
    return "-".join(map(str, (*chosen, *sampler)))


SPECS = [
    Spec(sampler=Uniform(), track_reuse=True),
    Spec(sampler=Uniform(), num_envs=3, n_step=3, autoreset="next_step"),
    *map(proportional, combinations(12)),
]


def run(spec: Spec, seed: int, calls: int) -> dict[str, object]:
    """Both do the same calls and are compared after each; the statistics at the end."""
    compiled, reference = spec.buffer("cpu"), spec.buffer("reference")
    for name, arguments in Calls(spec, compiled, seed).take(calls):
        outcomes = []
        for buffer in (compiled, reference):
            try:
                outcomes.append(getattr(buffer, name)(**arguments))
            except (InputError, NotReadyError, UnsupportedError) as refusal:
                outcomes.append(str(refusal))
        if isinstance(outcomes[0], Batch):
            assert_same_batch(*outcomes)
        elif isinstance(outcomes[0], torch.Tensor):
            assert torch.equal(*outcomes)
        else:
            assert outcomes[0] == outcomes[1]
        assert_same_state(compiled, reference)
    compiled.check()
    assert compiled.stats() == reference.stats()
    return compiled.stats()


@pytest.mark.parametrize("spec", SPECS, ids=label)
def test_same_calls_give_the_same_bits(spec: Spec) -> None:
    stats = run(spec, seed=5, calls=CALLS)
    if spec.sampler.prioritized:
        assert stats["rescales"] >= 3  # the scale did change on the way


WEIGHTINGS = [
    Uniform(),
    Proportional(alpha=1.0, eps=0.0, normalize="buffer", beta=Linear(0.4, 1.0, 50)),
    Proportional(uniform_share=0.3, demo_bonus=0.5, normalize="batch", beta=0.7),
    Proportional(stratified=False, normalize=None, mixture_weights=True, uniform_share=0.1),
    Proportional(normalize="buffer", mixture_weights=True, new_priority="max_current", eps=0.0),
    RankBased(resort_every=3, normalize="buffer", bad_priority="max"),
    RankBased(resort_every=1, normalize="batch", alpha=2.0, uniform_share=0.2),
    RankBased(resort_every=7, normalize=None, bad_priority="raise", mixture_weights=True),
]
WINDOWS = [
    None,
    Recent(5),
    Recent(eta=0.5, c_min=2, updates=7),
    Recent(eta=Linear(0.3, 1.0, 40), c_min=1, updates=3, of="capacity"),
]
FRACTIONS = [0.5, None, 0.0, 1.0, 0.3, Linear(1.0, 0.1, 60)]
LANES = [(1, "disabled", 1), (3, "same_step", 1), (2, "next_step", 3)]


def policies() -> list[Spec]:
    """Every weighting in every window; fractions, lanes and pins in turn."""
    found = []
    for number, (sampler, window) in enumerate(itertools.product(WEIGHTINGS, WINDOWS)):
        envs, autoreset, n_step = LANES[number % len(LANES)]
        spec = Spec(
            capacity=[40, 17, 130][number % 3],
            sampler=sampler,
            window=window,
            demo_fraction=FRACTIONS[number % len(FRACTIONS)],
            pins=number % 4 != 3,
            num_envs=envs,
            autoreset=autoreset,
            n_step=n_step,
            track_reuse=number % 2 == 0,
            seed=number,
        )
        found.append(spec)
    return found


@pytest.mark.parametrize(
    "spec", policies(), ids=lambda spec: f"{spec.seed}-{type(spec.sampler).__name__}"
)
def test_all_policies_give_the_same_bits(spec: Spec) -> None:
    stats = run(spec, seed=spec.seed, calls=CALLS)
    assert stats["draws"] > 0
    assert not spec.sampler.ranked or stats["sorts"] > 0


@pytest.mark.parametrize("normalize", ["batch", "buffer", None])
def test_a_total_that_rises_and_collapses_by_24_decades_gives_the_same_bits(
    normalize: str | None,
) -> None:
    sampler = Proportional(alpha=1.0, eps=0.0, normalize=normalize, new_priority="max_current")
    buffers = [Spec(capacity=40, sampler=sampler).buffer(name) for name in ("cpu", "reference")]
    for exponent in [0, 40, -40, 40, 12, -12, -40, -13, 37]:
        leaves = 2.0**exponent * torch.linspace(0.6, 1.0, 40)
        batches = []
        for buffer in buffers:
            buffer.extend(**steps(np.random.default_rng(0), 40))
            buffer.update_priorities(buffer.live_ids(), leaves)
            batches.append(buffer.sample(32))
            buffer.update_priorities(buffer.live_ids()[:3], [0.0, math.nan, 2.0**-exponent])
            batches.append(buffer.sample(32))
        assert_same_state(*buffers)
        assert_same_batch(batches[0], batches[2])
        assert_same_batch(batches[1], batches[3])
    assert buffers[0].stats()["rescales"] >= 8


@pytest.mark.parametrize("capacity", [1, 16, 17, 128, 129, 1024, 1025, 9000])
def test_sums_of_trees_of_any_depth_are_rebuilt_alike(capacity: int) -> None:
    sampler = Proportional(normalize="buffer", new_priority="max_current")
    states = []
    for kernels in ("cpu", "reference"):
        buffer = Spec(capacity=capacity, sampler=sampler).buffer(kernels)
        generator = torch.Generator().manual_seed(0)
        leaves = 2.0 ** (torch.rand(capacity, generator=generator) * 60 - 60)
        buffer._state.leaves[:capacity] = torch.where(leaves < 2.0**-40, 0, leaves)
        for nodes in (buffer._state.sums, buffer._state.mins, buffer._state.maxs):
            nodes[1:].fill_(-1)
        operations(buffer.device, kernels).rebuild(buffer._state)
        states.append(buffer)
    assert_same_state(*states)
