"""`relive doctor`: what this machine offers, whether the buffer works on it, how fast it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from relive.cli.options import console, parse
from relive.diagnosis import Findings, diagnose
from relive.diagnosis.selftest import DRAWS, FALSE_ALARM
from relive.errors import ConfigError
from relive.numbers import number, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FAILED = 1
WIDEST = 110
MARKS = {True: "[green]ok[/]", False: "[bold red]FAILED[/]", None: "[yellow]not tested[/]"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Tell what this machine offers, test the buffer on it, and measure it.

    Exit status 1 means that a self-test failed.
    """

    json: bool = False
    """Print everything as JSON."""
    seed: int = 0
    """Of the self-test."""

    def __post_init__(self) -> None:
        """Checks the seed."""
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed lies between 0 and 2^32 - 1, got {self.seed}")


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive doctor`."""
    options = parse(DoctorOptions, words, command="relive doctor")
    out = console()
    with out.status("testing and measuring; compiling the kernels first, if need be"):
        found = diagnose(options.seed)
    if options.json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        out.print(table(found), width=min(out.width, WIDEST))
        out.print(verdict(found))
    return 0 if found.ok else FAILED


def table(found: Findings) -> Table:
    """Everything, a line each."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="cyan", no_wrap=True)
    made.add_column(overflow="fold")
    for lines in (_machine, _packages, _tests, _speed):
        for name, words in lines(found):
            made.add_row(name, words)
        made.add_row()
    return made


def verdict(found: Findings) -> str:
    """All in a sentence."""
    if not found.ok:
        wrong = [f"{one.case}: {one.what}" for one in found.checks if one.ok is False]
        return f"[bold red]FAILED[/]: {', '.join(wrong)}. Do not trust what is drawn here."
    if any(one.ok is None for one in found.checks):
        return "[yellow]Not everything could be tested.[/]"
    return "[green]All is well.[/]"


def _machine(found: Findings) -> Iterator[tuple[str, str]]:
    for one in found.devices:
        kernels = one.kernels or "no kernels"
        yield one.device, escape(f"{one.name}: {kernels} ({one.why})")
    yield "others", "plain torch, the slow definition: kernels='reference' takes it"
    count = found.threads
    words = f"{count['cores']} cores, {count['allowed'] or 'unknown'} for this process"
    if count["quota"] is not None:
        words += f", limited to the time of {count['quota']:g}"
    yield "threads", f"{words}; PyTorch uses {count['torch_threads']}"
    memory = found.memory
    if memory.free is None:
        yield "memory", "the system does not say how much is free"
    else:
        words = f"{size(memory.free)} free: {number(memory.most_rows or 0)} rows of 17 + 17 + 6 "
        yield "memory", f"{words}floats ({memory.row_bytes} bytes) with priorities"
    used = {True: "yes", False: "no, so random rows cost more", None: "not known"}
    yield "huge pages", f"{used[memory.huge_pages]}; {escape(memory.huge_pages_why)}"
    yield "kernels", escape(_cache(found))


def _cache(found: Findings) -> str:
    cache = found.cache
    if cache is None:
        return "none"
    took = f"in {cache.seconds:.1f} s"
    if cache.folder is None:
        return (
            f"compiled {took}, in each process: there is nowhere to keep them; set NUMBA_CACHE_DIR "
            "to a folder that can be written to"
        )
    if cache.compiled:
        return (
            f"{cache.compiled} compiled and {cache.loaded} loaded {took}; the next process loads "
            f"all from {cache.folder}"
        )
    return f"{cache.loaded} loaded {took} from {cache.folder}"


def _packages(found: Findings) -> Iterator[tuple[str, str]]:
    there = [f"{name} {version}" for name, version in found.versions.items() if version]
    yield "packages", escape(", ".join(there))
    commands: dict[str, list[str]] = {}
    for package, command in found.missing.items():
        commands.setdefault(command, []).append(package)
    for command, packages in commands.items():
        yield "missing", escape(f"{', '.join(packages)}: {command}")


def _tests(found: Findings) -> Iterator[tuple[str, str]]:
    cases = dict.fromkeys(check.case for check in found.checks)
    for case in cases:
        checks = [check for check in found.checks if check.case == case]
        worst = min(
            (check.ok for check in checks), key=lambda ok: (ok is not False, ok is not None)
        )
        shown = checks if worst else [check for check in checks if check.ok is not True]
        seen = " · ".join(escape(check.seen) for check in shown)
        yield case, f"{MARKS[worst]}  {seen}"
    rate = number(round(1 / FALSE_ALARM))
    yield "", f"[dim]p: chi-square of {DRAWS:,} draws; one seed in {rate} fails without reason[/]"


def _speed(found: Findings) -> Iterator[tuple[str, str]]:
    for one in found.speed:
        yield (
            f"{one.microseconds:.1f} µs",
            f"{one.what}: {one.verdict} [dim]({one.floor:.1f} µs: {one.floor_is})[/]",
        )
    if found.speed_why:
        yield "speed", f"not measured: {escape(found.speed_why)}"
