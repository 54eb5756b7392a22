"""What is to be reached on an H200, and what was: computed from the sections of a report.

A goal whose section failed or was left out has no figure and is not met.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

Sections = dict[str, Any]
LEARNED = 475.0  # mean return of CartPole-v1, by which Gymnasium calls it solved
MEGABYTES = {"100000": 47.0, "1000000": 470.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One of them.

    Attributes:
        name: What is measured.
        limit: At most, or with `at_least` at least, so much of `unit`.
        figure: Of the sections; a KeyError where it was not measured.
    """

    name: str
    limit: float
    unit: str
    figure: Callable[[Sections], float]
    at_least: bool = False

    def judged(self, sections: Sections) -> dict[str, Any]:
        """Whether it is met; `measured` is None if it was not."""
        measured = None
        with suppress(KeyError, ValueError, TypeError):
            measured = self.figure(sections)
        met = measured is not None and (
            measured >= self.limit if self.at_least else measured <= self.limit
        )
        sign = ">=" if self.at_least else "<="
        wanted = f"{sign} {self.limit:g} {self.unit}".strip()
        return {"goal": self.name, "wanted": wanted, "measured": measured, "met": met}


def _of_torchrl(sections: Sections) -> float:
    """Share of the least time that torchrl took, its own or rebuilt; ours is captured."""
    times = sections["rivals"]["1e+06"]
    theirs = [
        time
        for name in ("torchrl", "torchrl, rebuilt")
        for time in times.get(name, {}).values()
        if isinstance(time, float)
    ]
    return float(times["ours"]["graph"] / min(theirs))


def _of_cumsum(sections: Sections) -> float:
    """The largest share of its time, both captured, over all sizes."""
    return max(
        float(times["ours"]["graph"] / times["cumsum"]["graph"])
        for name, times in sections["rivals"].items()
        if name[0].isdigit()
    )


def _spread(sections: Sections) -> float:
    """The longest time of a batch over the shortest, from 1e5 rows to 1e8."""
    times = {name: time["graph"] for name, time in sections["flatness"]["us"].items()}
    ends = [times["1e+05"], times["1e+08"]]
    return float(max([*times.values(), *ends]) / min(times.values()))


def _of_agents(sections: Sections, name: str) -> list[float]:
    """One figure of each agent's training step."""
    return [
        float(rates[name])
        for rates in sections["training step"].values()
        if isinstance(rates, dict)
    ]


def _seconds_to_learn(sections: Sections) -> float:
    """Wall time of training; a ValueError if it learned too little."""
    found = sections["learned"]
    if found["return"] < LEARNED:
        raise ValueError(f"a greedy return of {found['return']}")
    return float(found["seconds"])


def _megabytes(rows: str) -> Callable[[Sections], float]:
    return lambda sections: sections["memory"][rows]["allocated"] / 1e6


GOALS = [
    Goal(
        name="draw, gather and update 256 rows of a million, captured",
        limit=30,
        unit="µs",
        figure=lambda sections: sections["prioritized step"]["sample and update"]["graph"],
    ),
    Goal(
        name="the same, of the least time of torchrl",
        limit=0.2,
        unit="",
        figure=_of_torchrl,
    ),
    Goal(
        name="the same from 1e5 rows on, of the time of prefix sums and a search",
        limit=1,
        unit="",
        figure=_of_cumsum,
    ),
    Goal(
        name="longest over shortest time of a batch, from 1e5 to 1e8 rows",
        limit=3,
        unit="",
        figure=_spread,
    ),
    Goal(
        name="a batch of a million rows, of the bandwidth of a copy",
        limit=0.8,
        unit="",
        figure=lambda sections: sections["gather"]["share_of_copy"],
        at_least=True,
    ),
    Goal(
        name="a captured training step of DQN, TD3 and SAC, of the speed of an eager one",
        limit=3,
        unit="",
        figure=lambda sections: min(_of_agents(sections, "of eager")),
        at_least=True,
    ),
    Goal(
        name="the same, of the speed with the buffer on the host",
        limit=10,
        unit="",
        figure=lambda sections: min(_of_agents(sections, "of host buffer")),
        at_least=True,
    ),
    Goal(
        name="between two captured steps, of the time of one",
        limit=0.02,
        unit="",
        figure=lambda sections: max(_of_agents(sections, "gap")),
    ),
    Goal(
        name="steps a second of 4096 environments, an update every 64",
        limit=5e6,
        unit="",
        figure=lambda sections: sections["many environments"]["steps_per_s"][
            "an update every 64 steps"
        ],
        at_least=True,
    ),
    Goal(
        name="captured DQN on CartPole, greedy return of 475 or more after",
        limit=20,
        unit="s",
        figure=_seconds_to_learn,
    ),
    *(
        Goal(name=f"{rows} rows of 51 floats", limit=most, unit="MB", figure=_megabytes(rows))
        for rows, most in MEGABYTES.items()
    ),
]


def judged(sections: Sections) -> list[dict[str, Any]]:
    """Every goal, with what was measured."""
    return [goal.judged(sections) for goal in GOALS]
