"""What `auto` stands for, why, and that it is asked once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from relive.training import capture, choices, preset, resume, run, train
from relive.training.choices import Trial, settled
from relive.training.records import RunStarted
from tests.triton.pretended import pretended
from tests.triton.pretended.derivatives import stand_in_for_derivatives
from tests.unit.training.test_resume import Interrupt
from tests.unit.training.tiny import tiny

if TYPE_CHECKING:
    from pathlib import Path


def takes(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], flops: float = 1e9) -> None:
    """A step takes so long, by device or by threads."""
    monkeypatch.setattr(Trial, "flops", lambda _: flops)
    monkeypatch.setattr(Trial, "seconds", lambda _, device, __: seconds[device])


@pytest.mark.parametrize(
    ("flops", "cores", "threads"),
    [(1e6, 8, 1), (1.9e9, 8, 1), (2e9, 8, 2), (9e9, 8, 5), (9e9, 1, 1), (9e9, 2, 2), (1e12, 64, 8)],
)
def test_threads_follow_from_the_operations_of_an_update_and_the_cores(
    monkeypatch: pytest.MonkeyPatch, flops: float, cores: int, threads: int
) -> None:
    monkeypatch.setattr(Trial, "flops", lambda _: flops)
    monkeypatch.setattr(Trial, "seconds", pytest.fail)  # the clock has no say
    monkeypatch.setattr(choices.os, "sched_getaffinity", lambda _: range(cores), raising=False)
    config, why = settled(tiny(threads="auto"))
    assert config.threads == threads
    assert why["threads"].startswith(f"{threads}: ")


def test_more_threads_than_cores_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices.os, "sched_getaffinity", lambda _: range(2), raising=False)
    said = {threads: settled(tiny(threads=threads))[1] for threads in (2, 3)}
    assert "threads" not in said[2]
    assert said[3]["threads"].startswith("3, more than the 2 cores")


@pytest.mark.parametrize(
    ("recipe", "env"),
    [
        ("dqn", "CartPole-v1"),
        ("rainbow", "MinAtar/Breakout-v1"),
        ("td3", "Pendulum-v1"),
        ("sac", "Pendulum-v1"),
    ],
)
def test_the_operations_of_an_update_are_those_that_torch_counts(recipe: str, env: str) -> None:
    if env.startswith("MinAtar"):
        pytest.importorskip("minatar")
    config = preset(recipe, env)
    one = choices.make_training_env(env, 1, "cpu")
    trial = Trial(config, choices.fields_in(one), choices.actions_of(one, config.algorithm))
    agent, batch = trial._parts("cpu")
    with FlopCounterMode(display=False) as counter:
        agent.update(batch)
    # more by what a policy does not need of its critics
    assert 0.999 < trial.flops() / counter.get_total_flops() < 1.15


@pytest.mark.parametrize(
    ("here", "there", "free", "device", "buffer"),
    [
        (1.0, 0.2, 1 << 40, "cuda", "same"),
        (1.0, 0.2, 10_000, "cuda", "cpu"),
        (1.0, 3.0, 1 << 40, "cpu", "same"),
        (1.0, 0.95, 1 << 40, "cpu", "same"),
    ],
)
def test_the_device_is_the_faster_one_and_the_buffer_where_it_fits(
    monkeypatch: pytest.MonkeyPatch, here: float, there: float, free: int, device: str, buffer: str
) -> None:
    takes(monkeypatch, {"cpu": here, "cuda": there})
    with pretended() as gpu:
        gpu.free = free
        config, why = settled(tiny(device="auto", threads=1))
    assert (config.device, config.replay.device) == (device, buffer)
    assert f"ms a step {1e3 * here:.2f} on cpu, {1e3 * there:.2f} on cuda" in why["device"]
    assert ("replay.device" in why) == (buffer == "cpu")


def test_a_gpu_without_room_for_the_networks_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(_: Trial, device: str, __: int) -> float:
        if device == "cuda":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 1.0

    monkeypatch.setattr(Trial, "seconds", seconds)
    with pretended():
        config, why = settled(tiny(device="auto", threads=1))
    assert config.device == "cpu"
    assert "no memory" in why["device"]


def test_environments_of_tensor_code_are_for_the_gpu_where_there_is_one() -> None:
    with pretended():
        config, why = settled(tiny(env="torch/CartPole-v1", device="auto", threads=1))
    assert config.device == "cuda"
    assert "tensor code" in why["device"]


def test_what_is_said_is_not_chosen() -> None:
    config = tiny(device="cpu", threads=2)
    assert settled(config) == (config, {})


def test_without_cuda_it_is_the_cpu() -> None:
    config, why = settled(tiny(device="auto", threads=1))
    assert (config.device, why) == ("cpu", {"device": "cpu: there is no CUDA here"})


def test_trying_out_draws_from_no_stream() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 - the global one
    trial_of = choices.Trial
    config = tiny(threads="auto")
    assert settled(config).config.threads == 1
    env = choices.make_training_env(config.env, 1, "cpu")
    trial = trial_of(config, choices.fields_in(env), choices.actions_of(env, config.algorithm))
    assert 0 < trial.seconds("cpu", 1) < 10
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002 - the global one


@pytest.mark.parametrize(
    ("changed", "graphs"),
    [
        ({}, 2),  # an update, and one that moves the target network
        ({"capture": "off"}, 0),
        ({"replay": {"device": "cpu"}}, 0),
        ({"replay": {"prefetch": 2}}, 0),
    ],
)
def test_updates_are_timed_as_the_run_makes_them(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], graphs: int
) -> None:
    stand_in_for_derivatives(monkeypatch)
    monkeypatch.setattr(choices, "MOST_SECONDS", 0.0)
    made = []
    monkeypatch.setattr(
        capture, "new_graph", lambda: made.append(torch.cuda.CUDAGraph()) or made[-1]
    )
    config = tiny(threads=1, **changed)
    env = choices.make_training_env(config.env, 1, "cpu")
    fields, actions = choices.fields_in(env), choices.actions_of(env, config.algorithm)
    with pretended():
        assert Trial(config, fields, actions).seconds("cuda", 1) > 0
    assert len(made) == graphs


def test_what_cannot_be_captured_is_timed_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    stand_in_for_derivatives(monkeypatch)
    monkeypatch.setattr(choices, "MOST_SECONDS", 0.0)
    config = tiny(threads=1)
    env = choices.make_training_env(config.env, 1, "cpu")
    fields, actions = choices.fields_in(env), choices.actions_of(env, config.algorithm)
    with pretended():
        monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: refused())
        assert Trial(config, fields, actions).seconds("cuda", 1) > 0


def test_a_run_tells_its_choice_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    takes(monkeypatch, {}, flops=3e9)
    monkeypatch.setattr(choices.os, "sched_getaffinity", lambda _: range(2), raising=False)
    run(tiny(out=out, threads="auto", device="auto", eval_episodes=0), [Interrupt(150)])
    settings = json.loads((out / "config.json").read_text())
    assert (settings["threads"], settings["device"]) == (2, "cpu")
    first = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    assert first["chosen"].keys() == {"threads", "device"}
    takes(monkeypatch, {}, flops=1e6)
    resume(out)
    assert json.loads((out / "config.json").read_text()) == settings


def test_with_the_same_choice_records_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = tiny(threads=1, eval_episodes=0)
    chosen = tiny(threads="auto", eval_episodes=0)
    first, others = [list(train(config)) for config in (given, chosen)]
    assert isinstance(others[0], RunStarted)
    assert others[0].config == first[0].config
    assert [getattr(r, "loss", None) for r in first] == [getattr(r, "loss", None) for r in others]
