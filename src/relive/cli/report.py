"""`relive report RUN`: writes the report of a run again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relive.cli.options import RunPath, parse
from relive.report.page import write_report

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Write report.html into a run directory: one page that opens without a network."""

    run: RunPath
    """The run directory, as `relive train` printed it."""


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive report`."""
    options = parse(ReportOptions, words, command="relive report")
    print(write_report(options.run))
    return 0
