"""The interpreters of the peers: environments that hold one library each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from relive.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

PEERS = ("cpprb", "torchrl", "tianshou", "stable-baselines3", "flashbax")
FOLDER = Path("build") / "peers"  # where `make bench` puts them


def find_peers(
    wanted: Iterable[str] = PEERS, given: Iterable[str] = (), folder: Path = FOLDER
) -> tuple[dict[str, str], dict[str, str]]:
    """Interpreters of the peers that are there, and why the others are not.

    Args:
        wanted: names of peers.
        given: `NAME=PATH` of interpreters.
        folder: holds an environment `NAME` for each peer that is not given.

    Raises:
        ConfigError: a peer that is not known, or a path that is no file.
    """
    paths = {}
    for pair in given:
        name, equals, path = pair.partition("=")
        if not equals or name not in PEERS:
            raise ConfigError(
                f"a peer's interpreter is given as NAME=PATH, NAME one of {', '.join(PEERS)}; "
                f"given {pair!r}"
            )
        if not Path(path).is_file():
            raise ConfigError(f"the interpreter given for {name} does not exist: {path}")
        paths[name] = Path(path)
    pythons, missing = {}, {}
    for name in wanted:
        if name not in PEERS:
            raise ConfigError(f"the peers are {', '.join(PEERS)}; given {name!r}")
        path_of = paths.get(name, folder / name / "bin" / "python")
        if path_of.is_file():
            # Not resolved: the link is what tells Python its environment.
            pythons[name] = str(path_of.absolute())
        else:
            missing[name] = "not installed: see --peer-python, or run make bench"
    return pythons, missing
