"""Steps become rows by kernels as they do by definition: all of the state has the same bits."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import InputError, NotReadyError, ReplayBuffer, UnsupportedError
from relive.ops.dispatch import operations
from relive.ops.write import cuda
from tests.equivalence.states import assert_same_state
from tests.properties.calls import Calls, Spec
from tests.triton.checker import checked

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.ops.state import State

CALLS = 60


def on_device(function: Callable[..., None], shuffle: int) -> Callable[..., None]:
    """A kernel's entry, watched, its columns made tensors."""
    order = random.Random(shuffle)

    def watched(state: State, *args: Any, **settings: Any) -> None:
        given = [tensors_of(arg) if isinstance(arg, list) else arg for arg in args]
        columns = [values for arg in given if isinstance(arg, list) for _, _, values in arg]
        with checked(shuffle=order.randrange(1000), reachable=columns):
            function(state, *given, **settings)

    return watched


def tensors_of(columns: list[tuple[int, int, Any]]) -> list[tuple[int, int, torch.Tensor]]:
    return [
        (offset, nbytes, torch.from_numpy(np.array(values))) for offset, nbytes, values in columns
    ]


def buffer_of(spec: Spec, shuffle: int = 0) -> ReplayBuffer:
    """A buffer that writes by the kernels of this module, and does all else by definition."""
    buffer = spec.buffer("reference")
    writes = {
        name: on_device(getattr(cuda, name), shuffle) for name in ("write", "extend", "flush")
    }
    buffer._ops = operations(buffer.device, "reference")._replace(**writes)
    return buffer


LANES = [
    (1, "disabled"),
    (3, "disabled"),
    (3, "next_step"),
    (2, "same_step"),
    (7, "next_step"),
]
SPECS = [
    Spec(
        capacity=capacity,
        n_step=n_step,
        num_envs=num_envs,
        autoreset=autoreset,
        track_reuse=(number % 3 != 0),
        pins=number % 2 == 0,
        seed=number,
    )
    for number, (capacity, n_step, (num_envs, autoreset)) in enumerate(
        (capacity, n_step, lanes)
        for capacity in (7, 13, 150)
        for n_step in (1, 2, 5)
        for lanes in LANES
    )
]
SPECS += [Spec(capacity=1), Spec(capacity=1, n_step=3), Spec(capacity=5000, n_step=3, num_envs=2)]


def label(spec: Spec) -> str:
    return f"{spec.capacity}-{spec.n_step}-{spec.num_envs}-{spec.autoreset}"


def run(spec: Spec, calls: int, names: frozenset[str] | None = None) -> ReplayBuffer:
    """Both do the same calls, and are compared after each."""
    ours, reference = buffer_of(spec, spec.seed), spec.buffer("reference")
    for name, arguments in Calls(spec, ours, spec.seed).take(calls):
        outcomes = []
        for buffer in (ours, reference):
            try:
                outcomes.append(getattr(buffer, name)(**arguments))
            except (InputError, NotReadyError, UnsupportedError) as refusal:
                outcomes.append(str(refusal))
        assert_same_state(ours, reference)
    ours.check()
    return ours


@pytest.mark.parametrize("spec", SPECS, ids=label)
def test_random_calls_leave_the_state_that_the_definition_leaves(spec: Spec) -> None:
    run(spec, CALLS)


@pytest.mark.parametrize("spec", SPECS[::7], ids=label)
def test_quick(spec: Spec) -> None:
    run(spec, 30)
