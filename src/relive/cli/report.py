"""`relive report RUN [RUN ...]`: writes a page about a run, or one that compares several."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from relive.cli.options import parse
from relive.errors import ConfigError
from relive.report.comparison import write_comparison
from relive.report.page import write_report
from relive.report.read import METRICS, RUNS, runs_below, runs_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RunPaths = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
PAGES = (".html", ".htm")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Write a page that opens without a network: about one run, or comparing several.

    Runs that differ only in their seed form a group.
    """

    runs: RunPaths
    """Run directories, as `relive train` printed them; or a folder of such, which means all."""
    out: Path | None = None
    """File or folder; else report.html in the run directory, or comparison.html beside several."""


def runs_of(paths: Sequence[Path]) -> Iterator[Path]:
    """The runs that paths stand for: those below a folder of runs; of `runs/*` no page of ours."""
    for path in paths:
        if path.is_file() and is_page(path):
            print(f"left out: {path}, a page of relive report", file=sys.stderr)
        elif (path / METRICS).exists():
            yield path
        else:
            yield from runs_below(path) or [path]


def is_page(file: Path) -> bool:
    """Whether relive has written a file, as a page."""
    return file.suffix.lower() in PAGES and b"relive report" in file.read_bytes()


def require_page(out: Path, runs: Sequence[Path]) -> None:
    """Refuse to write over what is no page of these runs.

    Raises:
        ConfigError: A file that is not called as a page, or is none of relive's; another run.
    """
    if out.is_dir():
        if (out / METRICS).exists() and out.resolve() not in [run.resolve() for run in runs]:
            raise ConfigError(f"{out} is another run, with a page of its own; name another folder")
        return
    if out.suffix.lower() not in PAGES:
        raise ConfigError(f"a page is a file NAME.html, or goes into a folder; given {out}")
    if out.exists() and not is_page(out):
        raise ConfigError(f"{out} is there, and no page of relive report; name another file")


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive report`."""
    options = parse(ReportOptions, words, command="relive report")
    runs = list(runs_of(options.runs))
    if not runs:
        raise ConfigError(f"name a run{runs_in(RUNS)} (relive report --help)")
    if options.out is not None and not options.out.absolute().parent.is_dir():
        raise ConfigError(f"there is no folder {options.out.parent} for the page; make it first")
    if options.out is not None:
        require_page(options.out, runs)
    if len(runs) == 1:
        print(write_report(runs[0], options.out))
    else:
        print(write_comparison(runs, options.out))
    return 0
