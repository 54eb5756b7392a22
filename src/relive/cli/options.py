"""From words to settings: tyro over a dataclass, with its complaints in one line."""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import redirect_stderr
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields, is_dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import tyro
from rich.console import Console

from relive.closest import unknown
from relive.errors import ConfigError
from relive.report.read import RUNS, runs_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Settings = TypeVar("Settings")
MISSING: Any = tyro.MISSING_NONPROP  # in a default: an option that has to be given
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CHOICE = re.compile(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*?),?\)\.")
NO_RUN = re.compile(r"Missing from (relive \w+): RUN\b.*")
ONE_OF = re.compile(r"no type matching (\S+) could be instantiated from \[(.*?)\]\..*")
KINDS = {"INT": "a whole number", "FLOAT": "a number"}
POWER_OF_TEN = re.compile(r"whole numbers?\b.*, got '(\d+(?:\.\d*)?e\+?\d{1,2})'$", re.IGNORECASE)
LISTED = re.compile(r"whole numbers\b.*, got '([\[(]?\d+(?:, ?\d+)+[\])]?)'$")
ELSEWHERE = {  # the last part of an option, by the word of Stable-Baselines3
    "learning-rate": "lr",
    "buffer-size": "capacity",
    "n-steps": "n-step",
    "net-arch": "hidden",
    "total-timesteps": "total-steps",
    "train-freq": "train-every",
    "gradient-steps": "updates-per-train",
}
WORDING = (
    (r"^Error parsing (?=-)", ""),
    (r"^Error parsing \S+: ", ""),  # the name of a dataclass
    (r"invalid literal for int\(\) with base 10: ", "expected a whole number, got "),
    (r"Could not find valid parse for arguments: \[(.*)\]", r"expected whole numbers, got \1"),
    (r"could not convert string to float: ", "expected a number, got "),
    (r" Expected 1 values\.", ""),
)


def parse(
    settings: type[Settings],
    words: Sequence[str],
    *,
    command: str,
    about: str | None = None,
    default: Settings | None = None,
) -> Settings:
    """Reads the options of a command.

    Args:
        settings: A dataclass; its fields are the options, what its docstring or the text below a
            field says of one is the help.
        words: The words of the command line behind the command.
        command: The command as the user types it.
        about: What `--help` says first; None takes the docstring of the dataclass.
        default: Values for the options that are not given; None takes those of the dataclass. Where
            a field may be one of several dataclasses, the default says which.

    Returns:
        The settings.

    Raises:
        ConfigError: An option does not exist or a value does not fit; one line says what would.
        SystemExit: `--help` was asked for and has been printed.
    """
    missing = list(missing_options(settings, words, default))
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            parsed: Settings
            parsed, left = tyro.cli(
                settings,
                args=[*words, *(f"{option}=x" for option in missing)],  # to hear of all else
                prog=command,
                description=about,
                default=MISSING if default is None else default,
                return_unknown_args=True,
                config=(tyro.conf.AvoidSubcommands,),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        said = "; ".join((sentence(complaint.getvalue()), *map(is_missing, missing)))
        raise ConfigError(said) from None
    wrong = [] if not left else [stray(left, settings, default)]
    if wrong or missing:
        said = "; ".join((*wrong, *map(is_missing, missing)))
        raise ConfigError(f"{said} ({command} --help)")
    return parsed


def stray(left: Sequence[str], settings: type, default: object = None) -> str:
    """What is wrong with words that belong to no option."""
    option = next((word.partition("=")[0] for word in left if word.startswith("-")), None)
    if option is None:
        is_switch = left[0].lower() in {"true", "false", "yes", "no", "on", "off"}
        words = "; a switch is --OPTION or --no-OPTION, without a word" if is_switch else ""
        return f"{left[0]!r} belongs to no option{words}"
    names = [*option_names(settings, default), "--help"]
    meant = ELSEWHERE.get(_last_part(option))
    if named := next((name for name in names if _last_part(name) == meant), None):
        return f"there is no option {option!r}; did you mean {named!r}?"
    if others := list(kinds_with(option, settings, default)):
        have = f"{' and '.join(others)} {'has' if len(others) == 1 else 'have'} it"
        return f"there is no option {option!r} here; {have}"
    return unknown("option", option, names, most=4)


def _last_part(option: str) -> str:
    return option.lstrip("-").rpartition(".")[2].replace("_", "-")


def missing_options(settings: type, words: Sequence[str], default: object = None) -> Iterator[str]:
    """The options that must be given and are not; those that take a word."""
    hints = get_type_hints(settings, include_extras=True)  # words in a place of their own are none
    given = {word.partition("=")[0] for word in words}
    for field in fields(settings):
        option = f"--{field.name.replace('_', '-')}"
        if default is None:
            needed = field.default is NO_DEFAULT and field.default_factory is NO_DEFAULT
        else:
            needed = getattr(default, field.name) is MISSING
        if needed and hints[field.name] in (str, Path) and option not in given:
            yield option


def is_missing(option: str) -> str:
    """Says so.

    >>> is_missing("--env")
    '--env is missing'
    """
    return f"{option} is missing"


def console() -> Console:
    """Where a command prints its tables: colours in a terminal, plain text in a file.

    A file or a pipe is as wide as COLUMNS says, or 80.
    """
    told = os.environ.get("COLUMNS", "").isdecimal()
    return Console(highlight=False, width=None if told or sys.stdout.isatty() else 80)


def value_of(option: str, words: Sequence[str]) -> str | None:
    """The value of an option before the others are read, None if it is not given.

    >>> value_of("--env", ["--seed", "1", "--env=CartPole-v1"])
    'CartPole-v1'
    """
    for word, following in zip(words, [*words[1:], None], strict=False):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following
    return None


def without(option: str, words: Sequence[str]) -> list[str]:
    """The words but for an option and its value.

    >>> without("--resume", ["dqn", "--resume", "runs/a", "--seed", "1"])
    ['dqn', '--seed', '1']
    """
    kept = []
    skip = False
    for word in words:
        if not skip and not word.startswith(f"{option}=") and word != option:
            kept.append(word)
        skip = word == option
    return kept


def option_names(settings: type, default: object = None, prefix: str = "--") -> Iterator[str]:
    """The options that a dataclass stands for, those of nested ones with their dotted prefix.

    Where a field may be one of several dataclasses, those of the one in `default`, or of all. A
    field with an annotation for tyro is no option but a word in its place.
    """
    hints = get_type_hints(settings, include_extras=True)
    for field in fields(settings):
        hint, name = hints[field.name], field.name.replace("_", "-")
        value = getattr(default, field.name, None)
        members = (kind for kind in (hint, *get_args(hint)) if isinstance(kind, type))
        kinds = [kind for kind in members if is_dataclass(kind)]
        if kinds:
            for kind in [type(value)] if is_dataclass(value) else kinds:
                yield from option_names(kind, value, f"{prefix}{name}.")
        elif get_origin(hint) is not Annotated:
            yield prefix + name


def kinds_with(option: str, settings: type, default: object) -> Iterator[str]:
    """Where a field is one of several dataclasses: those that have an option and are not taken.

    Called by their names without `Config`, and the option perhaps by its last part.
    """
    hints = get_type_hints(settings)
    for field in fields(settings):
        taken = type(getattr(default, field.name, None))
        kinds = [kind for kind in get_args(hints[field.name]) if isinstance(kind, type)]
        having = [
            kind
            for kind in kinds
            if is_dataclass(kind)
            for name in option_names(kind, None, f"--{field.name}.")
            if name == option or name.endswith(f".{option.lstrip('-')}")
        ]
        if taken in kinds and taken not in having:
            yield from (kind.__name__.removesuffix("Config").lower() for kind in having)


def sentence(box: str) -> str:
    """The words of a message that tyro has drawn in a box; what it adds below a line is left out.

    >>> sentence('''╭─ Value error ───────────────────────╮
    ... │ Error parsing --lr: could not convert │
    ... │ string to float: 'abc'                │
    ... │ ───────────────────────────────────── │
    ... │ Argument helptext:                    │
    ... ╰───────────────────────────────────────╯''')
    "--lr: expected a number, got 'abc'"
    """
    title, *lines = [line.strip("│ ") for line in COLOUR.sub("", box).splitlines() if line.strip()]
    if not title.startswith("╭"):
        lines = lines[1:]  # without Unicode a line is below the title
    text = " ".join(takewhile(lambda line: line.strip("─-") and line[0] != "╰", lines))
    if choice := CHOICE.fullmatch(text):
        given, option, names = choice.groups()
        return unknown(option, given, [name.strip("'\"") for name in names.split(", ")])
    if run := NO_RUN.fullmatch(text):
        return f"name a run{runs_in(RUNS)} ({run[1]} --help)"
    for pattern, better in WORDING:
        text = re.sub(pattern, better, text)
    text = ONE_OF.sub(lambda found: f"expected {any_of(found[1])}, got {found[2]}", text)
    return text + in_digits(text)


def any_of(kinds: str) -> str:
    """What may be given for an option of several kinds, from tyro's word for it.

    >>> any_of("{None}|INT|{auto}")
    'a whole number, auto or None'
    """
    words = [KINDS.get(kind, kind.strip("{}").replace(",", ", ")) for kind in kinds.split("|")]
    *others, last = sorted(words, key="None".__eq__)
    return f"{', '.join(others)} or {last}" if others else last


def in_digits(refusal: str) -> str:
    """How whole numbers are written that were given as a power of ten or with commas.

    >>> in_digits("--total-steps: expected a whole number, got '1e5'")
    ': write 100000'
    >>> in_digits("--agent.hidden: expected whole numbers, got '[64,64]'")
    ': write 64 64'
    """
    if (listed := LISTED.search(refusal)) is not None:
        return f": write {' '.join(re.findall(r'[0-9]+', listed[1]))}"
    given = POWER_OF_TEN.search(refusal)
    is_whole = given is not None and float(given[1]).is_integer()
    return f": write {float(given[1]):.0f}" if given and is_whole else ""
