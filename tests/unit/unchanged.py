"""Whether a call that was refused has left everything as it was."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from relive.ops import words as w
from tests.equivalence.states import comparable, same_bits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relive import ReplayBuffer


@contextmanager
def unchanged(buffer: ReplayBuffer, but: Sequence[int] = ()) -> Iterator[None]:
    """Whatever is called, every tensor of the state has the bits it had before.

    Args:
        but: numbers of words that may be others.
    """
    before = {name: tensor.clone() for name, tensor in comparable(buffer._state).items()}
    yield
    after = dict(comparable(buffer._state))
    for word in but:
        after["words"] = after["words"].clone()
        after["words"][word - w.CAPACITY] = before["words"][word - w.CAPACITY]
    for name, tensor in after.items():
        assert same_bits(tensor, before[name]), name


@contextmanager
def refused(buffer: ReplayBuffer, error: type[Exception], match: str) -> Iterator[None]:
    """The call raises, and nothing has changed."""
    with unchanged(buffer), pytest.raises(error, match=match):
        yield
    buffer.check()
