"""Prioritized replay, proportional variant (Schaul et al. 2016, arXiv:1511.05952)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from relive.declared import take_plain
from relive.ops import words as w
from relive.sampling.settings import (
    BAD_PRIORITIES,
    NEW_PRIORITIES,
    NORMALIZERS,
    check_choice,
    check_flag,
    check_range,
    check_schedule,
    write_beta,
    write_uniform_share,
)
from relive.schedules import Linear, Schedule

if TYPE_CHECKING:
    from relive.ops.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportional:
    """A row is drawn in proportion to its leaf, (|td error| + eps)^alpha.

        P(i) = leaf_i / sum of leaves          weight_i = (N P(i))^-beta / normaliser

    Attributes:
        alpha: 0 (uniform) ... 1 (proportional to the error) ... 2.
        beta: 0 (no correction) ... 1 (full correction); a number, or a schedule over the
            batches drawn for training. The default goes from 0.4 to 1 in 500,000 batches.
        eps: added to |td error|, so that a solved row is still drawn now and then.
        normalize: what the weights are divided by. "buffer": the largest weight any row of positive
            priority could have, so that weights mean the same in every batch; one solved row then
            shrinks all others, the more the nearer beta is to 1: take "batch", the largest of the
            batch, where that may happen. None: nothing. With a `uniform_share` rows of priority 0
            are drawn too: by "buffer" they can weigh more than 1, up to `weight_clip`.
        stratified: one draw from each of B equal parts of the mass, instead of B independent draws.
        new_priority: a new row enters at the largest leaf any update has set ("max_seen"; 1 before
            the first), or at the largest among the rows that live ("max_current").
        bad_priority: what a NaN or infinite error does: "keep" the old leaf, take the "max" seen,
            or "raise".
        weight_clip: largest weight; what is above is clipped and counted.
        uniform_share: of the draws that are uniform instead, whatever the priorities;
            P(i) = (1 - uniform_share) leaf_i / sum of leaves + uniform_share / N, and the weights
            know.
        demo_bonus: added to |td error| + eps of demonstrations, before the exponent.
        mixture_weights: where a batch mixes demonstrations and other rows, weights correct by the
            probability of a row in the whole mixture, not by that among its own kind.
    """

    alpha: float = 0.6
    beta: Schedule = field(default_factory=lambda: Linear(0.4, 1.0, 500_000))
    eps: float = 1e-6
    normalize: Literal["buffer", "batch"] | None = "buffer"
    stratified: bool = True
    new_priority: Literal["max_seen", "max_current"] = "max_seen"
    bad_priority: Literal["keep", "max", "raise"] = "keep"
    weight_clip: float = 10.0
    uniform_share: float = 0.0
    demo_bonus: float = 0.0
    mixture_weights: bool = False

    prioritized: ClassVar[bool] = True
    ranked: ClassVar[bool] = False

    def __post_init__(self) -> None:
        take_plain(self)
        check_range("alpha", self.alpha, 0.0, 2.0)
        check_schedule("beta", self.beta, 0.0, 1.0)
        check_range("eps", self.eps, 0.0, 1.0)
        check_range("weight_clip", self.weight_clip, 1e-30, math.inf)
        check_range("uniform_share", self.uniform_share, 0.0, 1.0)
        check_range("demo_bonus", self.demo_bonus, 0.0, 1e6)
        check_flag("stratified", self.stratified)
        check_flag("mixture_weights", self.mixture_weights)
        check_choice("normalize", self.normalize, NORMALIZERS)
        check_choice("new_priority", self.new_priority, NEW_PRIORITIES)
        check_choice("bad_priority", self.bad_priority, BAD_PRIORITIES)

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
        words, reals = state.words, state.floats
        words[w.WEIGHTING] = w.PROPORTIONAL
        words[w.STRATIFIED] = int(self.stratified)
        words[w.NORMALIZE] = NORMALIZERS[self.normalize]
        words[w.NEW_PRIORITY] = NEW_PRIORITIES[self.new_priority]
        words[w.BAD_PRIORITY] = BAD_PRIORITIES[self.bad_priority]
        reals[w.ALPHA] = self.alpha
        reals[w.EPS] = self.eps
        reals[w.WEIGHT_CLIP] = self.weight_clip
        reals[w.DEMO_BONUS] = self.demo_bonus
        words[w.MIXTURE_WEIGHTS] = int(self.mixture_weights)
        write_beta(state, self.beta)
        write_uniform_share(state, self.uniform_share)
