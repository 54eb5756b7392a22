"""What must hold before anything is measured: each check raises, or returns what it looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.gpu.clock import captured, synchronize
from benchmarks.gpu.distribution import chi_square, kolmogorov_smirnov, spread
from benchmarks.gpu.same import require, require_same_batch, require_same_bits, require_same_state
from benchmarks.gpu.workload import PER, STATES, UNIFORM, W1, Scale, errors, full, one_time, steps
from relive import Batch, Proportional, RankBased, Recent, ReplayBuffer

if TYPE_CHECKING:
    from collections.abc import Callable


FALSE_ALARM = 1e-4  # of each test of a distribution
ROWS_JUDGED = 100  # of the buffer whose frequencies are counted
SMALL = 5000  # rows of the buffers with every other setting
CPU = torch.device("cpu")
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
    "rows on the host": {"sampler": PER, "rows_on": "host"},
}


def same_as_cpu(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Ids, rows, weights and priorities of a large ring are those of the CPU, bit for bit."""
    ours, cpu = (full(W1, scale.rows, PER, d, chunk=scale.chunk) for d in (device, CPU))
    rounds = 10 if scale.lives > 10 else 2
    for number in range(rounds):
        batches = [buffer.sample(scale.batch) for buffer in (ours, cpu)]
        require_same_batch(*batches)
        for buffer, batch in zip((ours, cpu), batches, strict=True):
            seed = 1000 + number
            buffer.update_priorities(batch.ids, errors(scale.batch, buffer.device, seed))
            buffer.extend(**steps(W1, scale.rows + 50 * number, 50, buffer.device))
    require_same_state(ours, cpu)
    return {"rows": scale.rows, "draws": rounds * scale.batch}


def lives_like_cpu(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Buffers with every kind of setting go through the same life on both."""
    capacity = min(SMALL, scale.rows)
    for name, settings in LIVES.items():
        pinned = min(settings.get("pinned", 0), scale.rows // 3)
        given = {key: value for key, value in settings.items() if key != "pinned"}
        ours = ReplayBuffer(capacity, W1, device=device, **_possible(given, device))
        cpu = ReplayBuffer(capacity, W1, **_possible(given, CPU))
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
    return {"settings": len(LIVES), "steps": scale.lives}


def _possible(settings: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Settings without those of a GPU, if it is none."""
    own = {"rows_on"} if device.type == "cpu" else set()
    return {key: value for key, value in settings.items() if key not in own}


def live(buffer: ReplayBuffer, scale: Scale) -> None:
    """Steps, batches, updates and sorts; a function of the settings alone."""
    envs = buffer.num_envs
    for number in range(scale.lives):
        buffer.add(**one_time(W1, envs * number, envs, buffer.device))
        if number % 10 == 0:
            buffer.extend(**steps(W1, 17 * number, 40, buffer.device))
        batch = buffer.sample(scale.batch)
        if buffer.prioritized:
            buffer.update_priorities(batch.ids, errors(scale.batch, buffer.device, seed=number))
    if buffer.sampler.ranked:
        buffer.resort()


def graph_goes_on(device: torch.device, scale: Scale) -> dict[str, Any]:
    """A captured step draws other rows each time, those that calls one by one would draw."""
    ours, twin = (full(W1, min(SMALL, scale.rows), PER, device) for _ in range(2))
    batch, values = ours.empty_batch(scale.batch), errors(scale.batch, device)
    graph = captured(one_step(ours, batch, values, device), scale)  # capture runs nothing itself
    follow = one_step(twin, twin.empty_batch(scale.batch), values, device)
    for _ in range(scale.warm_up):
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
    host = {name: value[0].numpy() for name, value in one_time(W1, 7, 1, CPU).items()}
    stream = steps(W1, 0, scale.stream, device)
    host_stream = {name: value.cpu().numpy() for name, value in stream.items()}

    def all_calls() -> None:
        step()
        buffer.add(**host)
        buffer.extend(**stream)
        buffer.extend(**host_stream)
        buffer.sample(scale.batch)
        buffer.ready(scale.batch)
        buffer.stats()

    all_calls()
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(scale.flow):
            all_calls()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"steps": scale.flow}


def one_step(
    buffer: ReplayBuffer, batch: Batch, values: torch.Tensor, device: torch.device
) -> Callable[[], Batch]:
    """Add a row, draw a batch, update its priorities."""
    row = one_time(W1, 11, 1, device)

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
    ids = torch.cat([buffer.sample(scale.draws // 4).ids.clone() for _ in range(4)]).cpu().numpy()
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


def far_rows(device: torch.device, scale: Scale) -> dict[str, Any]:
    """Rows whose addresses need 64 bits are those that were written there."""
    buffer = full(STATES, scale.far, PER, device, chunk=scale.chunk)
    buffer.extend(**steps(STATES, scale.far, 3, device))  # which wraps
    ends = torch.tensor([3, scale.far // 2, scale.far - 1, scale.far, scale.far + 2], device=device)
    rows = buffer.rows(ends)
    wanted = torch.cat([steps(STATES, int(end), 1, device)["obs"] for end in ends])
    require_same_bits("rows read by id", rows.obs, wanted)
    batch = buffer.sample(scale.batch)
    require_same_bits("rows that were drawn", batch.obs[:, 0].long(), batch.ids % 251)
    bytes_of_rows = scale.far * buffer.memory().row_bytes
    return {"rows": scale.far, "bytes": bytes_of_rows, "over_32_bits": bytes_of_rows > 1 << 31}


CHECKS: dict[str, Callable[[torch.device, Scale], dict[str, Any]]] = {
    "same as the CPU": same_as_cpu,
    "a life like the CPU's": lives_like_cpu,
    "a captured step goes on": graph_goes_on,
    "nothing waits": nothing_waits,
    "draws follow priorities": draws_follow_priorities,
    "far rows": far_rows,
}
