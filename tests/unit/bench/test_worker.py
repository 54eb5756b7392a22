"""The worker: what it answers, and that nothing is timed that was not right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from relive.bench.worker import Operation, Worker, answer, calls_in, module, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.bench.rows import Task

TASK = {"capacity": 50, "obs_shape": [3], "obs_dtype": "float32", "action_shape": [1]}
SAMPLE = {"kind": "sample", "rows": 4}


class Side:
    """Keeps rows in arrays; `error` is added to what it reads back."""

    PACKAGES = ("numpy",)
    SAMPLERS = ("uniform",)
    error = 0.0
    calls = 0

    def setup(self, task: Task, _sampler: str) -> None:
        self.rows = task.rows(0, task.capacity)

    def close(self) -> None:
        self.rows = {}

    def sample(self, operation: Operation) -> Callable[[], Any]:
        def call() -> Any:
            self.calls += 1
            drawn = np.arange(operation.rows)
            return {name: values[drawn] for name, values in self.rows.items()}

        return call

    def read_sample(self, batch: Any) -> Any:
        return {**batch, "obs": batch["obs"] + self.error}


def asked(side: Any, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers of a worker."""
    worker: Worker | None = Worker(side)
    answers = []
    for request in requests:
        worker, reply = answer("fake", worker, dict(request))
        answers.append(reply)
    return answers


SETUP = {"do": "setup", "task": TASK, "sampler": "uniform"}


def test_an_operation_is_checked_then_timed() -> None:
    side = Side()
    opened, setup, check, time = asked(
        side,
        {"do": "open"},
        SETUP,
        {"do": "check", "operation": SAMPLE},
        {"do": "time", "operation": SAMPLE, "seconds": 0.002},
    )
    assert opened == {"versions": {"numpy": np.__version__}}
    assert setup == check == {}
    assert time["calls"] > 1
    assert time["cpu"] > 0
    assert time["wall"] > 0
    assert side.calls > time["calls"]


def test_what_is_wrong_is_not_timed() -> None:
    side = Side()
    side.error = 1.0
    _, check, time = asked(
        side,
        SETUP,
        {"do": "check", "operation": SAMPLE},
        {"do": "time", "operation": SAMPLE, "seconds": 0.002},
    )
    assert check == {"error": "ValueError: obs of the batch is not what was written"}
    assert "error" in time


def test_a_sampler_or_an_operation_that_a_side_lacks_is_skipped() -> None:
    answers = asked(
        Side(),
        {**SETUP, "sampler": "per"},
        SETUP,
        {"do": "check", "operation": {"kind": "update", "rows": 4}},
    )
    assert answers == [{"skip": "draws uniform only"}, {}, {"skip": "cannot update"}]


def test_a_library_that_is_missing_is_an_answer() -> None:
    worker, reply = answer("no_such_side", None, {"do": "open"})
    assert worker is None
    assert reply["error"].startswith("FileNotFoundError")


def test_as_many_calls_as_fill_the_time() -> None:
    calls: list[int] = []
    count = calls_in(lambda: calls.append(sum(range(1000))), 0.01)
    cpu, _ = run(lambda: calls.append(sum(range(1000))), count)
    assert 0.002 < cpu < 0.05


# Our own side finds faults that a look at shapes would not.


@pytest.fixture
def ours() -> Any:
    side = module("sides/relive").Side()
    side.setup(module("rows").Task(**TASK), "per")
    return side


@pytest.mark.parametrize(
    "kind", ["add", "add_envs", "sample", "sample_out", "update", "step", "step_out"]
)
def test_our_operations_agree_with_their_definition(ours: Any, kind: str) -> None:
    operation = Operation(kind, 16, "16 envs" if kind == "add_envs" else "buffer")
    call = getattr(ours, kind)(operation)
    call()
    ours.verify(operation, call)


def test_weights_of_another_normaliser_are_found(ours: Any) -> None:
    ours.buffers["batch"] = ours.buffers["buffer"]
    operation = Operation("sample", 4, "batch")
    with pytest.raises(ValueError, match="weights differ"):
        ours.verify(operation, ours.sample(operation))


def test_an_update_that_does_nothing_is_found(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(ours.buffers["buffer"]), "update_priorities", lambda *_: None)
    with pytest.raises(ValueError, match="priorities differ"):
        ours.verify(Operation("update", 4, "buffer"), lambda: None)


def test_an_add_that_writes_nothing_is_found(ours: Any) -> None:
    with pytest.raises(ValueError, match="ids of new rows differ"):
        ours.verify(Operation("add", 1, "buffer"), lambda: None)


def test_a_batch_that_was_changed_is_found(ours: Any) -> None:
    operation = Operation("sample", 4, "buffer")
    sample = ours.sample(operation)

    def call() -> Any:
        batch = sample()
        batch.action[3] += 1
        return batch

    with pytest.raises(ValueError, match="action differ"):
        ours.verify(operation, call)
