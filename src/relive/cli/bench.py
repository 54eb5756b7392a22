"""`relive bench`: measures the buffer beside other libraries, in one run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from relive.bench import PEERS, WORKLOADS, Plan, compare, find_peers, judge
from relive.bench.machine import commit, machine, today
from relive.bench.startup import judge_startup, startup
from relive.bench.tables import times_of, verdict_of
from relive.cli.options import console, parse
from relive.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

WRONG = 1
WIDTH = 118  # of a table with every peer, in a file
SAMPLERS = {"uniform": "uniform", "per": "prioritized"}
VERDICTS = {True: "[green]met[/green]", False: "[bold red]missed[/bold red]", None: "not measured"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Measure the buffer beside other libraries: time a call, ratios, targets.

    Every operation is checked before it is timed.

    Other libraries run in environments of their own; those not there are left out.

    Exit status 1: an operation of ours was not right, or could not be measured.
    """

    workload: tuple[Literal["W1", "W2", "W3", "W4", "start"], ...] = ("W1", "W2", "W3", "W4")
    """Rows of 17 floats, of 4, images, the tree alone; start is the import and the first batch."""
    peers: tuple[str, ...] = PEERS
    """The libraries beside it, or none."""
    peer_python: tuple[str, ...] = ()
    """Interpreters that hold them, NAME=PATH; the others are looked for in build/peers/NAME."""
    rounds: int = 9
    """Turns of every library in every operation; the median counts."""
    seconds: float = 0.03
    """Length of a turn."""
    quick: bool = False
    """Small rings and short turns: shows that it works, not how fast it is."""
    save: Path | None = None
    """Write all figures into this file, JSON."""
    chart: Path | None = None
    """Draw the first workload into this file, SVG."""

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if self.rounds < 1:
            raise ConfigError(f"rounds is at least 1, got {self.rounds}")
        if self.seconds <= 0:
            raise ConfigError(f"seconds is above 0, got {self.seconds:g}")


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive bench`."""
    options = parse(BenchOptions, words, command="relive bench")
    if options.chart is not None:
        import_module("relive.bench.chart")  # what it needs is missed before minutes of measuring
    result = measure(options)
    show(result, quick=options.quick)
    if options.save is not None:
        write(options.save, json.dumps(result, indent=1) + "\n")
    if options.chart is not None:
        from relive.bench.chart import chart

        write(options.chart, chart(result))
    return WRONG if any(what.startswith("relive") for what in result["skipped"]) else 0


def measure(options: BenchOptions) -> dict[str, Any]:
    """Everything that was asked for, with the machine and the targets."""
    wanted = () if options.peers == ("none",) else options.peers
    pythons, missing = find_peers(wanted, options.peer_python)
    names: list[str] = [name for name in options.workload if name != "start"]
    if "W4" in names:
        names.insert(names.index("W4") + 1, "W4-100k")
    workloads = [WORKLOADS[name] for name in names]
    rounds, seconds = options.rounds, options.seconds
    if options.quick:
        workloads, rounds, seconds = [workload.quick() for workload in workloads], 2, 0.002
    result: dict[str, Any] = {
        "date": today(),
        "commit": commit(),
        "command": command(options),
        "machine": machine(),
        "rounds": rounds,
        "seconds": seconds,
        "skipped": missing,
    }
    out = console()
    with out.status("starting") as status:
        result |= compare(
            workloads, Plan(rounds=rounds, seconds=seconds, pythons=pythons), status.update
        )
        result["targets"] = judge(result["workloads"])
        if "start" in options.workload:
            status.update("start: import and first batch")
            result["start"] = startup(rounds)
            result["targets"] += judge_startup(result["start"])
    for name, workload in result["workloads"].items():
        result["skipped"] |= {f"{what} ({name})": why for what, why in workload["skipped"].items()}
    return result


def command(options: BenchOptions) -> str:
    """The options that change what is measured, as typed; paths belong to one machine."""
    words = ["relive bench --workload", *options.workload]
    if options.peers != PEERS:
        words += ["--peers", *options.peers]
    words.append(
        "--quick" if options.quick else f"--rounds {options.rounds} --seconds {options.seconds:g}"
    )
    return " ".join(words)


def show(result: dict[str, Any], *, quick: bool) -> None:
    """Print the tables."""
    out = console()
    if not out.is_terminal:
        out.width = WIDTH
    for name, workload in result["workloads"].items():
        for sampler in SAMPLERS:
            if any(case.startswith(sampler) for case in workload["cases"]):
                out.print(times(name, workload, sampler))
    if "start" in result:
        for what, taken in result["start"].items():
            out.print(f"{what}: {taken['median']:.3f} s")
    if not quick:
        out.print(targets(result["targets"]))
    for what, why in result["skipped"].items():
        out.print(f"skipped {what}: {why}", markup=False)
    if quick:
        out.print("quick: these figures say nothing about speed")


def times(name: str, workload: dict[str, Any], sampler: str) -> Table:
    """Microseconds a call of one workload."""
    headings, rows = times_of(workload, sampler)
    made = _table(f"{name}, {SAMPLERS[sampler]}: {workload['title']}; µs of CPU time a call")
    for heading in headings:
        style = {"operation": "cyan", "relive": "bold", "out=": "bold"}.get(heading)
        justify: Literal["left", "right"] = "left" if heading == "operation" else "right"
        made.add_column(heading, justify=justify, style=style, no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def targets(verdicts: list[dict[str, Any]]) -> Table:
    """What should be, what is."""
    made = _table("targets: a ratio of medians is at most the limit")
    for heading in ("", "operation", "ours", "to", "limit", "ratio", "target"):
        made.add_column(heading, justify="right" if heading in {"limit", "ratio"} else "left")
    for verdict in verdicts:
        made.add_row(*verdict_of(verdict), VERDICTS[verdict["met"]])
    return made


def write(path: Path, text: str) -> None:
    """Write a file and say so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print("written:", path)


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
