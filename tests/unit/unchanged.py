"""Whether a call that was refused has left everything as it was."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.equivalence.states import comparable, same_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relive import ReplayBuffer


@contextmanager
def refused(buffer: ReplayBuffer, error: type[Exception], match: str) -> Iterator[None]:
    """The call raises, and every tensor of the state has the bits it had before."""
    before = {name: tensor.clone() for name, tensor in comparable(buffer._state).items()}
    with pytest.raises(error, match=match):
        yield
    for name, tensor in comparable(buffer._state).items():
        assert same_bits(tensor, before[name]), name
    buffer.check()
