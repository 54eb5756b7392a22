"""A run whose GPU fails it ends with the numbers of one that was on the CPU from the start."""

from __future__ import annotations

import json
from contextlib import ExitStack, nullcontext
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
import torch
from rich.console import Console as Terminal

from relive import Field
from relive.agents import DQN
from relive.agents.policy import save_policy
from relive.errors import DeviceLostError, UnsupportedError
from relive.report.page import write_report
from relive.sampling.prefetch import Prefetch
from relive.training import resume, run
from relive.training.console import Console
from relive.training.failures import without_gpu
from relive.training.records import DeviceFailed
from relive.training.run import run_settings
from tests.triton.pretended import Device, pretended
from tests.triton.pretended.derivatives import stand_in_for_derivatives
from tests.triton.pretended.failures import dead, dead_device, failing_launch, no_more_memory
from tests.unit.training.test_resume import Interrupt, assert_same_run, told
from tests.unit.training.test_run import Listener
from tests.unit.training.tiny import tiny

if TYPE_CHECKING:
    from pathlib import Path

    from relive import Batch

SETTINGS = {"total_steps": 72, "learning_starts": 30, "eval_episodes": 0, "save_every": 40}


@pytest.fixture
def device() -> Device:
    with pretended() as there:
        yield there


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A run that was on the CPU all along."""
    run(tiny({"device": "cpu"}, out=tmp_path / "whole", **SETTINGS))
    return tmp_path / "whole"


def failures(out: Path) -> list[dict[str, Any]]:
    return [record for record in told(out) if record["record"] == "device_failed"]


def without_failures(out: Path) -> None:
    """Take its failures out of a run's records."""
    file = out / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["record"] != "device_failed"]
    file.write_text("".join(kept))


def at_update(number: int, happens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At an update of the agent, counted over all agents, something happens; once."""
    learn, made = DQN.learn, []

    def learn_then(self: DQN, batches: Any, due: bool) -> Any:
        made.append(1)
        if len(made) == number:
            happens()
        return learn(self, batches, due)

    monkeypatch.setattr(DQN, "learn", learn_then)


def test_a_buffer_that_fails_goes_on_on_the_cpu_and_the_run_says_so(
    device: Device, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, shown = tmp_path / "out", StringIO()
    with ExitStack() as stack:
        at_update(9, lambda: stack.enter_context(failing_launch()), monkeypatch)
        with pytest.warns(RuntimeWarning, match="is on the CPU from now on"):
            run(tiny({"device": "cuda"}, out=out, **SETTINGS), [Console(Terminal(file=shown))])
    (failed,) = failures(out)
    assert failed["part"] == "buffer"
    assert failed["outcome"].startswith("kept are ")
    assert "out of resource" in failed["reason"]
    assert "the GPU failed" in shown.getvalue()
    assert "GPU failed at step" in write_report(out).read_text()
    without_failures(out)
    assert_same_run(whole, out)


def test_a_buffer_that_does_not_fit_is_on_the_cpu_and_the_run_says_so(
    device: Device, whole: Path, tmp_path: Path
) -> None:
    device.free = 1000
    out = tmp_path / "out"
    with pytest.warns(RuntimeWarning, match="it held no rows yet"):
        run(tiny({"device": "cuda"}, out=out, **SETTINGS))
    assert [(failed["step"], failed["part"]) for failed in failures(out)] == [(0, "buffer")]
    without_failures(out)
    assert_same_run(whole, out)


def test_what_cannot_be_captured_where_it_has_to_be_is_an_error_and_no_run_on_the_cpu(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_for_derivatives(monkeypatch)
    at_update(4, lambda: torch.zeros(1, device="cuda").item(), monkeypatch)
    settings = {**SETTINGS, "device": "cuda", "capture": "on"}
    with pytest.raises(UnsupportedError, match="cannot be captured"):
        run(tiny({"device": "cuda"}, out=tmp_path / "out", **settings))
    assert failures(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("update", "outcome"),
    [(3, "there was no save yet, so the run starts over"), (12, "from its save at step 40")],
)
def test_a_gpu_that_dies_sends_the_run_back_to_its_last_save(
    device: Device,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    update: int,
    outcome: str,
) -> None:
    out, listener = tmp_path / "out", Listener()
    with ExitStack() as stack:

        def die() -> None:
            stack.enter_context(dead_device())
            raise dead()

        at_update(update, die, monkeypatch)
        result = run(tiny({"device": "cuda"}, out=out, **SETTINGS), [listener])
    assert not result.ended.interrupted
    (failed,) = failures(out)
    assert failed["part"] == "run"
    assert outcome in failed["outcome"]
    assert sum(isinstance(record, DeviceFailed) for record in listener.records) == 1
    without_failures(out)
    assert_same_run(whole, out)


@pytest.mark.parametrize("buffer", ["same", "cpu"])
def test_a_gpu_without_memory_for_batches_sends_the_run_back_to_its_last_save(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffer: str
) -> None:
    stand_in_for_derivatives(monkeypatch)
    settings = {**SETTINGS, "device": "cuda", "capture": "off"}
    draw, drawn = Prefetch._sample, []

    def draw_without_memory(batches: Prefetch) -> Batch:
        drawn.append(batches._device.type)
        with no_more_memory() if len(drawn) >= 12 else nullcontext():
            return draw(batches)

    monkeypatch.setattr(Prefetch, "_sample", draw_without_memory)
    leaves = pytest.warns(RuntimeWarning, match="is on the CPU from now on")
    with leaves if buffer == "same" else nullcontext():
        result = run(tiny({"device": buffer}, out=tmp_path / "out", **settings))
    assert (drawn.index("cpu"), drawn[-1]) == (12, "cpu")
    assert not result.ended.interrupted
    failed = failures(tmp_path / "out")[-1]
    assert (failed["part"], failed["step"]) == ("run", 40)
    assert "out of memory" in failed["reason"]


def test_a_policy_is_saved_where_its_gpu_has_no_memory_left(device: Device, tmp_path: Path) -> None:
    agents = [DQN(Field((2,)), 3, device=place, seed=1) for place in ("cuda", "cpu")]
    with no_more_memory():
        for agent in agents:
            save_policy(agent, tmp_path / agent.device.type)
    assert (tmp_path / "cuda").read_bytes() == (tmp_path / "cpu").read_bytes()


def test_a_run_that_was_sent_back_can_be_stopped_and_resumed(
    device: Device, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with ExitStack() as stack:

        def die() -> None:
            stack.enter_context(dead_device())
            raise dead()

        at_update(12, die, monkeypatch)
        assert run(tiny({"device": "cuda"}, out=out, **SETTINGS), [Interrupt(60)]).ended.interrupted
    on_cpu = without_gpu(run_settings(out))  # else it goes on where its settings say: on the GPU
    assert not resume(out, config=on_cpu).ended.interrupted
    without_failures(out)
    assert_same_run(whole, out)


def test_a_run_that_may_not_go_on_stops_with_the_error(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die() -> None:
        raise DeviceLostError("gone")

    at_update(5, die, monkeypatch)
    where = {"device": "cuda", "on_failure": "raise"}
    with pytest.raises(DeviceLostError, match="gone"):
        run(tiny(where, out=tmp_path / "a", **SETTINGS))
    at_update(5, die, monkeypatch)
    with pytest.raises(DeviceLostError, match="gone"):  # nothing of it is on a GPU
        run(tiny({"device": "cpu"}, out=tmp_path / "b", **SETTINGS))
