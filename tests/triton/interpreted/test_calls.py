"""Every call of every kind of buffer, done by kernels and by the definition.

Same bits afterwards; few launches; and, however much the buffer changed between, the same launches
with the same arguments by value. After the first time nothing waits for the device.
"""

from contextlib import nullcontext

import pytest
import torch

from relive.ops import words as w
from relive.ops.state import State
from tests.equivalence.states import comparable, same_bits
from tests.triton.arguments import Steps, launches
from tests.triton.cases import (
    SETTINGS,
    cases,
    cuda_operations,
    reference_operations,
    used_buffer,
)
from tests.triton.checker import checked
from tests.triton.waits import no_waits

KERNELS, DEFINITIONS = cuda_operations(), reference_operations()
WORDS = {number: name for name, number in reversed(vars(w).items()) if name.isupper()}
ROUNDS = 2
UNLIMITED = 10_000


def budget(buffer, case):
    """Launches that a call may take, torch's own with them."""
    levels = buffer._state.word(w.NUM_LEVELS)
    one_row = (buffer.num_envs, buffer.n_step) == (1, 1)
    add = 1 if one_row else 2
    return {
        "write": add,
        "flush": 1,
        "extend": add if case.name == "add what is on the device" else 3,
        "sample": 2,
        "gather": 1,
        "update": 5 if case.name == "update of many" else 1,
        "set_leaves": 1,
        "rebuild": levels,
        "sort_by_rank": 5 + levels,
        "intern": 3,
        "evict": 1,
    }[case.operation]


def copy_of(state):
    return State(**{name: tensor.clone() for name, tensor in state.tensors().items()})


def tensors(values):
    """Those of a case, in lists and tuples too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors(value)


def arenas(case):
    """What a case writes into, apart from the state."""
    place = {"sample": 0, "gather": 1, "intern": 1}.get(case.operation)
    return [] if place is None else [case.arguments[place]]


def assert_same_states(state, expected, what):
    given, wanted = comparable(state), comparable(expected)
    wrong = given["words"] != wanted["words"]
    assert [WORDS[w.CAPACITY + k] for k in wrong.nonzero().flatten().tolist()] == [], what
    for name, tensor in wanted.items():
        assert same_bits(given[name], tensor), (what, name)


@pytest.mark.skipif(not KERNELS, reason="there are no kernels yet")
@pytest.mark.parametrize("kind", SETTINGS)
def test_every_call_gives_the_bits_of_the_definition_without_a_wait(kind):
    buffer, steps = used_buffer(kind), Steps()
    state, expected = copy_of(buffer._state), buffer._state
    for number in range(ROUNDS):
        for case in cases(buffer):
            if case.operation not in KERNELS:
                continue
            for arena in arenas(case):
                arena.fill_(0xAA)
            case.run(DEFINITIONS, expected)
            wanted = [tensor.clone() for tensor in tensors(case.arguments)]
            for arena in arenas(case):
                arena.fill_(0xAA)
            on_device = case.on_device()
            given = list(tensors([on_device.arguments, list(on_device.options.values())]))
            is_warm = number > 0  # the first time, settings are read and scratch is made
            allowed = budget(buffer, case) if is_warm else UNLIMITED
            with (
                checked(shuffle=number, reachable=[*state.tensors().values(), *given]),
                no_waits(state) if is_warm else nullcontext(),
                launches(at_most=allowed),
                steps.named(case.name),
            ):
                on_device.run(KERNELS, state)
            assert_same_states(state, expected, case.name)
            for tensor, expected_tensor in zip(tensors(case.arguments), wanted, strict=True):
                assert same_bits(tensor, expected_tensor), case.name
