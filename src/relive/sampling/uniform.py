"""Every row is equally likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from relive.ops import words as w

if TYPE_CHECKING:
    from relive.ops.state import State


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every row is equally likely, with replacement; weights are 1."""

    prioritized: ClassVar[bool] = False
    ranked: ClassVar[bool] = False
    needs_smallest: ClassVar[bool] = False
    needs_largest: ClassVar[bool] = False

    def configure(self, state: State) -> None:
        """Write the settings into the words of a new state."""
        state.words[w.WEIGHTING] = w.UNIFORM
