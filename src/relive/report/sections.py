"""What a comparison says about one environment."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.numbers import number, tenths
from relive.references import REFERENCES
from relive.report import overlays
from relive.report.canvas import HALF_OF_PAGE, NARROW, PAGE, THIRD_OF_PAGE
from relive.report.curves import interval, mean_curve, smoothed
from relive.report.markup import card, either, grid, row
from relive.report.pooled import priorities_of, shares_of
from relive.report.series import moving_window
from relive.report.tables import counters_of, settings_of_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relive.report.groups import Group
    from relive.report.read import Run

BAND = "band: 95 % interval of the mean over seeds (bootstrap, percentile)"
NO_BAND = "a single run has no band"
TRAINING = (  # title, key, logarithmic
    ("Loss", "loss", True),
    ("TD error", "td_error", True),
    ("Action values (mean Q)", "q_mean", False),
    ("Gradient norm", "grad_norm", True),
)
POLICY = (
    ("Policy loss", "actor_loss", False),
    ("Temperature", "temperature", True),
    ("Entropy of the policy", "entropy", False),
)


class Section:
    """Groups of runs of one environment.

    Args:
        name: Starts the names of the pictures, unique in the page.
        env: The environment.
        groups: In the order of colours.
    """

    def __init__(self, name: str, env: str, groups: Sequence[Group]) -> None:
        self.name, self.env, self.groups = name, env, groups
        self._headings = [
            f'<span class="key">{overlays.key(index)}{escape(group.label)}</span>'
            for index, group in enumerate(groups)
        ]

    @property
    def unfinished(self) -> int:
        """Runs that were stopped, or still go on."""
        return sum(not run.finished for group in self.groups for run in group.runs)

    def html(self, *, headed: bool) -> str:
        """Everything, below the name of the environment if there are several."""
        heading = f"<h2>{escape(self.env)}</h2>" if headed else ""
        parts = (
            self._legend(),
            row(self._learning()),
            row(self._results()),
            row(self._numbers(TRAINING)),
            row(self._numbers(POLICY)),
            row(self._buffers()),
            row(counters_of(self.groups, self._headings)),
            row(settings_of_groups(self.groups, self._headings)),
        )
        return f'<div class="section">{heading}{"".join(parts)}</div>'

    def _legend(self) -> str:
        keys = (
            f'<span class="key">{overlays.key(index)}<span>{escape(group.label)} '
            f"<small>{escape(group.seeds)}</small></span></span>"
            for index, group in enumerate(self.groups)
        )
        return f'<div class="legend">{"".join(keys)}</div>'

    def _learning(self) -> list[str]:
        """Returns of training episodes over environment steps."""
        series = [[run.returns() for run in group.runs] for group in self.groups]
        counts = [[len(steps) for steps, _ in runs if len(steps)] for runs in series]
        windows = [moving_window(min(lengths, default=0)) for lengths in counts]
        smooth = [
            [smoothed(run, window) for run in runs]
            for runs, window in zip(series, windows, strict=True)
        ]
        found = [(index, mean_curve(runs)) for index, runs in enumerate(smooth)]
        curves = [(index, curve) for index, curve in found if curve is not None]
        if not curves:
            return []
        means = any(run.tells_means for group in self.groups for run in group.runs)
        what = "training episodes, or log intervals of them" if means else "training episodes"
        used = sorted({windows[index] for index, _ in curves})
        few = f"{used[0]} to {used[-1]}" if len(used) > 1 else f"{used[0]}"
        least = ", as a group's shortest run allows" if len(used) > 1 else ""
        notes = [f"mean of {few} {what}{least}, then over seeds", self._bands()]
        reference = REFERENCES.get(self.env)
        if reference is not None:
            notes.append(f"dashed: reference {reference:g}")
        ends = [run[0][-1] for runs in smooth for run in runs if len(run[0])]
        if min(ends) < 0.9 * max(ends):
            notes.append("a group's curve ends with its shortest run")
        options: Any = {"ylabel": "episode return", "reference": reference}
        wide, narrow = (
            overlays.curves(f"{self.name}_{name}", curves, size=size, **options)
            for name, size in (("learning", PAGE), ("learning_narrow", NARROW))
        )
        return [card("Learning curves", either(wide, narrow), "; ".join(notes))]

    def _bands(self) -> str:
        sizes = [len(group.runs) for group in self.groups]
        if max(sizes) == 1:
            return NO_BAND
        return BAND + (f"; {NO_BAND}" if min(sizes) == 1 else "")

    def _results(self) -> list[str]:
        """The last greedy evaluation of each run, and how fast it went."""
        found = []
        for index, group in enumerate(self.groups):
            means = [
                evaluated["mean"] for run in group.runs if (evaluated := run.last("evaluated"))
            ]
            values = np.array([mean for mean in means if mean is not None], dtype=np.float64)
            if len(values):
                ends = interval(values[:, None])
                pair = None if ends is None else (float(ends[0][0]), float(ends[1][0]))
                found.append(
                    (index, overlays.Result(group.label, values, float(values.mean()), pair))
                )
        cards = []
        if found:
            note = "a dot a seed, a bar for their mean, the 95 % interval of the mean around it"
            picture = overlays.results(f"{self.name}_results", found, REFERENCES.get(self.env))
            cards.append(card("Greedy evaluation after training", picture, note))
        by_index = dict(found)
        rows = [
            (heading, (*_result(by_index.get(index)), _speed(group.runs)))
            for index, (heading, group) in enumerate(zip(self._headings, self.groups, strict=True))
        ]
        headings = ("mean", "95 % interval", "steps/s")
        return [*cards, card("Results and speed", grid(headings, rows), "means over seeds")]

    def _numbers(self, wanted: Sequence[tuple[str, str, bool]]) -> list[str]:
        """What the training loop measured; a number that was never there has no picture."""
        found = []
        for title, key, log in wanted:
            curves = []
            for index, group in enumerate(self.groups):
                curve = mean_curve([run.series("training_progress", key) for run in group.runs])
                if curve is not None and (not log or curve.mean.max() > 0):
                    curves.append((index, curve))
            if curves:
                found.append((title, key, curves, log))
        size = {1: PAGE, 3: THIRD_OF_PAGE}.get(len(found), HALF_OF_PAGE)
        return [
            card(title, overlays.curves(f"{self.name}_{key}", curves, size=size, log=log))
            for title, key, curves, log in found
        ]

    def _buffers(self) -> list[str]:
        """What the buffers held and what was drawn from them, with one axis for all."""
        size = HALF_OF_PAGE
        cards = []
        held = [
            (index, *pooled)
            for index, group in enumerate(self.groups)
            if (pooled := priorities_of(group.runs))
        ]
        if held:
            size = THIRD_OF_PAGE
            picture = overlays.priorities(f"{self.name}_priorities", held, size)
            cards.append(card("Priorities", picture, "share of the rows held at the end"))
        for key, title, label, note in (
            (
                "age_counts",
                "Age of what was sampled",
                "rows written since then",
                "share of all draws",
            ),
            ("reuse_counts", "Reuse of rows", "times drawn", "share of all rows"),
        ):
            drawn = [
                (index, shares)
                for index, group in enumerate(self.groups)
                if (shares := shares_of(group.runs, key)) is not None
            ]
            if drawn:
                cards.append(
                    card(title, overlays.doublings(f"{self.name}_{key}", drawn, label, size), note)
                )
        return cards


def _result(result: overlays.Result | None) -> tuple[str, str]:
    """The mean and its interval."""
    if result is None:
        return "–", "–"
    return tenths(result.mean), "–" if result.ends is None else " … ".join(map(tenths, result.ends))


def _speed(runs: Sequence[Run]) -> str:
    known = [run.steps / run.seconds for run in runs if run.seconds]
    return number(round(sum(known) / len(known))) if known else "–"
