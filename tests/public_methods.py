"""The record of public methods: which of them a run of the whole suite has executed.

Every function and every public method of every class in `__all__` of the public modules is replaced
by a stand-in that notes its first call, puts the original back and calls it. At the end of a whole
run a table is written, and the run fails if something in it was never executed. With xdist the
processes send what they noted to the one that collects.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TABLE = Path("build/public-methods.md")
SPECIAL = {"__call__", "__len__"}  # the only special methods that count as public
KEY = "public_methods"


class PublicMethods:
    """A pytest plugin; `modules` are the public modules."""

    def __init__(self, config: pytest.Config, modules: Iterable[str]) -> None:
        self.config = config
        self.known: set[str] = set()
        self.executed: set[str] = set()
        for name in modules:
            try:
                members = list(public(importlib.import_module(name)))
            except Exception as error:  # a broken module must not stop the tests of others
                self.known.add(f"{name} (cannot be imported: {error})")
                continue
            for owner, attribute, label in members:
                self.known.add(label)
                watch(owner, attribute, functools.partial(self.executed.add, label))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker sends its record; a whole run is judged where all records meet."""
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[KEY] = sorted(self.executed)
        elif whole_run(self.config) and not session.testsfailed:
            self.write_table()
            if self.known - self.executed:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of xdist has ended."""
        self.executed.update(getattr(node, "workeroutput", {}).get(KEY, ()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says what a whole run has not executed."""
        missing = sorted(self.known - self.executed)
        if whole_run(self.config) and missing and not terminalreporter.stats.get("failed"):
            terminalreporter.section("public methods that no test executes", red=True)
            terminalreporter.line("\n".join(missing))

    def write_table(self) -> None:
        """Writes the table: each public method and whether a test executed it."""
        marks = {name: "yes" if name in self.executed else "**no**" for name in sorted(self.known)}
        rows = [f"| `{name}` | {mark} |" for name, mark in marks.items()]
        table = self.config.rootpath / TABLE
        table.parent.mkdir(exist_ok=True)
        table.write_text("\n".join(["| public | executed by a test |", "|---|---|", *rows, ""]))


def public(module: Any) -> Iterator[tuple[Any, str, str]]:
    """Owner, attribute and label of everything public in a module that can be executed."""
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value):
            yield module, name, f"{module.__name__}.{name}"
        elif inspect.isclass(value):
            for owner in value.__mro__:
                ours = owner.__module__.partition(".")[0] == module.__name__.partition(".")[0]
                for attribute, member in vars(owner).items() if ours else ():
                    if is_public(attribute) and is_executable(member):
                        yield owner, attribute, f"{module.__name__}.{owner.__name__}.{attribute}"


def is_public(name: str) -> bool:
    return not name.startswith("_") or name in SPECIAL


def is_executable(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, classmethod | staticmethod | property)


def watch(owner: Any, attribute: str, note: Callable[[], None]) -> None:
    """Puts a stand-in in the place of a function, method or property until its first call."""
    original = vars(owner)[attribute]

    def stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def first_call(*args: Any, **kwargs: Any) -> Any:
            note()
            if vars(owner)[attribute] is placed:  # a test may have put another in its place
                setattr(owner, attribute, original)
            return function(*args, **kwargs)

        return first_call

    placed: Any
    if isinstance(original, property):
        assert original.fget is not None
        placed = property(stand_in(original.fget), original.fset, original.fdel)
    elif isinstance(original, classmethod | staticmethod):
        placed = type(original)(stand_in(original.__func__))
    else:
        placed = stand_in(original)
    setattr(owner, attribute, placed)


def whole_run(config: pytest.Config) -> bool:
    """Whether all tests were asked for: no path, no -k, --long or the like, not only collected."""
    chosen = (
        *("keyword", "markexpr", "lf", "failedfirst", "deselect", "collectonly", "maxfail"),
        "long",
    )
    everything = config.args_source in {
        pytest.Config.ArgsSource.TESTPATHS,
        pytest.Config.ArgsSource.INVOCATION_DIR,
    }
    return everything and not any(getattr(config.option, name, None) for name in chosen)
