"""Prioritized replay, rank-based variant (Schaul et al. 2016, arXiv:1511.05952)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from relive.declared import take_plain
from relive.ops import words as w
from relive.sampling.settings import (
    BAD_PRIORITIES,
    NORMALIZERS,
    check_choice,
    check_flag,
    check_range,
    check_schedule,
    check_whole,
    write_beta,
    write_uniform_share,
)
from relive.schedules import Linear, Schedule

if TYPE_CHECKING:
    from relive.ops.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBased:
    """A row is drawn in proportion to rank^-alpha, rank 1 being the largest |td error|.

    Ranks are those of the last sort. At a sort, rows never updated come first, the newer of equals
    before the older; between sorts a new row is drawn as the first rank is, and an updated row
    keeps its place. A huge error counts no more than the first rank, so outliers do no harm.

    Attributes:
        alpha: 0 (uniform) ... 2.
        beta: As in `Proportional`.
        resort_every: calls of `update_priorities` from one sort to the next; 1 is exact. A sort
            costs some passes over the buffer (on a CPU 50 ns a row where there are 100,000, 200 ns
            where there are ten million), so spread it thin on a large one.
        normalize, stratified, weight_clip, uniform_share, mixture_weights: As in `Proportional`.
        bad_priority: what a NaN or infinite error does: "keep" the old rank, take the "max" error
            seen (before there is one, the row ranks as a new one), or "raise".
    """

    alpha: float = 0.7
    beta: Schedule = field(default_factory=lambda: Linear(0.5, 1.0, 500_000))
    resort_every: int = 1000
    normalize: Literal["buffer", "batch"] | None = "buffer"
    stratified: bool = True
    bad_priority: Literal["keep", "max", "raise"] = "keep"
    weight_clip: float = 10.0
    uniform_share: float = 0.0
    mixture_weights: bool = False

    prioritized: ClassVar[bool] = True
    ranked: ClassVar[bool] = True
    needs_largest: ClassVar[bool] = False

    def __post_init__(self) -> None:
        take_plain(self)
        check_range("alpha", self.alpha, 0.0, 2.0)
        check_schedule("beta", self.beta, 0.0, 1.0)
        check_range("weight_clip", self.weight_clip, 1e-30, math.inf)
        check_range("uniform_share", self.uniform_share, 0.0, 1.0)
        check_whole("resort_every", self.resort_every)
        check_flag("stratified", self.stratified)
        check_flag("mixture_weights", self.mixture_weights)
        check_choice("normalize", self.normalize, NORMALIZERS)
        check_choice("bad_priority", self.bad_priority, BAD_PRIORITIES)

    @property
    def needs_smallest(self) -> bool:
        """Whether the smallest leaf must be known."""
        return self.normalize == "buffer"

    def configure(self, state: State) -> None:
        """Write the settings into the words of a new state."""
        words, reals = state.words, state.floats
        words[w.WEIGHTING] = w.RANKED
        words[w.STRATIFIED] = int(self.stratified)
        words[w.NORMALIZE] = NORMALIZERS[self.normalize]
        words[w.NEW_PRIORITY] = w.MAX_SEEN
        words[w.BAD_PRIORITY] = BAD_PRIORITIES[self.bad_priority]
        words[w.RESORT_EVERY] = self.resort_every
        words[w.MIXTURE_WEIGHTS] = int(self.mixture_weights)
        reals[w.ALPHA] = self.alpha
        reals[w.WEIGHT_CLIP] = self.weight_clip
        write_beta(state, self.beta)
        write_uniform_share(state, self.uniform_share)
