"""What each call of a buffer on a GPU may do: every row of the table in `docs/cuda.md`, as it says.

Where only the host is looked at, kernels need not run: the device lags and is never waited for.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from relive import ReplayBuffer, TrajectoryStore, UnsupportedError
from relive.ops.state import State
from tests.equivalence.states import comparable, same_bits
from tests.public_methods import is_executable, is_public
from tests.triton.pretended import pretended
from tests.triton.table import (
    HOST_KNOWS,
    KINDS,
    NO,
    OWN_GRAPH,
    REFUSED,
    TABLE,
    YES,
    Given,
)

PAGE = Path(__file__).parents[3] / "docs" / "cuda.md"
FULL = {"uniform", "many lanes", "sweeps", "ranks"}  # kinds for which every row is done
WITH_A_TEE = "`add`, `extend` of device tensors, with a `tee`"


@pytest.fixture
def device():
    with pretended() as there_is:
        yield there_is


@pytest.fixture
def filled(device, kind, tmp_path):
    """A buffer that has rows, and what its calls need."""
    given = Given(kind, tmp_path)
    given.fill()
    with TrajectoryStore(tmp_path / "episodes", given.buffer._home.layout.fields) as given.store:
        yield given
        given.buffer.tee(None)


def rows_of_page():
    """First cell of each row of the table in the docs, and its next two."""
    lines = PAGE.read_text(encoding="utf-8").split("| call | the host waits |", 1)[1].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines[2:]]
    return {row[0]: (row[1], row[2]) for row in rows[: rows.index([""])]}


def test_the_page_says_what_is_tested():
    expected = {name: (row.waits, row.graph) for name, row in TABLE.items()}
    assert rows_of_page() == {**expected, WITH_A_TEE: (YES, REFUSED)}


def test_every_public_method_is_in_the_table():
    known = {
        name
        for name, member in vars(ReplayBuffer).items()
        if is_public(name) and is_executable(member)
    }
    named = set(re.findall(r"`(\w+)", " ".join(rows_of_page())))
    assert named ^ known == {"ReplayBuffer", "len", "__len__", "ahead", "device"} - {"device"}


def here(device, buffer):
    """The state as the device has it, but for addresses; copies."""
    state = {name: device.inner(t).clone() for name, t in buffer._state.tensors().items()}
    return comparable(State(**state))


@contextmanager
def nothing_changes(device, buffer):
    """Neither on the device nor in what the host knows."""

    def known():
        intake = buffer._home.intake
        return intake.rows, intake.next_id, dict(buffer._state.workspace).get("updates")

    before, knew = here(device, buffer), known()
    yield
    assert known() == knew
    after = here(device, buffer)
    for name, tensor in before.items():
        assert same_bits(after[name], tensor), name


def rows(buffer, *, waits=None, graph=None):
    """Name and calls of the rows that a buffer has, with these words in the table."""
    for name, row in TABLE.items():
        if row.suits(buffer) and waits in (None, row.waits) and graph in (None, row.graph):
            yield name, row.calls


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_table_says_no_the_host_does_not_wait(device, kind):
    device.lag = True
    used = Given(kind)
    chosen = [(*row, used.anew()) for row in rows(used.buffer, waits=NO)]
    for name, calls, new in chosen:  # the first call of all, too
        del device.waits[:]
        for way, call in calls.items():
            call(new)
            call(used)
            assert device.waits == [], (name, way)


@pytest.mark.parametrize("kind", sorted(FULL))
def test_where_it_says_yes_the_host_does_wait(device, filled):
    for name, calls in rows(filled.buffer, waits=YES):
        for way, call in calls.items():
            del device.waits[:]
            call(filled)
            assert device.waits != [], (name, way)


@pytest.mark.parametrize("kind", sorted(FULL | {"same step", "rows on the host"}))
def test_what_is_refused_in_a_capture_has_changed_nothing(device, filled):
    with nothing_changes(device, filled.buffer):
        for name, calls in rows(filled.buffer, graph=REFUSED):
            for way, call in calls.items():
                with device.capture() as graph:
                    with pytest.raises(UnsupportedError, match="captured"):
                        call(filled)
                    assert graph.works == [], (name, way)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_call_of_a_buffer_can_be_captured_where_the_table_says_yes(device, kind):
    device.lag = True
    given = Given(kind)
    for words in (YES, OWN_GRAPH, HOST_KNOWS):
        for name, calls in rows(given.buffer, graph=words):
            new = given.anew()
            for way, call in calls.items():
                with device.capture() as graph:
                    call(new)
                does_nothing = words == HOST_KNOWS or name == "`empty_batch`"
                assert (graph.works == []) is does_nothing, (name, way)


@pytest.mark.parametrize("kind", ["uniform"])
def test_with_a_tee_tensors_of_the_device_go_through_the_host(device, filled):
    filled.buffer.tee(filled.store)
    for write, values in (("add", filled.step_there), ("extend", filled.times_there)):
        call = getattr(filled.buffer, write)
        with nothing_changes(device, filled.buffer), device.capture() as graph:
            with pytest.raises(UnsupportedError, match="captured"):
                call(**values)
            assert graph.works == []
        del device.waits[:]
        call(**values)
        assert device.waits != []
