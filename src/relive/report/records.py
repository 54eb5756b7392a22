"""What a record looks like: lines of `metrics.jsonl` and settings, checked as they are read.

What is in a run directory may be of another version, cut off or wrong. Whoever gets a record from
here can rely on the types below; keys that are not listed are left as they are.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from relive.declared import is_whole
from relive.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Record = dict[str, Any]

LARGEST = 1e100  # what is larger is as good as infinite, and its square is
MOST_BRACKETS = 200


class Kind(NamedTuple):
    """A kind of value: its name in a sentence, and how it is told."""

    words: str
    fits: Callable[[Any], bool]


def is_count(value: Any) -> bool:
    """Whether a value is a whole number from 0 on that fits 63 bits."""
    return is_whole(value, 0, 2**63)


def is_number(value: Any) -> bool:
    """Whether a value is a number, or null, which stands for one that is not finite."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and abs(value) <= LARGEST)


def are_edges(value: Any) -> bool:
    """Whether a value is a list of positive numbers in ascending order, or null."""
    if value is None:
        return True
    if not isinstance(value, list) or not all(x is not None and is_number(x) for x in value):
        return False
    return all(0 < low < high for low, high in pairwise(value))


WHOLE = Kind("a whole number from 0 on", is_count)
NUMBER = Kind("a number or null", is_number)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
TEXT = Kind("a string", lambda value: isinstance(value, str))
NAME = Kind("a string, or null", lambda value: value is None or isinstance(value, str))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
NUMBERS = Kind(
    "a list of numbers", lambda value: isinstance(value, list) and all(map(is_number, value))
)
COUNTS = Kind(
    "a list of whole numbers, or null",
    lambda value: value is None or (isinstance(value, list) and all(map(is_count, value))),
)
EDGES = Kind("a list of ascending positive numbers, or null", are_edges)
VERSIONS = Kind(
    "an object of strings",
    lambda value: isinstance(value, dict) and all(isinstance(x, str) for x in value.values()),
)


def _finite(digits: str) -> float | None:
    """A number as written, None if it is not finite."""
    value = float(digits)
    return value if math.isfinite(value) and abs(value) <= LARGEST else None


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=lambda _: None)
SETTINGS = {
    "name": NAME,
    "algorithm": TEXT,
    "env": TEXT,
    "seed": WHOLE,
    "total_steps": WHOLE,
    "replay": OBJECT,
    "agent": OBJECT,
}
PROGRESS = (
    *("loss", "td_error", "q_mean", "grad_norm", "actor_loss", "temperature", "entropy"),
    *("epsilon", "beta", "fill"),
)
RECORDS: dict[str, dict[str, Kind]] = {
    "run_started": {"config": OBJECT, "versions": VERSIONS, "chosen": VERSIONS},
    "run_resumed": {
        "config": OBJECT,
        "versions": VERSIONS,
        "episodes": WHOLE,
        "changed": OBJECT,
        "last_returns": NUMBERS,
    },
    "demonstrations_loaded": {"episodes": WHOLE, "rows": WHOLE, "mean_return": NUMBER, "env": NAME},
    "device_failed": {"part": TEXT, "reason": TEXT, "outcome": TEXT},
    "episode_ended": {"episode_return": NUMBER, "length": WHOLE},
    "episodes_ended": {
        **dict.fromkeys(("episodes", "least_length", "largest_length"), WHOLE),
        **dict.fromkeys(("mean_return", "least_return", "largest_return", "mean_length"), NUMBER),
    },
    "training_progress": {
        **dict.fromkeys((*PROGRESS, "seconds", "steps_per_second"), NUMBER),
        "updates": WHOLE,
    },
    "evaluated": {"returns": NUMBERS, "mean": NUMBER, "std": NUMBER, "reference": NUMBER},
    "replay_measured": {
        "priority_edges": EDGES,
        "priority_counts": COUNTS,
        "age_counts": COUNTS,
        "reuse_counts": COUNTS,
        "stats": OBJECT,
    },
    "run_ended": {"updates": WHOLE, "seconds": NUMBER, "interrupted": FLAG, "error": NAME},
}
REQUIRED = {
    "episodes_ended": ("episodes", "mean_return"),
    "evaluated": ("returns", "mean", "std"),
    "device_failed": ("part", "reason", "outcome"),
}


def parse(text: str) -> Any:
    """JSON as Python values; numbers that are not finite become None, as where they are written.

    Raises:
        ValueError: The text is no JSON, or is nested like nothing that is written here.
    """
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        raise ValueError(f"more than {MOST_BRACKETS} lists and objects")
    value = DECODER.decode(text)
    if "\\u" in text:  # half a character cannot be written anywhere
        whole = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        value = json.loads(whole.decode())
    return value


def parse_record(line: str) -> Record:
    """A line as a record, its fields not yet checked.

    Raises:
        ValueError: It is none: no JSON object with the keys "record" and "step".
    """
    record = parse(line)
    if not isinstance(record, dict) or not isinstance(record.get("record"), str):
        raise ValueError("no record")
    if not is_count(record.get("step")):
        raise ValueError("no step")
    return record


def check_settings(file: Path, config: Any) -> Record:
    """The settings of a run, if that is what they are.

    Raises:
        InputError: No JSON object, or a setting of a wrong type.
    """
    if not isinstance(config, dict):
        raise InputError(f"{file} should hold a JSON object, got {type(config).__name__}")
    check_fields(str(file), config, SETTINGS)
    return config


def check_record(record: Record) -> None:
    """Check the fields of a record, as `parse_record` gives it; an unknown kind is left alone.

    Raises:
        InputError: A field has a wrong type, or one that must be there is missing.
    """
    kind = record["record"]
    if missing := [name for name in REQUIRED.get(kind, ()) if name not in record]:
        raise InputError(f"{kind} has no {', '.join(missing)}")
    check_fields(kind, record, RECORDS.get(kind, {}))
    if kind in ("run_started", "run_resumed"):
        check_fields("config", record.get("config", {}), SETTINGS)
    counts, edges = record.get("priority_counts"), record.get("priority_edges")
    if kind == "replay_measured" and counts and len(edges or ()) != len(counts) + 1:
        raise InputError(f"{kind} has {len(counts)} bins and {len(edges or ())} edges")


def check_fields(where: str, given: Record, kinds: dict[str, Kind]) -> None:
    """Raise InputError unless what is given has the kind that it should have."""
    for name, kind in kinds.items():
        if name in given and not kind.fits(given[name]):
            got = repr(given[name])
            shown = got if len(got) <= 60 else got[:60] + "…"
            raise InputError(f"{where}: {name} should be {kind.words}, got {shown}")


class Lines:
    """From lines to records, one after the other.

    A run that was killed leaves a last line that is cut off: it is left out and counted. Any other
    line that is no record is refused.

    Args:
        file: Named in messages.

    Attributes:
        torn: Lines left out so far.
    """

    def __init__(self, file: Path) -> None:
        self.torn = 0
        self._file = file
        self._number = 0
        self._broken: tuple[int, str] | None = None

    def records(self, lines: Iterable[str]) -> Iterable[Record]:
        """The records that the next lines hold.

        Raises:
            InputError: A line is no record, or a record with a field of a wrong type.
        """
        for line in lines:
            self._number += 1
            record = self._record(line)
            if record is not None:
                try:
                    check_record(record)
                except InputError as error:
                    raise InputError(f"{self._file}, line {self._number}: {error}") from None
                yield record

    def _record(self, line: str) -> Record | None:
        if self._broken is not None:
            number, broken = self._broken
            raise InputError(
                f"{self._file}, line {number} is no record: expected a JSON object with the keys "
                f'"record" and "step", got {broken[:60]!r}; remove the line to read the rest'
            )
        try:
            return parse_record(line)
        except (ValueError, RecursionError):
            self._broken = self._number, line
            self.torn += 1
            return None
