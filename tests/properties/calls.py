"""Settings of a buffer, and random calls on it, as data: `(name, arguments)` of public methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relive import Field, Linear, Proportional, RankBased, Recent, ReplayBuffer, Uniform
from tests.properties.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.properties.pair import Pair

FIELDS = {"obs": Field((2,)), "action": Field((), torch.int64), "tag": Field((), torch.int32)}
Call = tuple[str, dict[str, Any]]

# How often each call comes; the rest are steps of the environments.
SHARES = {
    "sample": 0.2,
    "update_priorities": 0.2,
    "extend": 0.06,
    "extend_all": 0.03,
    "extend_rows": 0.03,
    "end_episode": 0.03,
    "write_back": 0.02,
    "reseed": 0.005,
    "set_progress": 0.005,
    "clear": 0.01,
}
# And these, of a buffer with windows or demonstrations.
POLICY_SHARES = {"sample_range": 0.08, "start_sweep": 0.01, "ready": 0.05}
PIN_SHARES = {"pin_demonstrations": 0.08, "pin": 0.05}
# And these, where another buffer may take the place of the present one.
LIFE_SHARES = {"save": 0.02, "load": 0.01, "swap": 0.005, "grown": 0.003, "copied": 0.005}
FOLDERS = 3
MOST_TIMES = 60  # of one call to extend
MOST_CAPACITY = 300
SPECIAL_ERRORS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38, 2.0**40, 2.0**-40, 2.0**-41]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a buffer is made with."""

    capacity: int = 13
    num_envs: int = 1
    n_step: int = 1
    autoreset: str = "disabled"
    gamma: float = 0.9
    sampler: Uniform | Proportional | RankBased = field(default_factory=Uniform)
    track_reuse: bool = False
    seed: int = 0
    window: Recent | None = None
    demo_fraction: float | Linear | None = 0.5
    pins: bool = False  # demonstrations come and go

    def buffer(self, kernels: str = "cpu", **settings: Any) -> ReplayBuffer:
        return ReplayBuffer(
            self.capacity,
            FIELDS,
            sampler=self.sampler,
            num_envs=self.num_envs,
            n_step=self.n_step,
            gamma=self.gamma,
            autoreset=self.autoreset,
            seed=self.seed,
            track_reuse=self.track_reuse,
            kernels=kernels,
            window=self.window,
            demo_fraction=self.demo_fraction,
            **settings,
        )

    def twin(self) -> Twin:
        return Twin(
            capacity=self.capacity,
            num_envs=self.num_envs,
            n_step=self.n_step,
            gamma=self.gamma,
            autoreset=self.autoreset,
            seed=self.seed,
            sampler=self.sampler if self.sampler.prioritized else None,
            window=self.window,
            demo_fraction=self.demo_fraction,
        )


def steps(rng: np.random.Generator, *axes: int, end: float = 0.15) -> dict[str, np.ndarray]:
    """Random steps with leading `axes`; next_obs has nothing to do with other steps' obs."""
    obs, next_obs = rng.normal(size=axes), rng.normal(size=axes)
    return {
        "obs": np.stack([obs, -obs], axis=-1),
        "action": rng.integers(-(2**60), 2**60, axes),
        "tag": rng.integers(-(2**31), 2**31, axes),
        "reward": rng.normal(size=axes) * 10.0 ** rng.integers(-3, 4, axes),
        "next_obs": np.stack([next_obs, -next_obs], axis=-1),
        "terminated": rng.random(axes) < end,
        "truncated": rng.random(axes) < end,
    }


def errors(rng: np.random.Generator, count: int) -> np.ndarray:
    """Errors of any sign and of all magnitudes of leaves and more, special ones now and then."""
    decades = rng.choice([0.5, 3.0, 13.0, 30.0])
    values = 10.0 ** rng.uniform(-decades, decades, count) * rng.choice([-1, 1], count)
    special = rng.random(count) < rng.choice([0.0, 0.2])
    return np.where(special, rng.choice(SPECIAL_ERRORS, count), values).astype(np.float32)


class Calls:
    """Random calls for a buffer, a function of the seed and of the answers of the buffer alone.

    Args:
        buffer: or a `Pair`, whose buffer may be saved and be another one later.
    """

    def __init__(self, spec: Spec, buffer: ReplayBuffer | Pair, seed: int) -> None:
        self.spec = spec
        self.pair = None if isinstance(buffer, ReplayBuffer) else buffer
        self._buffer = buffer
        self.rng = np.random.default_rng(seed)

    @property
    def buffer(self) -> ReplayBuffer:
        return self._buffer if self.pair is None else self.pair.buffer

    def take(self, number: int) -> Iterator[Call]:
        wanted = dict(SHARES)
        if self.pair is not None:
            wanted |= LIFE_SHARES
        if self.pair is not None or self.spec.window is not None or self.spec.pins:
            wanted |= POLICY_SHARES
        if self.spec.pins:
            wanted |= PIN_SHARES
        names, shares = ["add", *wanted], [1 - sum(wanted.values()), *wanted.values()]
        for name in self.rng.choice(names, size=number, p=shares):
            call = getattr(self, name)()
            if call is not None:
                yield call

    def add(self) -> Call:
        envs, rng = self.spec.num_envs, self.rng
        axes = () if envs == 1 and rng.random() < 0.5 else (envs,)
        call = steps(rng, *axes)
        if self.spec.autoreset == "same_step":
            final = rng.normal(size=axes)
            call["final_obs"] = np.stack([final, -final], axis=-1)
            if axes == ():
                call["final_obs"] = call["final_obs"][None]
        return "add", call

    def extend(self) -> Call:
        call = steps(self.rng, self.times())
        return "extend", {**call, "env": int(self.rng.integers(self.spec.num_envs))}

    def extend_all(self) -> Call:
        return "extend", {**steps(self.rng, self.times(), self.spec.num_envs), "env": None}

    def extend_rows(self) -> Call:
        _, call = self.extend() if self.rng.random() < 0.5 else self.extend_all()
        discount = self.rng.choice(np.float32([0.9, 0.81, 0.729]), call["reward"].shape)
        return "extend", {**call, "discount": np.where(call["terminated"], 0, discount)}

    def times(self) -> int:
        longest = self.spec.capacity * (3 if self.rng.random() < 0.2 else 0.5)
        return int(self.rng.integers(0, min(longest, MOST_TIMES) + 1))

    def end_episode(self) -> Call:
        env = int(self.rng.integers(-1, self.spec.num_envs))
        return "end_episode", {"env": None if env < 0 else env}

    def sample(self) -> Call | None:
        batch_size = int(self.rng.choice([1, 2, 3, 4, 6, 8, 12, 16]))
        return "sample", {"batch_size": batch_size, "train": bool(self.rng.random() < 0.8)}

    def update_priorities(self) -> Call | None:
        live, rng = self.buffer.live_ids().numpy(), self.rng
        if not self.buffer.prioritized or not len(live):
            return None
        if rng.random() < 0.1:  # every row at once, all about as large: the total may collapse
            ids, values = live, errors(rng, 1).astype(float) * rng.uniform(1, 2, len(live))
            values = np.where(np.abs(values) < 3e38, values, np.inf)
        else:
            count = int(rng.integers(0, 12))
            ids = rng.choice(live, count)
            stale = rng.random(count) < 0.1
            newest = self.buffer.stats()["added"]
            ids = np.where(stale, rng.integers(0, newest + 2 * (rng.random() < 0.1), count), ids)
            values = errors(rng, count)
        kind = "priorities" if rng.random() < 0.2 else "td_errors"
        return "update_priorities", {"ids": ids, kind: values.astype(np.float32)}

    def write_back(self) -> Call | None:
        live = self.buffer.live_ids()
        if not self.buffer.prioritized or not len(live):
            return None
        ids = live[: int(self.rng.integers(1, len(live) + 1))]
        values = self.buffer.priorities(ids)
        return "update_priorities", {"ids": ids.numpy(), "priorities": values.numpy()}

    def sample_range(self) -> Call:
        newest = int(self.buffer.stats()["added"])
        start = int(self.rng.integers(0, newest + 2))
        stop = int(self.rng.choice([start + 5, start + 40, newest + 1, 2**62 + 2]))
        return "sample_range", {"batch_size": 6, "start": start, "stop": max(start, stop)}

    def start_sweep(self) -> Call:
        return "start_sweep", {"updates": int(self.rng.integers(1, 12))}

    def ready(self) -> Call:
        return "ready", {"batch_size": int(self.rng.integers(1, 9))}

    def pin_demonstrations(self) -> Call:
        count = len(self.buffer)
        reserve = int(self.rng.integers(0, 4))
        return "pin_demonstrations", {"count": count, "reserve": reserve}

    def pin(self) -> Call | None:
        live = self.buffer.live_ids().numpy()
        if not len(live):
            return None
        return "pin", {"ids": self.rng.choice(live, int(self.rng.integers(1, 3)))}

    def reseed(self) -> Call:
        return "reseed", {"seed": int(self.rng.integers(-(2**63), 2**63 - 1))}

    def set_progress(self) -> Call:
        return "set_progress", {"t": int(self.rng.integers(0, 200))}

    def clear(self) -> Call:
        return "clear", {}

    def grown(self) -> Call:
        room = MOST_CAPACITY - self.buffer.capacity
        return "grown", {"more": int(self.rng.integers(0, max(0, min(room, 6)) + 1))}

    def copied(self) -> Call:
        return "copied", {"how": str(self.rng.choice(["pickle", "copy", "deepcopy"]))}

    def save(self) -> Call:
        background = bool(self.rng.random() < 0.3)
        return "save", {"number": int(self.rng.integers(FOLDERS)), "background": background}

    def load(self) -> Call | None:
        if not self.pair.saved:
            return None
        number = int(self.rng.choice(sorted(self.pair.saved)))
        capacity = None
        if self.rng.random() < 0.4:
            most = self.pair.saved[number].capacity + 5
            capacity = int(self.rng.integers(self.spec.num_envs, min(most, MOST_CAPACITY) + 1))
        go_on = bool(self.rng.random() < 0.5)
        return "load", {"number": number, "capacity": capacity, "go_on": go_on}

    def swap(self) -> Call:
        return "swap", {}
