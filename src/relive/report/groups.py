"""Which runs belong together: those that differ only in what does not change what is learned."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relive.numbers import shown
from relive.report.markup import words_of
from relive.report.read import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SAME_RUN = frozenset(
    {"seed", "out", "threads", "device", "log_every", "save_every", "save_buffer", "eval_every"}
    | {"replay.on_failure", "replay.device", "replay.rows_on"}
)
FIRST = ("name", "algorithm", "replay.sampler", "replay.window")  # they tell groups apart best


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs with equal settings but for those of `SAME_RUN`.

    Attributes:
        label: The settings that tell it from the other groups of the environment.
        settings: All of them, by dotted name.
        runs: In the order in which they were named, one of each seed.
        left_out: Those whose seed is that of a run that came as far, or further.
    """

    label: str
    settings: Mapping[str, Any]
    runs: Sequence[Run]
    left_out: Sequence[Run] = ()

    @property
    def seeds(self) -> str:
        """How many runs, which seeds, and what is left out because its seed is there already."""
        seeds = [str(run.config.get("seed", "?")) for run in self.runs]
        count = "1 run, seed" if len(seeds) == 1 else f"{len(seeds)} runs, seeds"
        counted = f"{count} {', '.join(seeds)}"
        if not self.left_out:
            return counted
        return (
            f"{counted}; left out, of a seed that is there: {', '.join(map(_name, self.left_out))}"
        )


def by_env(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of each environment, in the order in which they were named."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(str(run.config.get("env", "an unknown environment")), []).append(run)
    return found


def groups_of(runs: Iterable[Run]) -> list[Group]:
    """Groups of runs of one environment, in the order in which they were named."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_key(settings_of(run)), []).append(run)
    settings = [settings_of(members[0]) for members in found.values()]
    labels = labels_of(settings)
    groups = []
    for label, own, members in zip(labels, settings, found.values(), strict=True):
        runs, left_out = one_a_seed(members)
        groups.append(Group(label=label, settings=own, runs=runs, left_out=left_out))
    return groups


def one_a_seed(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Of each seed the run that came furthest, and the others.

    Runs with equal settings and one seed are the same run twice: they say nothing of chance.
    """
    best: dict[Any, Run] = {}
    for run in runs:
        seed = run.config.get("seed", run.path)
        if seed not in best or run.steps > best[seed].steps:
            best[seed] = run
    kept = {run.path for run in best.values()}
    return [r for r in runs if r.path in kept], [r for r in runs if r.path not in kept]


def settings_of(run: Run) -> dict[str, Any]:
    """The settings of a run that matter, by dotted name."""
    return {name: value for name, value in flat(run.config) if name not in SAME_RUN}


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings by dotted name.

    >>> dict(flat({"a": 1, "b": {"c": [2]}}))
    {'a': 1, 'b.c': [2]}
    """
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the settings that are not the same everywhere, those that matter most first."""
    names = dict.fromkeys([*FIRST, *(name for own in settings for name in own)])
    return [name for name in names if len({_key(own.get(name, "–")) for own in settings}) > 1]


def labels_of(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each of several settings: as few of those that differ as tell all apart.

    But for the first, a value that most of them have is not said.

    >>> labels_of([{"a.n": 1, "b": 2}, {"a.n": 3, "b": 4}, {"a.n": 3, "b": 5}])
    ['b 2', 'b 4', 'b 5']
    >>> labels_of([{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 7}])
    ['a 1', 'a 2', 'a 1, b 7']
    >>> labels_of([{"b": 1, "algorithm": "sac"}, {"b": 2, "algorithm": "td3"}])
    ['algorithm sac', 'algorithm td3']
    >>> labels_of([{"name": "rainbow", "algorithm": "c51"}, {"name": None, "algorithm": "c51"}])
    ['name rainbow', 'algorithm c51']
    """
    names = differing(settings)
    if not names:
        return ["all runs"] * len(settings)
    chosen = [name for name in FIRST if name in names]
    while _parts(settings, chosen) < _parts(settings, names):
        rest = [name for name in names if name not in chosen]
        chosen.append(max(rest, key=lambda name: _parts(settings, [*chosen, name])))
    last = [name.rpartition(".")[2] for name in names]
    short = {
        name: name if last.count(end) > 1 else end for name, end in zip(names, last, strict=True)
    }
    usual = {name: _usual([own.get(name) for own in settings]) for name in chosen[1:]}
    said = [
        [name for name in chosen if name not in usual or _key(own.get(name)) != usual[name]]
        for own in settings
    ]
    return [
        ", ".join(dict.fromkeys(_words(own, name, short[name]) for name in names))
        for own, names in zip(settings, said, strict=True)
    ]


def _words(own: Mapping[str, Any], name: str, short: str) -> str:
    """A setting and its value; a run without a name is called by its algorithm."""
    if name == "name" and own.get(name) is None and "algorithm" in own:
        return f"algorithm {own['algorithm']}"
    return f"{words_of(short)} {shown(own.get(name))}"


def _usual(values: Sequence[Any]) -> str | None:
    """The value that more than half of several have, as `_key` gives it; None if there is none."""
    (value, count), *_ = Counter(map(_key, values)).most_common(1)
    return value if count > len(values) / 2 else None


def _parts(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int:
    """Into how many parts the settings fall, looked at by some names."""
    return len({tuple(_key(own.get(name, "–")) for name in names) for own in settings})


def _name(run: Run) -> str:
    return str(run.path)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
