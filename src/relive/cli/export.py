"""`relive export RUN`: the policy of a run as a file that PyTorch alone can run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relive.agents.export import SUFFIX, export_policy
from relive.agents.policy import POLICY, load_policy
from relive.cli.options import RunPath, parse
from relive.errors import InputError
from relive.storage.writer_lock import is_held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relive.agents.agent import Agent


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
    agent = agent_in(options.run)
    out = options.out or (options.run / POLICY).with_suffix(SUFFIX)
    export_policy(agent, out)
    print(out)
    return 0


def agent_in(path: Path) -> Agent:
    """The agent in a run directory or a file.

    Raises:
        InputError: There is no policy, perhaps not yet, or it cannot be read.
    """
    if is_held(path) and not (path / POLICY).is_file():
        raise InputError(
            f"the run in {path} is going and there is no policy yet: one comes with its first save "
            f"and at its end (relive watch {shlex.quote(str(path))})"
        )
    return load_policy(path)
