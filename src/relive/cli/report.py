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
from relive.report.read import METRICS, RUNS, runs_in

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


def require_page(out: Path, runs: Sequence[Path]) -> None:
    """Refuse to write over what is no page of these runs.

    Raises:
        ConfigError: A file that is not called as a page, or is none of relive's; another run.
    """
    if out.is_dir():
        if (out / METRICS).exists() and out.resolve() not in [run.resolve() for run in runs]:
            raise ConfigError(f"{out} is another run, with a page of its own; name another folder")
        return
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a page is a file NAME.html, or goes into a folder; given {out}")
    if out.exists() and b"relive report" not in out.read_bytes():
        raise ConfigError(f"{out} is there, and no page of relive report; name another file")


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive report`."""
    options = parse(ReportOptions, words, command="relive report")
    if not options.runs:
        raise ConfigError(f"name a run{runs_in(RUNS)} (relive report --help)")
    if options.out is not None and not options.out.absolute().parent.is_dir():
        raise ConfigError(f"there is no folder {options.out.parent} for the page; make it first")
    if options.out is not None:
        require_page(options.out, options.runs)
    if len(options.runs) == 1:
        print(write_report(options.runs[0], options.out))
    else:
        print(write_comparison(options.runs, options.out))
    return 0
