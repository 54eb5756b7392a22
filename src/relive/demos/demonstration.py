"""One episode of a file, and what its formats leave open.

T  steps of the episode
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from relive.errors import ConfigError, CorruptError, InputError, MissingExtraError, ReliveError

if TYPE_CHECKING:
    from collections.abc import Iterator

LastStep = Literal["drop", "repeat"]
DoneMeans = Literal["terminated", "truncated"]

# What libraries raise for a file that is not what it says.
DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, MemoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a file does not say, see `read`.

    Raises:
        ConfigError: A word that is none of the choices.
    """

    keys: frozenset[str] | None = None
    last_step: LastStep | None = None
    done_means: DoneMeans | None = None

    def __post_init__(self) -> None:
        for name, choices in (
            ("last_step", ("drop", "repeat")),
            ("done_means", ("terminated", "truncated")),
        ):
            given = getattr(self, name)
            if given is not None and given not in choices:
                raise ConfigError(f"{name} is {' or '.join(choices)}, or None; given {given!r}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demonstration:
    """One episode, of a file say: NumPy arrays with a leading axis T, and what is known of it.

    Attributes:
        name: Of the episode in its file.
        obs, next_obs: `[T, *shape]`, or dicts of such; `next_obs` is the true one.
        action: `[T, *shape]`.
        reward: `[T]`.
        terminated, truncated: bool `[T]`.
        episode_return: Sum of all its rewards, also of steps left out, in float64.
        success: Whether the file calls it a success; None if it says nothing.
        dropped: Steps at its end that were left out (`last_step="drop"`).
        seed: Of its reset, if that is known.
        env: Id of the environment it was recorded in, if the file tells.
    """

    name: str
    obs: Any
    action: Any
    reward: NDArray[Any]
    next_obs: Any = field(repr=False)
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    episode_return: float
    success: bool | None = None
    dropped: int = 0
    seed: int | None = None
    env: str | None = None

    @property
    def length(self) -> int:
        """Steps, T."""
        return len(self.reward)

    @property
    def ended(self) -> str:
        """How: "terminated", "truncated", or "unfinished" where the file does not say."""
        if self.length and self.terminated[-1]:
            return "terminated"
        return "truncated" if self.length and self.truncated[-1] else "unfinished"

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        success = "" if self.success is None else f", {'' if self.success else 'no '}success"
        return (
            f"Demonstration({self.name}: {self.length} steps, return {self.episode_return:g}, "
            f"{self.ended}{success})"
        )


def demonstration(
    name: str,
    *,
    obs: Any,
    action: Any,
    reward: NDArray[Any],
    terminated: NDArray[Any],
    truncated: NDArray[Any],
    next_obs: Any = None,
    last_step: LastStep | None = None,
    success: bool | None = None,
    seed: int | None = None,
    env: str | None = None,
) -> Demonstration:
    """An episode from what a file has of it.

    Args:
        name: Of the episode in its file.
        obs: `[T + 1, *shape]`, with the last observation; or `[T, *shape]`, and then either
            `next_obs` is given, or nothing says what came after the last step.
        next_obs: As `obs`, with T.
        action, reward, terminated, truncated: `[T, ...]`.
        last_step: What to do with a last step that did not terminate and of which nothing says what
            came next. One that terminated is kept: its next observation counts in no target.
        success, seed, env: As in `Demonstration`.

    Raises:
        CorruptError: Lengths that differ, or flags that are not finite.
        InputError: It must be said what to do with the last step.
    """
    steps = len(reward)
    ended, cut_off = flags(terminated, "terminated"), flags(truncated, "truncated")
    with np.errstate(invalid="ignore"):  # of infinities there may be no sum; it is NaN then
        total = float(np.sum(reward, dtype=np.float64))
    whole = {"actions": action, "terminated": ended, "truncated": cut_off}
    if next_obs is None and lengths(obs) == {steps + 1}:
        obs, next_obs = part(obs, 0, steps), part(obs, 1, steps + 1)
    whole |= {"observations": obs} | ({} if next_obs is None else {"next observations": next_obs})
    wrong = [f"{what} {sorted(n)}" for what, v in whole.items() if (n := lengths(v)) != {steps}]
    if np.ndim(reward) != 1 or ended.ndim != 1 or cut_off.ndim != 1:
        raise CorruptError("rewards and flags are one number a step, given more")
    if wrong:
        raise CorruptError(f"{steps} rewards, but {', '.join(wrong)}")
    keep = steps
    if next_obs is None:
        if steps and not ended[-1]:
            if last_step is None:
                raise InputError(
                    "nothing says what was observed after its last step: say last_step='drop' to "
                    "leave that step out, or 'repeat' to take its own observation for the next"
                )
            keep = steps - (last_step == "drop")
        later = np.minimum(np.arange(1, steps + 1), steps - 1)
        next_obs = each(obs, lambda values: values[later])
    return Demonstration(
        name=name,
        obs=part(obs, 0, keep),
        action=part(action, 0, keep),
        reward=reward[:keep],
        next_obs=part(next_obs, 0, keep),
        terminated=ended[:keep],
        truncated=cut_off[:keep],
        episode_return=total,
        success=success,
        dropped=steps - keep,
        seed=seed,
        env=env,
    )


def flags(values: NDArray[Any], name: str) -> NDArray[np.bool_]:
    """Flags as bools, whatever numbers a file has for them: all but 0 are true.

    Raises:
        CorruptError: NaN or an infinity, which NumPy takes for true.
    """
    values = np.asarray(values)
    if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
        step = int(np.argwhere(~np.atleast_1d(finite))[0][0])
        raise CorruptError(
            f"{name} of step {step} is {values[~finite].flat[0]:g}, neither true nor false; mend "
            "the file"
        )
    return values.astype(bool)


def ends_of(
    done: NDArray[Any] | None, steps: int, name: str, means: DoneMeans | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Terminated and truncated, from flags that do not tell one from the other.

    Args:
        done: `[T]`, or None where there are none.
        steps: T.
        name: Of the flags in the file.
        means: What they mean.

    Raises:
        InputError: That must be said.
        CorruptError: Flags that are not finite.
    """
    never = np.zeros(steps, bool)
    if done is None:
        if means is not None:
            raise InputError(f"done_means={means!r}, but there is no {name}; leave it out")
        return never, never
    given = flags(done, name)
    if means is None and given.any():
        raise InputError(
            f"{name} does not tell termination from truncation: say done_means='terminated' if "
            "nothing is to be gained after it, or 'truncated' if the episode was only cut off"
        )
    return (given, never) if means == "terminated" else (never, given)


def part(values: Any, start: int, stop: int) -> Any:
    """Some of the steps of a field, views where arrays are."""
    return each(values, lambda array: array[start:stop])


def wanted(keys: frozenset[str] | None, dotted: str) -> bool:
    """Whether an observation, or a group of them, is among the dotted names to read."""
    return keys is None or any(key == dotted or key.startswith(f"{dotted}.") for key in keys)


def lengths(values: Any) -> set[int]:
    """Lengths of the arrays of a field; those that have none count as -1."""
    if isinstance(values, dict):
        return set().union(*map(lengths, values.values()))
    return {len(values) if np.ndim(values) else -1}


def each(values: Any, change: Any) -> Any:
    """A field with every array of it changed."""
    if isinstance(values, dict):
        return {key: each(entry, change) for key, entry in values.items()}
    return change(values)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Says of which file or episode an error is; errors of libraries become `CorruptError`."""
    try:
        yield
    except MissingExtraError:
        raise
    except ReliveError as error:
        raise type(error)(f"{what}: {error}") from None
    except DAMAGE as error:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise CorruptError(f"{what} is damaged, or not whole: {said}") from None
