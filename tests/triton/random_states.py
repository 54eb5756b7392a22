"""Copies of states in the middle of a buffer's life, and whether two are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relive.errors import ReliveError
from relive.ops.state import State
from tests.equivalence.states import comparable, same_bits
from tests.properties.calls import Calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.properties.calls import Spec


def copy_of(state: State) -> State:
    """A state of its own with the same numbers."""
    return State(**{name: tensor.clone() for name, tensor in state.tensors().items()})


def states(spec: Spec, seed: int, number: int) -> Iterator[State]:
    """`number` states that one buffer comes through, copied; a function of the seed."""
    buffer = spec.buffer()
    calls = Calls(spec, buffer, seed)
    for _ in range(number):
        for name, arguments in calls.take(8):
            try:
                getattr(buffer, name)(**arguments)
            except ReliveError:  # refused: nothing to draw, say
                continue
        yield copy_of(buffer._state)


def assert_same(state: State, expected: State) -> None:
    """All tensors are equal, but for addresses and for bytes of lanes that hold no step."""
    for name, tensor in comparable(expected).items():
        given = comparable(state)[name]
        assert same_bits(given, tensor), (name, (given != tensor).nonzero().flatten().tolist())
