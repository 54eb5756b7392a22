"""What `auto` stands for: a device and a number of threads, chosen once and kept with the run.

Small networks are not worth a GPU, nor a second thread: what has to be started, and waited for,
costs more than it computes. Threads follow from the operations of an update. Beside a GPU steps are
timed, by an agent of its own that draws from no stream of the run: with the same choice the run is
the same.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from relive.agents.kinds import new_agent
from relive.buffer import ReplayBuffer
from relive.devices import known_device
from relive.envs.make import fields_in, make_training_env
from relive.envs.torch_native.make import torch_id
from relive.errors import UnsupportedError
from relive.gpu.failures import spares_the_device
from relive.storage.memory import free_memory, plan
from relive.training.algorithms import actions_of
from relive.training.capture import Graphs
from relive.training.config import require_settings
from relive.training.runtime import cpu_settings
from relive.training.updates import why_not

if TYPE_CHECKING:
    from relive.agents.agent import Agent
    from relive.batch import Batch
    from relive.fields import Fields
    from relive.training.config import TrainConfig

FLOPS_PER_THREAD = 2e9  # of an update; below that a second thread waits more than it computes
MOST_THREADS = 8
MOST_SECONDS = 0.3  # of one measurement, behind the first steps
UPDATES = 1000  # of which some do more than others, as when a target network moves
MARGIN = 0.9  # a GPU has to be so much faster
ROOM = 0.8  # of what is free on a GPU a buffer may have; networks and batches need some too


class Choice(NamedTuple):
    """Settings with nothing left to choose.

    Attributes:
        config: The settings.
        why: What was chosen, name to words.
    """

    config: TrainConfig
    why: dict[str, str]


def settled(config: TrainConfig) -> Choice:
    """Choose the device and the threads where the settings leave them open.

    Raises:
        ConfigError: An environment that does not exist, or that the agent cannot act in.
        InputError: They are no settings.
    """
    require_settings(config)
    why: dict[str, str] = {}
    if isinstance(config.threads, int) and config.threads > (cores := _cores()):
        why["threads"] = f"{config.threads}, more than the {cores} cores: they wait for each other"
    if config.threads != "auto" and (config.device != "auto" or not torch.cuda.is_available()):
        return Choice(*_device(config, None, why))
    env = make_training_env(config.env, 1, "cpu")
    try:
        trial = Trial(config, fields_in(env), actions_of(env, config.algorithm))
    finally:
        env.close()
    if config.threads == "auto":
        threads, why["threads"] = _threads(trial)
        config = trial.config = dataclasses.replace(config, threads=threads)
    return Choice(*_device(config, trial, why))


class Trial:
    """Steps of an agent like that of a run, on rows of zeros.

    Args:
        config: Settings of the run.
        fields: Of a row.
        actions: Of the environment.
    """

    def __init__(self, config: TrainConfig, fields: Fields, actions: Any) -> None:
        self.config, self.fields, self._actions = config, fields, actions

    def flops(self) -> int:
        """Of one update, in products and their sums."""
        agent, batch = self._parts("cpu")
        products = _Products()
        with products:
            agent.update(batch)
        return products.flops

    def seconds(self, device: str, threads: int | None) -> float:
        """A step of the environment, its share of acting and of updates, on a device."""
        config = self.config
        with cpu_settings(threads):
            agent, batch = self._parts(device)
            obs = _zeros(self.fields["obs"], config.num_envs)
            acting = _fastest(lambda: agent.act(obs, 0.0), device)
            updating = self._updating(agent, batch, device)
        updates = config.updates_per_train * config.accumulate / config.train_every
        return acting / config.num_envs + updates * updating

    def _updating(self, agent: Agent, batch: Batch, device: str) -> float:
        """An update, those that do more by their share; from graphs where the run has graphs."""
        rows = self.config.replay.device
        rows_on = agent.device if rows == "same" else known_device(rows)
        is_called = why_not(self.config, agent.device, rows_on) is not None
        graphs = Graphs(agent.generators, most=0 if is_called else 2)
        shares = Counter(map(agent.due, range(1, UPDATES + 1)))

        def update(due: bool) -> None:
            try:
                graphs.run(due, lambda: agent.learn([batch], due))
            except UnsupportedError:  # and is called from now on
                agent.learn([batch], due)

        times = (count * _fastest(partial(update, due), device) for due, count in shares.items())
        return sum(times) / UPDATES

    def _parts(self, device: str) -> tuple[Agent, Batch]:
        config, size = self.config, self.config.replay.batch_size
        seed = np.random.SeedSequence(0)  # not of the run
        planned = config.planned_updates
        agent = new_agent(
            config.agent,
            self.fields["obs"],
            self._actions,
            planned_updates=planned,
            device=torch.device(device),
            seed=seed,
        )
        batch = ReplayBuffer(1, self.fields).empty_batch(size)
        batch._arena.zero_()
        return agent, batch.to(device)


class _Products(TorchFunctionMode):
    """Counts the operations of products of matrices, backwards included.

    torch's own counter does so too, and takes two seconds to import.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops: int = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Does what is asked, and counts."""
        result = func(*args, **(kwargs or {}))
        terms = 0  # that each number of the result is the sum of
        if func is functional.linear:
            terms = args[0].shape[-1]
        elif func in {torch.baddbmm, torch.addmm}:
            terms = args[1].shape[-1]
        elif func in {torch.bmm, torch.mm}:
            terms = args[0].shape[-1]
        elif func in {functional.conv2d, torch.conv2d}:
            terms = args[1][0].numel()
        if terms:  # and again on the way back, for the inputs and for the weights
            ways = 3 if result.requires_grad else 1
            self.flops += 2 * terms * result.numel() * ways
        return result


def _threads(trial: Trial) -> tuple[int, str]:
    """How many, and why: by what there is to compute, not by the clock."""
    flops = trial.flops()
    cores = _cores()
    threads = min(1 + int(flops / FLOPS_PER_THREAD), cores, MOST_THREADS)
    words = f"{threads}: an update has {flops / 1e6:,.0f} million operations"
    return threads, f"{words}, and there are {cores} cores" if threads > 1 else words


def _cores() -> int:
    """Those that this process may use."""
    can_ask = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if can_ask else os.cpu_count() or 1


def _device(
    config: TrainConfig, trial: Trial | None, why: dict[str, str]
) -> tuple[TrainConfig, dict[str, str]]:
    """Where the networks live, and the buffer where it does not fit there."""
    if config.device != "auto":
        return config, why
    if trial is None or not torch.cuda.is_available():
        return dataclasses.replace(config, device="cpu"), {
            **why,
            "device": "cpu: there is no CUDA here",
        }
    device, words = _faster(config, trial)
    why = {**why, "device": f"{device}: {words}"}
    config = dataclasses.replace(config, device=device)
    if device == "cpu":
        return config, why
    if config.replay.device == "same" and (words := _too_large(config, trial.fields)):
        replay = dataclasses.replace(config.replay, device="cpu", rows_on="device")
        config = dataclasses.replace(config, replay=replay)
        why["replay.device"] = f"cpu: {words}"
    return config, why


def _faster(config: TrainConfig, trial: Trial) -> tuple[Literal["cpu", "cuda"], str]:
    """The device on which a step is faster, and why."""
    if torch_id(config.env) is not None and config.capture != "off":
        return "cuda", "the environments are tensor code, and whole steps are captured there"
    threads = None if config.threads == "auto" else config.threads
    here = trial.seconds("cpu", threads)
    try:
        there = trial.seconds("cuda", threads)
    except RuntimeError as error:
        if not spares_the_device(error):
            raise
        return "cpu", "there is no memory for the networks on the GPU"
    told = f"ms a step {1e3 * here:.2f} on cpu, {1e3 * there:.2f} on cuda"
    return ("cpu" if there > MARGIN * here else "cuda"), told


def _too_large(config: TrainConfig, fields: Fields) -> str:
    """Why the buffer is not for the GPU; nothing if it is."""
    replay = config.replay
    needed = plan(
        replay.capacity,
        replay.build_fields(fields),
        sampler=replay.build_sampler(1),
        num_envs=config.num_envs,
        n_step=replay.n_step,
        batch_size=replay.batch_size,
        track_reuse=True,
        device="cuda",
        rows_on=replay.rows_on,
    ).on_device
    free = free_memory("cuda")
    if free is None or needed <= ROOM * free:
        return ""
    return f"it needs {needed / 1e9:.2f} GB, {free / 1e9:.2f} GB are free on the GPU"


def _fastest(step: Any, device: str) -> float:
    """Seconds of a step, the shortest of some, behind a few that warm up."""
    for _ in range(3):
        step()
    _finish(device)
    times: list[float] = []
    while len(times) < 3 or (sum(times) < MOST_SECONDS and len(times) < 50):
        began = time.perf_counter()
        step()
        _finish(device)
        times.append(time.perf_counter() - began)
    return min(times)


def _finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _zeros(field: Any, count: int) -> Any:
    """Observations of so many environments, of a field or a dict of fields."""
    if isinstance(field, dict):
        return {name: _zeros(part, count) for name, part in field.items()}
    return torch.zeros(count, *field.shape, dtype=field.dtype).numpy()
