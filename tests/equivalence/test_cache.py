"""Numba's cache on disk: a compiled kernel is never older than what it was made of."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import relive
from relive.ops import compiled

PACKAGE = Path(relive.__file__).parent
KERNELS = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("ops/*/cpu.py"))

# A kernel with a helper in another file, as those of `relive.ops` are, but quick to compile.
PROBE = """
from relive.ops.compiled import kernel
from relive.ops.philox.cpu import random_bits

@kernel
def probe(counter):
    return random_bits(0, counter, 0, 1, False)[0]
"""
RUN = """
from relive.ops.probe.cpu import probe
print(hex(probe(0)), sum(probe.stats.cache_hits.values()))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of relive, with nothing compiled yet."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(PACKAGE, tmp_path / "relive", ignore=ignored))


def edit(path: Path, old: str, new: str) -> None:
    source = path.read_text(encoding="utf-8")
    assert old in source
    path.write_text(source.replace(old, new), encoding="utf-8")


def test_an_edit_of_a_helper_in_another_file_is_seen_by_the_next_process(package: Path) -> None:
    (package / "__init__.py").write_text("")  # kernels need no torch
    (package / "ops/probe").mkdir()
    (package / "ops/probe/__init__.py").touch()
    (package / "ops/probe/cpu.py").write_text(PROBE)

    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            cwd=package.parent,
            env={**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout.split()

    assert run() == ["0x6627e8d5e169c58d", "0"]
    assert run() == ["0x6627e8d5e169c58d", "1"]  # from the cache
    edit(package / "ops/philox/vectors.py", "ROUNDS = 10", "ROUNDS = 0")
    assert run() == ["0x0", "0"]


@pytest.mark.parametrize("file", [*KERNELS, "ops/words.py", "ops/compiled.py"])
def test_an_edit_of_any_source_of_a_kernel_changes_the_digest(
    package: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(compiled, "__file__", str(package / "ops/compiled.py"))
    assert compiled.kernel_digest() == compiled.DIGEST
    with (package / file).open("a") as source:
        source.write("\n")
    assert compiled.kernel_digest() != compiled.DIGEST


def constants() -> list[tuple[str, str, str]]:
    """What kernels import from files of relive that are no kernels: numbers compiled into them."""
    found = []
    for file in KERNELS:
        for node in ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module.startswith("relive."):
                for alias in node.names:
                    source = Path(*node.module.split(".")[1:]).with_suffix(".py").as_posix()
                    if source not in KERNELS and (PACKAGE / source).is_file():
                        found.append((file, source, alias.name))
    return found


@pytest.mark.parametrize(("file", "source", "name"), constants())
def test_a_constant_that_is_compiled_into_a_kernel_is_part_of_the_digest(
    package: Path, monkeypatch: pytest.MonkeyPatch, file: str, source: str, name: str
) -> None:
    monkeypatch.setattr(compiled, "__file__", str(package / "ops/compiled.py"))
    with (package / source).open("a") as text:
        text.write(f"\n{name} = 0\n")
    assert compiled.kernel_digest() != compiled.DIGEST
