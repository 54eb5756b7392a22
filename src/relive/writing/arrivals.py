"""How many rows a buffer on a GPU holds at least, known to the host without asking the device.

Steps are counted as they are given. With flags in host memory that is exact; of flags on the device
the worst is assumed: under a next-step autoreset every other step could be a fake one, and n - 1
steps of each lane wait for their windows. Priorities are not known: rows of priority 0 count.

Where frames are kept once, rows may be dropped before their time (`ops.frames`): what is held for
sure are as many as there is room for if every frame that is given is new.

E  lanes (environments)    T  steps in time    L  lanes that are given steps
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relive.ops import words as w

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from relive.ops.state import State


class Arrivals:
    """Bounds on the rows of one buffer.

    Args:
        state: of the buffer; read here, once (waits).
    """

    def __init__(self, state: State) -> None:
        self._n_step = state.pending.shape[1]
        words: list[int] = state.words.tolist()
        lanes = state.lanes.cpu().numpy()
        self._drops = words[w.AUTORESET] == w.AUTORESET_NEXT_STEP
        self._capacity = words[w.RING_CAPACITY]
        self._room = words[w.RING_START]  # of slots, for demonstrations
        self._pinned: int = words[w.DEMO_COUNT] + words[w.DEMO_ADDED]
        self._kept = _rows_with_frames(state, drops=self._drops)
        oldest = max(words[w.BASE_ID], words[w.OLDEST_ID], words[w.NEXT_ID] - self._capacity)
        self._others = words[w.NEXT_ID] - oldest  # rows of no lane
        self._steps = lanes[:, w.LANE_COUNT].copy()  # real ones of each lane, at least
        self._waiting = self._steps.copy()  # at most
        self._rows = np.zeros_like(self._steps)  # of each lane, at least
        # Whether the next step is a fake one; if that is not certain, whether it would have to be
        # for the fewest rows there can be by now.
        self._resets = lanes[:, w.LANE_RESET] != 0
        self._is_certain = np.ones_like(self._resets)
        self.next_id = words[w.NEXT_ID] + int(self._waiting.sum())  # at most

    @property
    def rows(self) -> int:
        """Rows held, at least."""
        online: int = min(self._capacity, self._others + int(self._rows.sum()))
        return self._pinned + (online if self._kept is None else min(online, self._kept))

    def add(self, ended: NDArray[np.bool_] | None) -> None:
        """A step of every lane.

        Args:
            ended: bool [E], whether it is the last of its episode; None if the host cannot know.
        """
        self.next_id += len(self._steps)
        real = ~self._resets
        over = real if ended is None else real & ended
        if self._drops:
            self._resets = over
            self._is_certain &= ended is not None
            if ended is not None:
                self._is_certain |= ~ended
        if self.rows >= self._pinned + self._capacity:
            return  # full, and stays so until it is cleared
        self._steps += real
        self._waiting = np.minimum(self._waiting + real, self._n_step - 1)
        if ended is not None:
            self._waiting[over] = 0
        self._count()

    def extend(
        self, times: int, lanes: range, ended: NDArray[np.bool_] | None, *, close: bool
    ) -> None:
        """Steps of some lanes.

        Args:
            ended: as in `add`, bool [T, L].
            close: whether the lanes are closed afterwards.
        """
        self.next_id += times * len(lanes)
        own = slice(lanes.start, lanes.stop)
        due = self._resets[own]
        if not self._drops:
            self._steps[own] += times
        elif ended is None:
            self._steps[own] += (times + 1 - due) // 2
            self._resets[own] = (times + due) % 2
            self._is_certain[own] = times == 0
        else:
            fake, due_then = fakes(ended, due)
            self._steps[own] += times - fake
            self._resets[own] = due_then
            self._is_certain[own] |= ~ended.all(axis=0)
        self._waiting[own] = self._n_step - 1
        if close:
            self.flush(lanes)
        else:
            self._count()

    def flush(self, lanes: range) -> None:
        """Some lanes are closed."""
        own = slice(lanes.start, lanes.stop)
        self._resets[own], self._is_certain[own] = False, True
        self.cut(lanes)

    def cut(self, lanes: range) -> None:
        """What waits in some lanes becomes rows; a fake step that is due stays due."""
        self._waiting[lanes.start : lanes.stop] = 0
        self._count()

    def add_rows(self, count: int) -> None:
        """Ready-made rows."""
        self.next_id += count
        self._others += count

    def clear(self) -> None:
        """All rows and waiting steps are dropped, demonstrations too."""
        self._capacity += self._room
        self._pinned = self._room = self._others = 0
        for counts in (self._steps, self._waiting, self._rows):
            counts[:] = 0
        self._resets |= ~self._is_certain

    def _count(self) -> None:
        self._rows = np.maximum(self._rows, self._steps - self._waiting)


def _rows_with_frames(state: State, *, drops: bool) -> int | None:
    """How many rows are never dropped for want of frames; None if no frames are kept once.

    Each step has 2 k frames at most. The newest steps, whose frames there is room for, are rows but
    for those that wait, and for fake ones, of which no two follow each other in a lane.

    Args:
        drops: whether there may be fake steps.
    """
    if not state.keeps_frames:
        return None
    words: list[int] = state.frame_words.tolist()
    lanes, n_step = state.pending.shape[:2]
    room = words[w.NUM_FRAMES] - words[w.FRAME_START] - words[w.FRAMES_BEHIND]
    steps = room // (2 * words[w.STACK])
    if drops:
        steps = (steps - lanes) // 2
    return max(0, steps - (n_step - 1) * lanes)


def fakes(
    ended: NDArray[np.bool_], due: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """How many steps of each lane a next-step autoreset makes fake ones, and of the next, whether.

    Of consecutive ends every other one is of a fake step: with f the last time before t whose step
    did not end an episode, that at t is fake if t - f is even.

    Args:
        ended: bool [T, L].
        due: bool [L], whether the first step is a fake one.
    """
    times = np.arange(len(ended) + 1)[:, None]
    goes_on = np.where(ended, -2, times[:-1])
    before = np.concatenate([np.where(due, -2, -1)[None, :], goes_on])
    is_fake = (times - np.maximum.accumulate(before, axis=0)) % 2 == 0
    found: NDArray[np.int64] = is_fake[:-1].sum(axis=0)
    return found, is_fake[-1]
