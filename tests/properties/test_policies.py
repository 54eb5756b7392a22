"""Every weighting in every window, n-step, with demonstrations, for one and several environments.

What the cells of the table in `docs/policies.md` say is what happens here.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relive import ConfigError, Proportional, RankBased, Recent, ReplayBuffer, Uniform
from tests.faults.tagged import FIELDS

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
CAPACITY, RESERVE, CALLS = 40, 3, 100
ADDED = 2**62  # id of the first copy

WEIGHTINGS = {
    "`Uniform()`": Uniform(),
    "`Proportional(...)`": Proportional(uniform_share=0.1, demo_bonus=0.5, mixture_weights=True),
    "`RankBased(...)`": RankBased(resort_every=3, uniform_share=0.1, mixture_weights=True),
}
ETA, C_MIN, UPDATES = 0.999, 4, 10
WINDOWS = {
    "all rows": None,
    "`Recent(count)`": Recent(6),
    "`Recent(eta=...)`": Recent(eta=ETA, c_min=C_MIN, updates=UPDATES),
    "`sample_range`": "range",
}
DEMONSTRATIONS = {"none": "none", "a share of each batch": 0.5, "one pool": None}
LANES = {  # number of environments, steps folded into a row, how they reset; why it is refused
    "1 env, n = 1": (1, 1, None, None),
    "1 env, n = 3": (1, 3, None, None),
    "3 envs, n = 1": (3, 1, "disabled", None),
    "3 envs, n = 3": (3, 3, "disabled", None),
    "3 envs, `autoreset` not said": (3, 3, None, "say how the 3 environments reset: autoreset="),
}
CELLS = list(itertools.product(WEIGHTINGS, WINDOWS, DEMONSTRATIONS, LANES))


def table() -> str:
    """The cells as Markdown."""
    lines = [
        "| weighting | window | demonstrations | " + " | ".join(LANES) + " |",
        "|---" * (3 + len(LANES)) + "|",
    ]
    for policy in itertools.product(WEIGHTINGS, WINDOWS, DEMONSTRATIONS):
        cells = ["works" if why is None else "refused" for *_, why in LANES.values()]
        lines.append("| " + " | ".join([*policy, *cells]) + " |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_exactly_the_cells_that_are_tested() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")
    for *_, why in LANES.values():
        assert why is None or why in PAGE.read_text(encoding="utf-8")


class Model:
    """Rows that must be there, by id: (obs, return, discount, next_obs, terminated)."""

    def __init__(self, num_envs: int, n_step: int, demonstrations: Any) -> None:
        self.n_step, self.demonstrations = n_step, demonstrations
        self.lanes: list[list[dict[str, Any]]] = [[] for _ in range(num_envs)]
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.next_id = self.pinned = self.copies = self.updates = 0

    def take(self, steps: list[dict[str, Any]]) -> None:
        for lane, step in zip(self.lanes, steps, strict=True):
            lane.append(step)
            if step["terminated"] or step["truncated"]:
                self.close(lane)
            elif len(lane) == self.n_step:
                self.fold(lane)

    def close(self, lane: list[dict[str, Any]]) -> None:
        while lane:
            self.fold(lane)

    def fold(self, lane: list[dict[str, Any]]) -> None:
        last = lane[-1]
        value = sum(0.5**k * step["reward"] for k, step in enumerate(lane))
        discount = 0.0 if last["terminated"] else 0.5 ** len(lane)
        self.rows[self.next_id] = (
            *(lane[0]["obs"], value, discount),
            *(last["next_obs"], last["terminated"]),
        )
        self.next_id += 1
        del lane[0]

    def held(self) -> tuple[list[int], list[int]]:
        """Demonstrations and ring."""
        pinned = [*range(self.pinned), *range(ADDED, ADDED + self.copies)]
        kept = CAPACITY - self.pinned - (RESERVE if self.pinned else 0)
        return pinned, list(range(max(self.pinned, self.next_id - kept), self.next_id))

    def drawable(self, window: Any) -> set[int]:
        """What a window lets be drawn next."""
        pinned, online = self.held()
        if isinstance(window, tuple):
            return {i for i in pinned + online if window[0] <= i < window[1]}
        if window is not None and window.count is not None:
            online = online[-window.count :]
        elif window is not None:
            share = ETA ** ((self.updates % UPDATES + 1) * 1000 / UPDATES)
            online = online[-max(math.floor(len(online) * share), C_MIN) :]
        return {*pinned, *online}


class Run:
    """A buffer, its model, and random calls of both."""

    def __init__(self, weighting: Any, window: Any, demonstrations: Any, lanes: Any) -> None:
        self.num_envs, n_step, autoreset, _ = lanes
        self.window = window
        self.rng = np.random.default_rng(0)
        self.time = 0
        self.buffer = ReplayBuffer(
            CAPACITY,
            FIELDS,
            sampler=weighting,
            window=None if window == "range" else window,
            demo_fraction=0.5 if demonstrations == "none" else demonstrations,
            num_envs=self.num_envs,
            n_step=n_step,
            autoreset=autoreset,
            gamma=0.5,
        )
        self.model = Model(self.num_envs, n_step, demonstrations)

    def add(self) -> None:
        steps = [
            {
                "obs": float(1000 * env + self.time),
                "action": env,
                "reward": float(self.rng.integers(1, 9)),
                "next_obs": float(1000 * env + self.time) + 0.5,
                "terminated": bool(self.rng.random() < 0.1),
                "truncated": bool(self.rng.random() < 0.1),
            }
            for env in range(self.num_envs)
        ]
        self.time += 1
        self.buffer.add(**{name: [step[name] for step in steps] for name in steps[0]})
        self.model.take(steps)

    def end_episode(self) -> None:
        self.buffer.end_episode()
        for lane in self.model.lanes:
            self.model.close(lane)

    def pin_first(self) -> None:
        self.buffer.pin_demonstrations(self.model.next_id, reserve=RESERVE)
        self.model.pinned = self.model.next_id

    def pin(self) -> None:
        if self.model.pinned and self.model.copies < RESERVE:
            row_id = int(self.rng.choice([*itertools.chain(*self.model.held())]))
            assert self.buffer.pin([row_id]).tolist() == [ADDED + self.model.copies]
            self.model.rows[ADDED + self.model.copies] = self.model.rows[row_id]
            self.model.copies += 1

    def sample(self) -> None:
        pinned, online = self.model.held()
        if not pinned and not online:
            assert not self.buffer.ready()
        elif self.window == "range":
            start = int(self.rng.choice(pinned + online))
            stop = start + int(self.rng.integers(1, 20))
            self.check(self.buffer.sample_range(8, start, stop), (start, stop))
        else:
            self.check(self.buffer.sample(8), self.window)
            self.model.updates += 1

    def check(self, batch: Any, window: Any) -> None:
        ids = batch.ids.tolist()
        assert set(ids) <= self.model.drawable(window)
        columns = (batch.obs, batch.reward, batch.discount, batch.next_obs, batch.terminated)
        drawn = zip(*(column.tolist() for column in columns), strict=True)
        assert list(drawn) == [self.model.rows[row_id] for row_id in ids]
        pinned, online = self.model.held()
        if self.window != "range" and self.model.demonstrations == 0.5 and pinned and online:
            assert sum(row_id in pinned for row_id in ids) == 4
        if self.buffer.prioritized:
            self.buffer.update_priorities(batch.ids, self.rng.normal(size=8))
        assert (batch.weights > 0).all()


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(cell).replace("`", ""))
def test_a_cell_works_or_is_refused(cell: tuple[str, str, str, str]) -> None:
    weighting, window, demonstrations, lanes = (
        choices[name]
        for choices, name in zip((WEIGHTINGS, WINDOWS, DEMONSTRATIONS, LANES), cell, strict=True)
    )
    if lanes[-1] is not None:
        with pytest.raises(ConfigError, match=lanes[-1]):
            Run(weighting, window, demonstrations, lanes)
        return
    run = Run(weighting, window, demonstrations, lanes)
    if demonstrations != "none":
        while run.model.next_id < 7:
            run.add()
        run.end_episode()
        run.pin_first()
    calls = [run.add, run.sample, run.end_episode, run.pin]
    for call in run.rng.choice(calls, CALLS, p=[0.6, 0.3, 0.05, 0.05]):
        call()
    assert run.model.next_id > CAPACITY  # old rows have been overwritten
    assert run.buffer.live_ids().tolist() == sorted(itertools.chain(*run.model.held()))
    run.buffer.check()
