"""What to say when a word does not exist."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

REQUIRED: Any = object()
"""Default of an argument that must be given, where Python's own words would not say what to do."""
LIKE = 0.6  # from here on a word may be meant
STEP = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "final_obs", "discount")


def unknown(kind: str, word: str, known: Iterable[str], *, most: int = 6) -> str:
    """One sentence: what does not exist, and what does, the closest first.

    >>> unknown("command", "trian", ["eval", "train", "plan"])
    "there is no command 'trian'; did you mean 'train'? There are: train, plan, eval"
    >>> unknown("sampler", "x", ["uniform", "proportional"])
    "there is no sampler 'x'; there are: proportional, uniform"
    """
    words = ranked(word, known)
    shown = ", ".join(words[:most]) + (f" and {len(words) - most} more" if words[most:] else "")
    if words and likeness(word, words[0]) >= LIKE:
        return f"there is no {kind} {word!r}; did you mean {words[0]!r}? There are: {shown}"
    return f"there is no {kind} {word!r}; there are: {shown}"


def ranked(word: str, known: Iterable[str]) -> list[str]:
    """The known words, the one most like `word` first."""
    return sorted(known, key=lambda name: (-likeness(word, name), name))


def likeness(word: str, name: str) -> float:
    """How much a word is like a name, from 0 to 1; a name may be meant by its last part.

    >>> likeness("--lr", "--agent.lr") > likeness("--lr", "--learning-starts")
    True
    """
    word, name = word.lower(), name.lower()
    last = name.rpartition(".")[2]
    parts = (SequenceMatcher(None, word, name), SequenceMatcher(None, word.lstrip("-"), last))
    return max(parts[0].ratio(), 0.95 * parts[1].ratio())


def wrong_names(whose: str, own: Collection[str], given: Collection[str], **ends: object) -> str:
    """One sentence on the names that a step was given beside those that every step has.

    Args:
        whose: The fields are: "this buffer's".
        own: The names of those fields.
        given: The names that are there.
        ends: What says that an episode ended; `REQUIRED` where it was left out.

    >>> wrong_names("this buffer's", [], ["rewrad"])
    "this buffer's own fields are []; unknown: ['rewrad']; did you mean 'reward'?"
    >>> wrong_names("this buffer's", [], [], terminated=True, truncated=REQUIRED)
    "missing: ['truncated']"
    """
    lacking, strange = sorted({*own} - {*given}), sorted({*given} - {*own})
    left_out = [name for name, value in ends.items() if value is REQUIRED]
    done = [word for word in ("done", "dones") if word in strange]
    guessed = [word for word in strange if word not in (*done, *STEP)]
    nearest = {word: ranked(word, [*STEP, *own])[0] for word in guessed}
    meant = [repr(name) for word, name in nearest.items() if likeness(word, name) >= LIKE]
    parts = [
        (lacking or strange) and f"{whose} own fields are {sorted(own)}",
        (left_out or lacking) and f"missing: {[*left_out, *lacking]}",
        strange and f"unknown: {strange}",
        meant and f"did you mean {' and '.join(meant)}?",
        done and f"{done[0]} is either terminated or truncated: say which (see Gymnasium's step)",
    ]
    return "; ".join(part for part in parts if part)
