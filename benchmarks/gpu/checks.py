"""What must hold before anything is measured: each check raises, or returns what it looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.gpu.clock import captured, synchronize
from benchmarks.gpu.distribution import chi_square, kolmogorov_smirnov, spread
from benchmarks.gpu.workload import PER, UNIFORM, W1, Scale, errors, full, steps
from relive import Batch, Proportional, RankBased, Recent, ReplayBuffer

if TYPE_CHECKING:
    from collections.abc import Callable


FALSE_ALARM = 1e-4  # of each test of a distribution
ROWS_JUDGED = 100  # of the buffer whose frequencies are counted
SMALL = 5000  # rows of the buffers with every other setting
LIVES: dict[str, dict[str, Any]] = {
    "proportional": {"sampler": PER},
    "proportional, n = 3, 4 environments": {
        "sampler": Proportional(normalize="batch", new_priority="max_current"),
        "num_envs": 4,
        "n_step": 3,
        "autoreset": "next_step",
    },
    "ranks": {"sampler": RankBased(resort_every=7)},
    "newest rows": {"sampler": PER, "window": Recent(c_min=64, updates=50)},
    "demonstrations": {"sampler": PER, "pinned": 1000},
    "uniform, reuse tracked": {"sampler": UNIFORM, "track_reuse": True},
}


def same_as_cpu(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Ids, rows, weights and priorities of a large ring are those of the CPU, bit for bit."""
    ours, cpu = (full(W1, scale.rows, PER, d, chunk=scale.chunk) for d in (device, CPU))
    draws = 0
    for number in range(10):
        batches = [buffer.sample(scale.batch) for buffer in (ours, cpu)]
        require_same_batch(*batches)
        draws += scale.batch
        for buffer, batch in zip((ours, cpu), batches, strict=True):
            seed = 1000 + number
            buffer.update_priorities(batch.ids, errors(scale.batch, buffer.device, seed))
            buffer.extend(**steps(W1, scale.rows + 50 * number, 50, buffer.device))
    require_same_state(ours, cpu)
    return {"rows": scale.rows, "draws": draws}


def lives_like_cpu(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Buffers with every kind of setting go through the same life on both."""
    for name, settings in LIVES.items():
        settings = dict(settings)
        pinned = min(settings.pop("pinned", 0), scale.rows // 3)
        capacity = min(SMALL, scale.rows)
        ours, cpu = (ReplayBuffer(capacity, W1, device=d, **settings) for d in (device, CPU))
        for buffer in (ours, cpu):
            if pinned:
                buffer.extend(**steps(W1, 0, pinned, buffer.device))
                buffer.pin_demonstrations(pinned)
            live(buffer, scale)
        try:
            require_same_state(ours, cpu)
            require_same_batch(ours.sample(scale.batch), cpu.sample(scale.batch))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    return {"settings": len(LIVES), "steps": scale.steps}


def live(buffer: ReplayBuffer, scale: Scale) -> None:
    """Steps, batches and updates; a function of the settings alone."""
    envs = buffer.num_envs
    for number in range(scale.steps):
        step = steps(W1, envs * number, envs, buffer.device)
        step["truncated"] = step["terminated"] & False
        buffer.add(**step)
        if number % 10 == 0:
            buffer.extend(**steps(W1, 17 * number, 40, buffer.device))
        batch = buffer.sample(scale.batch)
        if buffer.prioritized:
            buffer.update_priorities(batch.ids, errors(scale.batch, buffer.device, seed=number))


def graph_goes_on(device: torch.device, scale: Scale) -> dict[str, Any]:
    """A captured step draws other rows each time, those that calls one by one would draw."""
    ours, twin = (full(W1, min(SMALL, scale.rows), PER, device) for _ in range(2))
    batch, values = ours.empty_batch(scale.batch), errors(scale.batch, device)
    step = one_step(ours, batch, values, device)
    graph = captured(step)  # which makes some steps, and captures one that does not run
    follow = one_step(twin, twin.empty_batch(scale.batch), values, device)
    for _ in range(3):
        follow()
    drawn = []
    for _ in range(2):
        graph.replay()
        synchronize(device)
        drawn.append(batch.ids.clone())
        require(torch.equal(drawn[-1], follow().ids), "a replay drew other rows than a call")
    require(not torch.equal(*drawn), "two replays drew the same rows")
    require_same_state(ours, twin)
    return {"replays": len(drawn)}


def nothing_waits(device: torch.device, scale: Scale) -> dict[str, Any]:
    """No call of a step waits for the device, with data on either side."""
    buffer = full(W1, min(SMALL, scale.rows), PER, device)
    batch, values = buffer.empty_batch(scale.batch), errors(scale.batch, device)
    step = one_step(buffer, batch, values, device)
    host = {name: value[0].numpy() for name, value in steps(W1, 7, 1, CPU).items()}
    host["truncated"] = np.False_

    def all_calls() -> None:
        step()
        buffer.add(**host)
        buffer.sample(scale.batch)
        buffer.ready(scale.batch)

    all_calls()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            all_calls()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"steps": 20}


def one_step(
    buffer: ReplayBuffer, batch: Batch, values: torch.Tensor, device: torch.device
) -> Callable[[], Batch]:
    """Add a row, draw a batch, update its priorities."""
    row = steps(W1, 11, 1, device)
    row["truncated"] = row["terminated"] & False

    def step() -> Batch:
        buffer.add(**row)
        buffer.sample(len(batch), out=batch)
        buffer.update_priorities(batch.ids, values)
        return batch

    return step


def draws_follow_priorities(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Frequencies by the chi-square test, places in the mass by that of Kolmogorov and Smirnov."""
    sampler = Proportional(alpha=1.0, stratified=False)
    buffer = full(W1, ROWS_JUDGED, sampler, device)
    leaves = buffer.priorities(buffer.live_ids()).double().cpu().numpy()
    probabilities = leaves / leaves.sum()
    count = -(-scale.draws // scale.batch)
    ids = torch.cat([buffer.sample(scale.batch).ids.clone() for _ in range(count)]).cpu().numpy()
    drawn = np.bincount(ids, minlength=ROWS_JUDGED)
    p_values = {
        "chi_square": chi_square(drawn, len(ids) * probabilities),
        "kolmogorov_smirnov": kolmogorov_smirnov(
            spread(ids, probabilities, np.random.default_rng(0))
        ),
    }
    for name, p_value in p_values.items():
        require(p_value > FALSE_ALARM, f"{name}: p = {p_value:.2g}, less than {FALSE_ALARM}")
    return {"draws": len(ids), "p": p_values}


CPU = torch.device("cpu")


def require_same_batch(ours: Batch, cpu: Batch) -> None:
    """Every field has the same bits."""
    for name in cpu.keys():  # noqa: SIM118 - a batch is no dict
        require_same_bits(f"{name} of a batch", ours[name], cpu[name])


def require_same_state(ours: ReplayBuffer, cpu: ReplayBuffer) -> None:
    """Rows, priorities and counters are the same."""
    ids = cpu.live_ids()
    require_same_bits("ids", ours.live_ids(), ids)
    require_same_batch(ours.all(), cpu.all())
    if cpu.prioritized:
        theirs = cpu.priorities(ids)
        require_same_bits("priorities", ours.priorities(ours.live_ids()), theirs)
    mine, wanted = ours.stats(), cpu.stats()
    differ = [name for name in wanted if mine.get(name) != wanted[name]]
    require(not differ, f"stats differ: {[(n, mine.get(n), wanted[n]) for n in differ]}")


def require_same_bits(what: str, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal, NaN to NaN too."""
    a, b = (x.cpu().contiguous().view(torch.uint8) for x in (ours, theirs))
    require(torch.equal(a, b), f"{what} differ")


def require(condition: bool, complaint: str) -> None:
    """Raise AssertionError unless it holds, however Python was started."""
    if not condition:
        raise AssertionError(complaint)


CHECKS: dict[str, Callable[[torch.device, Scale], dict[str, Any]]] = {
    "same as the CPU": same_as_cpu,
    "a life like the CPU's": lives_like_cpu,
    "a captured step goes on": graph_goes_on,
    "nothing waits": nothing_waits,
    "draws follow priorities": draws_follow_priorities,
}
NEED_CUDA = {"a captured step goes on", "nothing waits"}
