"""What to say when a word does not exist."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LIKE = 0.6  # from here on a word may be meant


def unknown(kind: str, word: str, known: Iterable[str], *, most: int = 6) -> str:
    """One sentence: what does not exist, and what does; of too many those that are closest.

    >>> unknown("command", "trian", ["eval", "train", "plan"])
    "there is no command 'trian'; did you mean 'train'? There are: eval, train, plan"
    >>> unknown("command", "trian", ["eval", "train", "plan"], most=2)
    "there is no command 'trian'; did you mean 'train'? There are: train, plan and 1 more"
    """
    known = list(known)
    words = ranked(word, known)
    listed = known if len(known) <= most else words[:most]
    shown = ", ".join(listed) + (f" and {len(words) - most} more" if words[most:] else "")
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
