"""A window on the newest rows (emphasizing recent experience: Wang and Ross 2019, 1906.04009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from relive.declared import take_plain
from relive.errors import ConfigError
from relive.ops import words as w
from relive.sampling.settings import check_choice, check_schedule, check_whole, write_schedule
from relive.schedules import Schedule, as_linear

if TYPE_CHECKING:
    from relive.ops.state import State

OF = {"present": 0, "capacity": 1}


@dataclass(frozen=True, slots=True)
class Recent:
    """Draw from the newest rows only, whatever the weighting.

    `Recent(count)`: from the newest `count`. Otherwise from a window that shrinks over a sweep of K
    updates, so that the newest rows are drawn in all of them and the oldest in the first only:

        c_k = min(live, max(floor(N eta^(k 1000 / K)), c_min))      k = 1 ... K

    Every training sample is an update; after the K-th the next sweep begins
    (`buffer.start_sweep(K)` begins one by hand, with as many updates as the episode had steps, as
    the paper does). Demonstrations do not count: N, live rows and ages are those of the ring.

    Attributes:
        count: rows of a fixed window; None for one that shrinks.
        eta: how fast it shrinks, in (0, 1]; a number, or a schedule to 1.
        c_min: fewest rows of the window.
        updates: K.
        of: N is the number of rows "present", or the "capacity" of the ring, with which the window
            is whole for longer while the ring fills.
    """

    count: int | None = None
    eta: Schedule = 0.996
    c_min: int = 5000
    updates: int = 1000
    of: Literal["present", "capacity"] = "present"

    def __post_init__(self) -> None:
        take_plain(self)
        for name in ("count", "c_min", "updates"):
            value = getattr(self, name)
            if name == "count" and value is None:
                continue
            check_whole(name, value)
        check_schedule("eta", self.eta, 1e-6, 1.0)
        check_choice("of", self.of, OF)
        changed = [
            name
            for name, usual in (
                ("eta", 0.996),
                ("c_min", 5000),
                ("updates", 1000),
                ("of", "present"),
            )
            if getattr(self, name) != usual
        ]
        if self.count is not None and changed:
            raise ConfigError(
                f"Recent(count) is a fixed window and takes nothing else; given {changed} too"
            )

    def configure(self, state: State) -> None:
        """Write the settings into the words of a new state."""
        words = state.words
        write_schedule(state, w.ETA_START, as_linear("eta", self.eta))
        words[w.SWEEP_LENGTH] = self.updates
        if self.count is not None:
            words[w.WINDOW], words[w.WINDOW_ROWS] = w.LAST_ROWS, self.count
        else:
            words[w.WINDOW], words[w.WINDOW_ROWS] = w.ERE, self.c_min
            words[w.WINDOW_OF_CAPACITY] = OF[self.of]
