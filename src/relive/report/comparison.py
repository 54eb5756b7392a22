"""The page that compares runs: one section an environment, groups of seeds side by side."""

from __future__ import annotations

import shlex
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from relive.errors import InputError
from relive.report.groups import by_env, groups_of
from relive.report.markup import frame, tag, write_page
from relive.report.read import read_run
from relive.report.sections import Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relive.report.read import Run

COMPARISON = "comparison.html"
MOST_GROUPS = 12  # of an environment: a picture shows no more


def write_comparison(paths: Sequence[Path | str], out: Path | None = None) -> Path:
    """Writes a page that compares runs.

    Args:
        paths: Run directories, two or more; each once.
        out: The file, or a folder for it; None for `comparison.html` beside the runs where
            all are in one folder, else in the current directory.

    Returns:
        The file written.

    Raises:
        InputError: A directory does not hold a run, or is named twice; or there are more groups
            than can be told apart.
        MissingExtraError: matplotlib is not installed (raised when this module is imported).
    """
    folders = [Path(path) for path in paths]
    known: set[Path] = set()
    for folder in folders:
        if folder.resolve() in known:
            raise InputError(f"{folder} is named twice; name each run once")
        known.add(folder.resolve())
    text = page([read_run(folder) for folder in folders])
    return write_page(default_folder(folders) if out is None else out, COMPARISON, text)


def default_folder(folders: Sequence[Path]) -> Path:
    """Where the page goes: beside the runs, if they are side by side."""
    parents = {folder.resolve().parent for folder in folders}
    return folders[0].parent if len(parents) == 1 else Path()


def page(runs: Sequence[Run]) -> str:
    """The text of the page about several runs.

    Raises:
        InputError: There are more groups than can be told apart.
    """
    sections = []
    for number, (env, members) in enumerate(by_env(runs).items()):
        groups = groups_of(members)
        if len(groups) > MOST_GROUPS:
            raise InputError(
                f"{len(groups)} groups of runs on {env} differ in their settings; a page compares "
                f"at most {MOST_GROUPS}: name fewer runs"
            )
        sections.append(Section(f"s{number}", env, groups))
    envs = " and ".join(section.env for section in sections)
    title = f"{len(runs)} runs on {envs}"
    several = len(sections) > 1
    body = "\n".join(
        (
            f"<header><h1>{escape(title)}</h1><p>{' '.join(_tags(sections))}</p></header>",
            *(section.html(headed=several) for section in sections),
            _footer(runs),
        )
    )
    return frame(title, body)


def _tags(sections: Sequence[Section]) -> Iterator[str]:
    count = sum(len(section.groups) for section in sections)
    yield tag(f"{count} group{'s' if count > 1 else ''}")
    unfinished = sum(section.unfinished for section in sections)
    if unfinished:
        yield tag(f"{unfinished} not finished", warn=True)


def _footer(runs: Sequence[Run]) -> str:
    words = " ".join(escape(shlex.quote(str(run.path))) for run in runs)
    return f"<footer>Written by <code>relive report {words}</code>.</footer>"
