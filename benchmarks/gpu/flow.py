"""Checks of what goes between host and device, and between streams: nothing early, nothing twice.

`busy` keeps a device at work, so that it is behind its host and whatever came too early would show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu.checks import CPU, SMALL
from benchmarks.gpu.clock import captured, synchronize
from benchmarks.gpu.same import require, require_same_batch, require_same_state, require_same_stats
from benchmarks.gpu.workload import PER, UNIFORM, W1, Scale, errors, full, one_time
from relive import ReplayBuffer

if TYPE_CHECKING:
    from collections.abc import Callable


def busy(device: torch.device, scale: Scale) -> None:
    """Some milliseconds of work for the current stream of a GPU."""
    if device.type == "cuda":
        matrix = torch.ones(scale.busy, scale.busy, device=device)
        for _ in range(10):
            matrix = matrix @ matrix


def arrays_used_again(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Arrays of the host may be overwritten as soon as a call that was given them returns."""
    envs = max(scale.envs)
    settings: dict[str, Any] = {"num_envs": envs, "autoreset": "next_step", "sampler": PER}
    capacity = envs * (scale.flow + 2)
    ours, cpu = (ReplayBuffer(capacity, W1, device=d, **settings) for d in (device, CPU))
    host = {name: value.numpy() for name, value in one_time(W1, 0, envs, CPU).items()}
    for number in range(scale.flow):
        step = one_time(W1, envs * number, envs, CPU)
        cpu.add(**step)
        if number % 10 == 0:
            busy(device, scale)
        for name, value in step.items():
            host[name][...] = value.numpy()
        ours.add(**host)
    for values in host.values():
        values[...] = 1
    require_same_state(ours, cpu)
    return {"steps": scale.flow, "envs": envs}


def streams_take_turns(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Calls from three streams, none of which waits for another, are those of one."""
    capacity = min(SMALL, scale.rows)
    ours, cpu = (full(W1, capacity, PER, d) for d in (device, CPU))
    streams = [torch.cuda.Stream(device) for _ in range(3)]
    values = errors(scale.batch, CPU)
    moved, row = errors(scale.batch, device), one_time(W1, 5, 1, device)
    synchronize(device)
    drawn = []
    for number in range(scale.flow):
        batch = cpu.sample(scale.batch)
        cpu.update_priorities(batch.ids, values)
        cpu.add(**one_time(W1, 5, 1, CPU))
        with torch.cuda.stream(streams[0]):
            if number % 10 == 0:
                busy(device, scale)
            own = ours.sample(scale.batch)
        streams[1].wait_stream(streams[0])  # for the ids, which are the caller's
        with torch.cuda.stream(streams[1]):
            ours.update_priorities(own.ids, moved)
        with torch.cuda.stream(streams[2]):
            ours.add(**row)
        drawn.append((own, batch))
    synchronize(device)
    for own, batch in drawn:
        require_same_batch(own, batch)
    require_same_state(ours, cpu)
    return {"steps": scale.flow, "streams": len(streams)}


def stats_arrive(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Statistics are read while steps go on: no wait, never more than there was, all at the end."""
    capacity = min(SMALL, scale.rows)
    ours, cpu = (full(W1, capacity, PER, d) for d in (device, CPU))
    row, own_row = one_time(W1, 5, 1, CPU), one_time(W1, 5, 1, device)
    added = []
    for number in range(scale.flow):
        cpu.add(**row)
        if number % 10 == 0:
            busy(device, scale)
        ours.add(**own_row)
        added.append(ours.stats()["added"])
        require(added[-1] <= capacity + number + 1, "stats tell of a step that was not made yet")
    require(added == sorted(added), "stats went back")
    require_same_stats(ours.stats(wait=True), cpu.stats(wait=True))
    return {"steps": scale.flow, "behind_at_most": capacity + scale.flow - added[-1]}


def batches_from_ram(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Batches of a buffer in RAM arrive on the device as they were drawn, ahead of time or not."""
    capacity = min(SMALL, scale.rows)
    here, sent, ahead = (full(W1, capacity, UNIFORM, CPU) for _ in range(3))
    batches = ahead.batches(scale.batch, ahead=2, device=device)
    pairs = []
    for number in range(scale.flow):
        if number % 10 == 0:
            busy(device, scale)
        pairs.append(
            (here.sample(scale.batch), sent.sample(scale.batch, device=device), next(batches))
        )
    for wanted, own, early in pairs:
        require_same_batch(own, wanted)
        require_same_batch(early, wanted)
        require(own.device.type == early.device.type == device.type, "a batch is elsewhere")
    return {"batches": scale.flow}


def range_moves(device: torch.device, scale: Scale) -> dict[str, Any]:
    """A captured `sample_range` reads its range anew in every replay."""
    capacity = min(SMALL, scale.rows)
    ours, cpu = (full(W1, capacity, PER, d) for d in (device, CPU))
    start, stop = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))
    stop.fill_(capacity)
    out = ours.empty_batch(scale.batch)
    graph = captured(lambda: ours.sample_range(scale.batch, start, stop, out=out), scale)
    for _ in range(scale.warm_up):
        cpu.sample_range(scale.batch, 0, capacity)
    for first in (capacity // 2, capacity // 4):
        start.fill_(first)
        stop.fill_(first + 5)
        graph.replay()
        synchronize(device)
        require_same_batch(out, cpu.sample_range(scale.batch, first, first + 5))
    return {"replays": 2}


FLOW: dict[str, Callable[[torch.device, Scale], dict[str, Any]]] = {
    "arrays used again": arrays_used_again,
    "streams take turns": streams_take_turns,
    "stats arrive": stats_arrive,
    "batches from RAM": batches_from_ram,
    "a range moves": range_moves,
}
