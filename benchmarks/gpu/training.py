"""Whole steps of training: captured, called one by one, and with the buffer in host memory."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu.clock import microseconds, synchronize
from benchmarks.gpu.flow import busy
from benchmarks.gpu.workload import TINY, Scale
from relive.agents.kinds import CONFIGS
from relive.envs import make_torch_env
from relive.gpu.means import MetricMeans
from relive.training import ReplayConfig, TrainConfig, Trainer, build, preset
from relive.training.rollout import rollout_of
from relive.training.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.agents.kinds import Algorithm

ENVS: dict[Algorithm, str] = {
    "dqn": "torch/CartPole-v1",
    "td3": "torch/Pendulum-v1",
    "sac": "torch/Pendulum-v1",
}
WAYS: dict[str, dict[str, Any]] = {
    "captured": {"capture": "auto"},
    "eager": {"capture": "off"},
    "host buffer": {"capture": "off", "buffer": "cpu"},
}
EVALUATED = 20  # greedy episodes
TARGET_MOVES = 8  # calls with a burst of updates from one move of a target network to the next
BEHIND = (8, 64, 512)  # pieces of work that keep the device behind, more if it comes to an end
CAPTURED_AFTER = 3  # times that work of a kind is done until it is a graph


def loop_of(
    algorithm: Algorithm,
    device: torch.device,
    scale: Scale,
    *,
    envs: int = 1,
    updates: int = 1,
    batch: int | None = None,
    capture: Any = "auto",
    buffer: Any = "same",
    **settings: Any,
) -> Callable[[], None]:
    """A step of all environments and so many updates; the buffer has rows enough.

    Args:
        algorithm: Which agent, with the settings it has by default.
        device: Of the agent.
        scale: How large the buffer is.
        envs: Environments.
        updates: A step.
        batch: Rows of one; `scale.batch` unless given.
        capture: As in `TrainConfig`.
        buffer: Its device.
        settings: Of the agent that are not by default.
    """
    size = scale.batch if batch is None else batch
    config = TrainConfig(
        env=ENVS[algorithm],
        num_envs=envs,
        device=device.type,  # type: ignore[arg-type]
        capture=capture,
        updates_per_graph=max(1, updates),
        replay=ReplayConfig(
            capacity=max(scale.rows, envs), batch_size=min(size, scale.rows), device=buffer
        ),
        agent=CONFIGS[algorithm](**settings),
    )
    parts = build(config)
    rollout, means = rollout_of(parts), MetricMeans()
    batches = parts.buffer.batches(config.replay.batch_size, device=parts.agent.device)
    made = Updates(config, parts.buffer, parts.agent, batches, means)
    rollout.begin()
    rollout.explore(0.05)
    while not parts.buffer.ready(config.replay.batch_size):
        rollout.step()
    return lambda: made.make(updates, rollout.step)


def training_step(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Updates a second, one update to a step of one environment, and what lies between steps."""
    found: dict[str, Any] = {}
    few = replace(scale, rounds=min(scale.rounds, 5), warm_up=max(scale.warm_up, 10))
    for algorithm in ENVS:
        rates = {
            way: 1e6 / microseconds(loop_of(algorithm, device, scale, **how), device, few)["median"]
            for way, how in WAYS.items()
        }
        rates["of eager"] = rates["captured"] / rates["eager"]
        rates["of host buffer"] = rates["captured"] / rates["host buffer"]
        rates["gap"] = gap(loop_of(algorithm, device, scale), device, few)
        found[algorithm] = rates
    return found


def epochs(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Seconds of an epoch: as many steps as it takes batches to have the rows of the buffer."""
    steps = max(1, scale.rows // scale.batch)
    found: dict[str, Any] = {"steps": steps}
    for algorithm in ENVS:
        found[algorithm] = {
            way: epoch(loop_of(algorithm, device, scale, **WAYS[way]), device, steps)
            for way in ("captured", "eager")
        }
    return found


def epoch(step: Callable[[], None], device: torch.device, steps: int) -> float:
    """Seconds of so many steps, from the first call to the last result."""
    for _ in range(8):  # captured by then, updates of every kind
        step()
    synchronize(device)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize(device)
    return time.perf_counter() - began


def gap(step: Callable[[], None], device: torch.device, scale: Scale) -> float:
    """Time for which the device waits between two steps, of that of a step.

    A step follows the one before as fast as its host can launch it; what it takes alone is measured
    where the device is behind, and has the next step before it needs it.
    """
    for _ in range(scale.warm_up):
        step()
    from_step_to_step = microseconds(step, device, scale)["median"]
    return from_step_to_step / alone(step, device, scale) - 1.0


def alone(step: Callable[[], None], device: torch.device, scale: Scale) -> float:
    """Microseconds from the beginning of a step on the device to its end."""
    on_gpu = device.type == "cuda"

    def mark() -> Any:
        if not on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    for times in BEHIND:
        synchronize(device)
        for _ in range(times):
            busy(device, scale)
        behind = mark()
        marks = [(mark(), step(), mark()) for _ in range(scale.calls)]
        if not on_gpu or not behind.query():  # else the device had come to the end of it
            break
    synchronize(device)
    if on_gpu:
        return 1e3 * median(first.elapsed_time(last) for first, _, last in marks)
    return 1e6 * median(last - first for first, _, last in marks)


def many_environments(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Environment steps a second, with thousands of environments."""
    envs = max(scale.envs)
    few = replace(scale, rounds=min(scale.rounds, 3), calls=min(scale.calls, 20))
    burst = max(1, envs // 64)
    moves = TARGET_MOVES * burst  # the same place of every burst, so two graphs are all
    ratios = {
        "an update every 64 steps": {"updates": burst, "target_period": moves},
        "an update a step of all": {"updates": 1, "batch": max(8, envs // 64)},
        "none": {"updates": 0},
    }
    found: dict[str, Any] = {"environments": envs, "steps_per_s": {}}
    for name, how in ratios.items():
        step = loop_of("dqn", device, scale, envs=envs, **how)
        for _ in range(CAPTURED_AFTER * TARGET_MOVES):
            step()
        found["steps_per_s"][name] = 1e6 * envs / microseconds(step, device, few)["median"]
    return found


def learned(device: torch.device, scale: Scale) -> dict[str, Any]:
    """The preset of DQN on CartPole: its mean greedy return, and the wall time of its training."""
    config = preset("dqn", "torch/CartPole-v1")
    config = replace(config, device=device.type, threads=1, eval_episodes=0)  # type: ignore[arg-type]
    if scale is TINY:
        config = replace(config, total_steps=2048)
    parts = build(config)
    began = time.perf_counter()
    steps = sum(1 for _ in Trainer(config, parts).records()) and config.total_steps
    synchronize(device)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "steps": steps, "return": greedy_return(parts.agent, device)}


def greedy_return(agent: Any, device: torch.device) -> float:
    """Mean return of the first episode of some copies, without exploration."""
    env = make_torch_env("CartPole-v1", EVALUATED, device=device, seed=10_000_019)
    obs, _ = env.reset(seed=10_000_019)
    total, runs = torch.zeros(EVALUATED, device=device), torch.ones(EVALUATED, device=device)
    for _ in range(env.task.time_limit):
        obs, reward, terminated, truncated, _ = env.step(agent.explore(obs, 0.0))
        total += reward * runs
        runs *= ~(terminated | truncated)
    return float(total.mean())


TRAINING: dict[str, Callable[[torch.device, Scale], dict[str, Any]]] = {
    "training step": training_step,
    "many environments": many_environments,
    "learned": learned,
    "epoch": epochs,
}
