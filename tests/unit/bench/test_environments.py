"""Where the peers are looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relive.bench.environments import PEERS, find_peers
from relive.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def python_in(folder: Path) -> Path:
    path = folder / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_peers_are_found_in_the_folder_and_the_others_told(tmp_path: Path) -> None:
    path = python_in(tmp_path / "cpprb")
    pythons, missing = find_peers(folder=tmp_path)
    assert pythons == {"cpprb": str(path)}
    assert list(missing) == [name for name in PEERS if name != "cpprb"]
    assert all("--peer-python" in why for why in missing.values())


def test_an_interpreter_that_is_given_comes_first(tmp_path: Path) -> None:
    python_in(tmp_path / "cpprb")
    path = python_in(tmp_path / "other")
    pythons, missing = find_peers(["cpprb"], [f"cpprb={path}"], tmp_path)
    assert (pythons, missing) == ({"cpprb": str(path)}, {})


@pytest.mark.parametrize(
    ("wanted", "given", "message"),
    [
        (["cprb"], [], "the peers are cpprb, .*; given 'cprb'"),
        ([], ["cprb=python"], "NAME=PATH, NAME one of cpprb"),
        ([], ["python"], "given 'python'"),
        ([], ["cpprb=nowhere"], "the interpreter given for cpprb does not exist: nowhere"),
    ],
)
def test_a_peer_that_is_not_known_is_refused(
    wanted: list[str], given: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        find_peers(wanted, given, tmp_path)
