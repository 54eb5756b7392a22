"""The record of public methods itself, on a toy package and in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOY = """
__all__ = ["Toy", "function", "NUMBER"]
NUMBER = 3
def function(): return 1
class Base:
    def inherited(self): return 2
class Toy(Base):
    @property
    def size(self): return 3
    @classmethod
    def made(cls): return cls()
    @staticmethod
    def fixed(): return 4
    def __len__(self): return 5
    def _private(self): return 6
"""
CALLS = {
    "toy.function": "assert toy.function() == 1",
    "toy.Base.inherited": "assert toy.Toy().inherited() == toy.Toy().inherited() == 2",
    "toy.Toy.size": "assert toy.Toy().size == 3",
    "toy.Toy.made": "assert isinstance(toy.Toy.made(), toy.Toy)",
    "toy.Toy.fixed": "assert toy.Toy.fixed() == 4",
    "toy.Toy.__len__": "assert len(toy.Toy()) == 5",
}


PATCHED = (
    "inherited = toy.Base.inherited",
    "monkeypatch.setattr(toy.Base, 'inherited', lambda self: 2 * inherited(self))",
    "assert [toy.Toy().inherited() for _ in range(3)] == [4, 4, 4]",
)


def run(folder: Path, calls: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest on a suite that makes each of the calls in a test of its own."""
    tests = (f"def test_{i}(monkeypatch):\n    {call}\n" for i, call in enumerate(calls.values()))
    (folder / "toy.py").write_text(TOY)
    (folder / "test_toy.py").write_text("import toy\n" + "".join(tests))
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    (folder / "conftest.py").write_text(
        "from tests.public_methods import PublicMethods\n"
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--long', action='store_true')\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(PublicMethods(config, ['toy']))\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_suite_that_executes_everything_passes_and_leaves_a_table(
    tmp_path: Path, processes: str
) -> None:
    done = run(tmp_path, CALLS, "-n", processes)
    assert done.returncode == 0, done.stdout
    table = (tmp_path / "build/public-methods.md").read_text()
    assert table.splitlines()[2:] == [f"| `{name}` | yes |" for name in sorted(CALLS)]


def test_a_suite_that_leaves_public_methods_out_fails_and_names_them(tmp_path: Path) -> None:
    done = run(tmp_path, {"toy.function": CALLS["toy.function"]})
    assert done.returncode == 1
    report = done.stdout[done.stdout.index("public methods that no test executes") :]
    assert [name for name in CALLS if name in report.splitlines()] == list(CALLS)[1:]


def test_what_a_test_puts_in_the_place_of_a_method_stays_there_until_its_end(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, CALLS | {"toy.Base.inherited": "; ".join(PATCHED)})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("arguments", [["test_toy.py"], ["-k", "0"], ["-x"], ["--long"]])
def test_a_part_of_a_suite_is_not_judged(tmp_path: Path, arguments: list[str]) -> None:
    only = {"toy.function": CALLS["toy.function"]}
    assert run(tmp_path, only, *arguments).returncode == 0
