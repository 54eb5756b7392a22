"""`relive report RUN [RUN ...]`: writes a page about a run, or one that compares several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from relive.cli.options import parse
from relive.errors import ConfigError
from relive.report.comparison import write_comparison
from relive.report.page import write_report
from relive.report.read import RUNS, runs_in

if TYPE_CHECKING:
    from collections.abc import Sequence

RunPaths = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Write a page that opens without a network: about one run, or comparing several.

    Runs that differ only in their seed form a group.
    """

    runs: RunPaths
    """Run directories, as `relive train` printed them."""
    out: Path | None = None
    """File or folder; else report.html in the run directory, or comparison.html beside several."""


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive report`."""
    options = parse(ReportOptions, words, command="relive report")
    if not options.runs:
        raise ConfigError(f"name a run{runs_in(RUNS)} (relive report --help)")
    if options.out is not None and not options.out.absolute().parent.is_dir():
        raise ConfigError(f"there is no folder {options.out.parent} for the page; make it first")
    if len(options.runs) == 1:
        print(write_report(options.runs[0], options.out))
    else:
        print(write_comparison(options.runs, options.out))
    return 0
