"""Whatever is given to whatever: a typed error and nothing has changed, or it is fine.

A call is one whose arguments are right, but for one or two of them. What is accepted, because
it is right too, changes the buffer for the calls that follow.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import Mixture, Proportional, ReliveError, ReplayBuffer, TrajectoryStore
from relive.ops import words as w
from tests.fuzz.bad_values import (
    DTYPES,
    NEVER_MADE,
    TENSOR_FORMS,
    TENSOR_TYPES,
    altered,
    anything,
    one,
    possible_forms,
    zeros,
)
from tests.fuzz.entries import (
    MAKERS,
    PLAIN,
    of_buffer,
    of_mixture,
    of_store,
    of_the_package,
    steps,
)
from tests.unit.unchanged import unchanged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fuzz.entries import Entry

CALLS_OF_A_BUFFER = 200  # then a new one is made
SHORT, LONG = 1_200, 26_000  # for each maker, the mixture and the package


def spoilt(rng: np.random.Generator, arguments: dict[str, Any]) -> dict[str, Any]:
    """One or two arguments are replaced, left out or added."""
    found = dict(arguments)
    for _ in range(int(rng.integers(1, 3))):
        name = one(rng, sorted(arguments))
        if name in found and isinstance(found[name], int) and rng.random() < 0.2:
            found[name] = -1
        elif rng.random() < 0.5:
            found[name] = altered(rng, arguments[name])
        else:
            found[name] = anything(rng)
    return found


def outcome(entry: Entry, arguments: dict[str, Any]) -> str:
    """`accepted`, or the name of the typed error; anything else is a fault, told with its call."""
    name, function, _ = entry
    try:
        function(**arguments)
    except ReliveError as error:
        return type(error).__name__
    except OSError:
        if name not in ("save", "load", "saved_note", "TrajectoryStore"):
            raise
        return "OSError"
    except Exception as error:
        given = {key: short(value) for key, value in arguments.items()}
        raise AssertionError(f"{name}({given}): {type(error).__name__}: {error}") from error
    return "accepted"


def short(value: Any) -> str:
    kind = f"{type(value).__name__} {getattr(value, 'dtype', '')}"
    with suppress(Exception):  # of some things nothing can be shown
        return f"{kind} {value!r}"[:200]
    return kind


def play(maker: Any, folder: Path, calls: int, seed: int) -> Counter[str]:
    """Spoilt calls of buffers; those that were refused have changed nothing."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    for number in range(calls):
        if number % CALLS_OF_A_BUFFER == 0:
            buffer: ReplayBuffer = maker()
        if number % 10 == 0:  # right ones
            for name, function, arguments in of_buffer(buffer, rng, folder)[:6]:
                if name in ("add", "extend"):
                    function(**arguments)
        entry = one(rng, of_buffer(buffer, rng, folder))
        arguments = spoilt(rng, entry[2])
        with refused_means_unchanged(buffer) as note:
            note.append(outcome(entry, arguments))
        found[note[0]] += 1
        buffer.check()
    return found


class refused_means_unchanged:  # noqa: N801 - a context manager
    """The state has not changed, unless the note says that the call was accepted."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._unchanged = unchanged(buffer)
        self._note: list[str] = []

    def __enter__(self) -> list[str]:
        self._unchanged.__enter__()
        return self._note

    def __exit__(self, *exception: object) -> None:
        if self._note != ["accepted"]:
            self._unchanged.__exit__(None, None, None)


CALLS = [pytest.param(SHORT, id="some"), pytest.param(LONG, id="many", marks=pytest.mark.long)]


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_a_buffer_refuses_what_it_cannot_take(maker: Any, calls: int, tmp_path: Path) -> None:
    found = play(maker, tmp_path, calls, seed=calls)
    assert found.keys() >= {"accepted", "InputError", "ConfigError", "UnsupportedError"}
    assert sum(found.values()) - found["accepted"] > calls / 2


@pytest.mark.parametrize("calls", CALLS)
def test_a_constructor_refuses_what_it_cannot_take(calls: int) -> None:
    rng = np.random.default_rng(calls)
    entries = of_the_package()
    found: Counter[str] = Counter()
    for _ in range(calls):
        entry = one(rng, entries)
        found[outcome(entry, spoilt(rng, entry[2]))] += 1
    assert found["ConfigError"] > calls / 2


@pytest.mark.parametrize("calls", CALLS)
def test_a_mixture_refuses_what_it_cannot_take(calls: int) -> None:
    rng = np.random.default_rng(calls)
    buffers = [ReplayBuffer(8, PLAIN), ReplayBuffer(8, PLAIN, sampler=Proportional())]
    for buffer in buffers:
        buffer.extend(**steps(buffer, 5))
    mixture = Mixture(buffers, [1.0, 2.0])
    found: Counter[str] = Counter()
    for _ in range(calls):
        entry = one(rng, of_mixture(mixture, rng))
        with refused_means_unchanged(buffers[0]) as note:
            note.append(outcome(entry, spoilt(rng, entry[2])))
        found[note[0]] += 1
    for buffer in buffers:
        buffer.check()
    assert found["InputError"] > calls / 4


@pytest.mark.parametrize("calls", CALLS)
def test_a_store_of_episodes_refuses_what_it_cannot_take(calls: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(calls)
    buffer = ReplayBuffer(8, PLAIN)
    found: Counter[str] = Counter()
    with TrajectoryStore(tmp_path / "store", PLAIN) as store:
        store.append(**steps(buffer, 3))
        for _ in range(calls):
            entry = one(rng, of_store(store, buffer))
            before = store.num_steps
            with refused_means_unchanged(buffer) as note:
                note.append(outcome(entry, spoilt(rng, entry[2])))
            if note != ["accepted"]:
                assert store.num_steps == before
            found[note[0]] += 1
        store.check()
    buffer.check()
    assert found["InputError"] > calls / 4


COUNTED = [w.UPDATED_ROWS, w.BAD_PRIORITIES, w.STALE_UPDATES]


@pytest.mark.parametrize("kernels", ["cpu", "reference"])
@pytest.mark.parametrize("kind", ["td_errors", "priorities"])
def test_bad_and_late_priorities_move_their_counters_and_nothing_else(
    kernels: str, kind: str
) -> None:
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(8, PLAIN, sampler=Proportional(), kernels=kernels)
    buffer.extend(**steps(buffer, 20))  # 12 of them are gone
    buffer.update_priorities(range(12, 20), rng.normal(size=8))
    bad = [np.nan, np.inf, -np.inf] if kind == "td_errors" else [np.nan, np.inf, -1.0, -np.inf]
    for _ in range(300):
        late = rng.random(6) < 0.5
        ids = np.where(late, rng.integers(0, 12, 6), rng.integers(12, 20, 6))
        values = np.where(late, rng.normal(size=6) ** 2, rng.choice(bad, 6))
        before = buffer._state.words[COUNTED].tolist()
        with unchanged(buffer, but=COUNTED):
            buffer.update_priorities(ids, **{kind: values})
        moved = [a - b for a, b in zip(buffer._state.words[COUNTED].tolist(), before, strict=True)]
        assert moved == [6, 6 - late.sum(), late.sum()]


ORDINARY = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLE = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def test_tensors_are_really_given_in_every_form() -> None:
    for dtype in ORDINARY:
        assert set(possible_forms(dtype)) == set(TENSOR_FORMS)
    for dtype in WHOLE:
        assert set(possible_forms(dtype)) == {*TENSOR_FORMS} - {"with gradients"}
    for dtype in TENSOR_TYPES:
        assert {"as it is", "expanded"} <= set(possible_forms(dtype)), dtype
        assert zeros((2, 3), dtype).dtype == dtype
    assert set(DTYPES) - set(TENSOR_TYPES) == NEVER_MADE
