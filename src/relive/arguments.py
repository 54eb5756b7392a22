"""What to say of the names that a step was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive.closest import LIKE, likeness, ranked

if TYPE_CHECKING:
    from collections.abc import Collection


STEP = ("obs", "action", "reward", "next_obs")


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()
"""Default of an argument that must be given, where Python's own words would not say what to do."""


def wrong_names(
    whose: str, own: Collection[str], given: Collection[str], *usual: str, **ends: object
) -> str:
    """One sentence on the names that a step was given beside those that every step has.

    Args:
        whose: The fields are: "this buffer's".
        own: The names of those fields.
        given: The names that are there.
        usual: What else this call takes.
        ends: What says that an episode ended; `REQUIRED` where it was left out.

    >>> wrong_names("this buffer's", [], ["rewrad"])
    "this buffer's own fields are []; unknown: ['rewrad']; did you mean 'reward'?"
    >>> wrong_names("this buffer's", [], [], terminated=True, truncated=REQUIRED)
    "missing: ['truncated']"
    """
    lacking, strange = sorted({*own} - {*given}), sorted({*given} - {*own})
    left_out = [name for name, value in ends.items() if value is REQUIRED]
    done = [word for word in ("done", "dones") if word in strange]
    known = [*STEP, *usual, *ends, *own]
    nearest = {word: ranked(word, known)[0] for word in strange if word not in done}
    meant = [repr(name) for word, name in nearest.items() if LIKE <= likeness(word, name) < 1]
    parts = [
        (lacking or strange) and f"{whose} own fields are {sorted(own)}",
        (left_out or lacking) and f"missing: {[*left_out, *lacking]}",
        strange and f"unknown: {strange}",
        meant and f"did you mean {' and '.join(meant)}?",
        done and f"{done[0]} is either terminated or truncated: say which (see Gymnasium's step)",
    ]
    return "; ".join(part for part in parts if part)
