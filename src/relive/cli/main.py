"""`relive`: picks the command and tells what went wrong in one line.

A command is a module of this package with `run(arguments) -> exit status`. It is imported when it
is asked for, so that `relive --help` answers at once.
"""

from __future__ import annotations

import io
import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

from relive.closest import unknown
from relive.errors import ConfigError, MissingExtraError, ReliveError
from relive.terminal.output import write_nowhere

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "train": "train an agent, evaluate it, write a run directory with a report",
    "eval": "play greedy episodes with the agent of a run",
    "record": "play episodes of a policy and write them as a dataset to train from",
    "export": "write the policy of a run as a file that PyTorch alone can run",
    "watch": "look on while another process trains",
    "report": "write a page about a run, or one that compares several",
    "bench": "measure the buffer beside other libraries",
    "doctor": "look at this machine, test the buffer on it, measure it",
    "plan": "tell how much memory a buffer will need, without allocating it",
}
HELP = f"""usage: relive COMMAND [options]

Experience replay that lives on your device, with the agents that use it.

commands:
{"".join(f"  {name:8}{what}" + chr(10) for name, what in COMMANDS.items())}
`relive COMMAND --help` lists the options of a command; `relive --version` tells the version.
"""
NEEDED = ("tyro", "rich")  # by every command
WRONG_INPUT = 2
NO_READER = 1
INTERRUPTED = 130  # what a shell reports for a program that was ended by Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The words after `relive`; None takes them from the shell.

    Returns:
        The exit status: 0 if it worked, 2 for wrong input (with one line on stderr that says what
        is wrong and what exists), 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    write_what_can_be_written()
    try:
        return _run(words)
    except ReliveError as error:
        print("relive:", " ".join(str(error).split()), file=sys.stderr)
        return WRONG_INPUT
    except KeyboardInterrupt:
        print("\nrelive: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # who read the output has left, as in `relive train dqn --help | head`
        write_nowhere()
        return NO_READER
    except OSError as error:
        if getattr(error, "__notes__", None):  # of an environment, say: not of what was typed
            raise
        print("relive:", error, file=sys.stderr)
        return WRONG_INPUT


def write_what_can_be_written() -> None:
    """A terminal that does not know a letter gets a question mark, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")


def _run(words: list[str]) -> int:
    command, *rest = words or ["--help"]
    if command == "help" and rest:  # relive help train
        command, rest = rest[0], [*rest[1:], "--help"]
    if command in {"-h", "--help", "help"}:
        print(HELP, end="")
        return 0
    if command == "--version":
        print("relive", version("relive"))
        return 0
    if command not in COMMANDS:
        raise ConfigError(unknown("command", command, COMMANDS, most=len(COMMANDS)))
    if "" not in sys.path:  # --env module:id names a module of the user's, as `python -m` finds it
        sys.path.append("")
    try:
        module = import_module(f"relive.cli.{command}")
    except ModuleNotFoundError as error:
        if (package := (error.name or "").partition(".")[0]) not in NEEDED:
            raise
        raise MissingExtraError(package, extra="train") from None
    status: int = module.run(rest)
    return status
