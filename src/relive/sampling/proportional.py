"""Prioritized replay, proportional variant (Schaul et al. 2016, arXiv:1511.05952)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from relive.errors import ConfigError
from relive.ops import words as w
from relive.schedules import Linear, Schedule, as_linear

if TYPE_CHECKING:
    from relive.ops.state import State

NORMALIZERS = {None: w.NO_NORMALIZER, "batch": w.BATCH_NORMALIZER, "buffer": w.BUFFER_NORMALIZER}
NEW_PRIORITIES = {"max_seen": w.MAX_SEEN, "max_current": w.MAX_CURRENT}
BAD_PRIORITIES = {"keep": w.KEEP_BAD, "max": w.MAX_BAD, "raise": w.RAISE_BAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportional:
    """A row is drawn in proportion to its leaf, (|td error| + eps)^alpha.

        P(i) = leaf_i / sum of leaves          weight_i = (N P(i))^-beta / normaliser

    Attributes:
        alpha: 0 (uniform) ... 1 (proportional to the error) ... 2.
        beta: 0 (no correction) ... 1 (full correction); a number, or a schedule over the
            batches drawn for training.
        eps: added to |td error|, so that a solved row is still drawn now and then.
        normalize: what the weights are divided by. "buffer": the largest weight any row could have,
            so that weights mean the same in every batch; one solved row can then shrink all others
            as beta nears 1. "batch": the largest of the batch. None: nothing.
        stratified: one draw from each of B equal parts of the mass, instead of B independent draws.
        new_priority: a new row enters at the largest leaf any update has set ("max_seen"; 1 before
            the first), or at the largest among the rows that live ("max_current").
        bad_priority: what a NaN or infinite error does: "keep" the old leaf, take the "max" seen,
            or "raise".
        weight_clip: largest weight; what is above is clipped and counted.
    """

    alpha: float = 0.6
    beta: Schedule = field(default_factory=lambda: Linear(0.4, 1.0, 500_000))
    eps: float = 1e-6
    normalize: Literal["buffer", "batch"] | None = "buffer"
    stratified: bool = True
    new_priority: Literal["max_seen", "max_current"] = "max_seen"
    bad_priority: Literal["keep", "max", "raise"] = "keep"
    weight_clip: float = 10.0

    prioritized: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _in_range("alpha", self.alpha, 0.0, 2.0)
        beta = as_linear("beta", self.beta)
        _in_range("beta", beta.start, 0.0, 1.0)
        _in_range("beta", beta.end, 0.0, 1.0)
        _in_range("eps", self.eps, 0.0, 1.0)
        _in_range("weight_clip", self.weight_clip, 1e-30, math.inf)
        if not isinstance(self.stratified, bool):
            raise ConfigError(f"stratified is True or False; given {self.stratified!r}")
        for name, value, known in (
            ("normalize", self.normalize, NORMALIZERS),
            ("new_priority", self.new_priority, NEW_PRIORITIES),
            ("bad_priority", self.bad_priority, BAD_PRIORITIES),
        ):
            if value not in known:
                raise ConfigError(
                    f"{name} is one of {', '.join(map(repr, known))}; given {value!r}"
                )

    @property
    def needs_smallest(self) -> bool:
        """Whether the smallest leaf must be known."""
        return self.normalize == "buffer"

    @property
    def needs_largest(self) -> bool:
        """Whether the largest leaf that lives must be known."""
        return self.new_priority == "max_current"

    def configure(self, state: State) -> None:
        """Write the settings into the words of a new state."""
        words, reals, beta = state.words, state.floats, as_linear("beta", self.beta)
        words[w.WEIGHTING] = w.PROPORTIONAL
        words[w.STRATIFIED] = int(self.stratified)
        words[w.NORMALIZE] = NORMALIZERS[self.normalize]
        words[w.NEW_PRIORITY] = NEW_PRIORITIES[self.new_priority]
        words[w.BAD_PRIORITY] = BAD_PRIORITIES[self.bad_priority]
        reals[w.ALPHA] = self.alpha
        reals[w.EPS] = self.eps
        reals[w.BETA_START] = beta.start
        reals[w.BETA_END] = beta.end
        reals[w.BETA_STEPS] = beta.steps
        reals[w.WEIGHT_CLIP] = self.weight_clip


def _in_range(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name} lies in [{low:g}, {high:g}]; given {value!r}")
