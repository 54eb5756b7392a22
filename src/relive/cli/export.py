"""`relive export RUN`: the policy of a run as a file that PyTorch alone can run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relive.agents.export import SUFFIX, export_policy
from relive.agents.policy import POLICY, load_policy
from relive.cli.options import RunPath, parse

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Write the policy of a run as a program of torch.export, to run without relive."""

    run: RunPath
    """The run directory, as `relive train` printed it."""
    out: Path | None = None
    """The file, which ends in .pt2; else policy.pt2 in the run directory."""


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive export`."""
    options = parse(ExportOptions, words, command="relive export")
    agent = load_policy(options.run)
    out = options.out or (options.run / POLICY).with_suffix(SUFFIX)
    export_policy(agent, out)
    print(out)
    return 0
