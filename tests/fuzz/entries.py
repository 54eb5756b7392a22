"""Every public entry with arguments that are right, as data: `(name, function, arguments)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relive import (
    Field,
    Linear,
    Mixture,
    Proportional,
    RankBased,
    Recent,
    ReplayBuffer,
    TrajectoryStore,
    Uniform,
    fields_of,
    plan,
)

if TYPE_CHECKING:
    from pathlib import Path

Entry = tuple[str, Callable[..., Any], dict[str, Any]]

PLAIN = {"obs": Field((2,)), "action": Field((), torch.int64)}
NESTED = {
    "obs": {"image": Field((2, 2), store=torch.uint8), "speed": Field((), torch.float64)},
    "action": Field((1,), torch.bfloat16),
    "tag": Field((), torch.int16),
}
MAKERS: dict[str, Callable[[], ReplayBuffer]] = {
    "uniform": lambda: ReplayBuffer(8, PLAIN),
    "proportional, dict, three lanes, same step": lambda: ReplayBuffer(
        20, NESTED, sampler=Proportional(), num_envs=3, n_step=3, autoreset="same_step"
    ),
    "proportional, refused": lambda: ReplayBuffer(
        8,
        PLAIN,
        sampler=Proportional(bad_priority="raise", new_priority="max_current"),
        track_reuse=True,
    ),
    "rank, window, demonstrations": lambda: pinned(
        ReplayBuffer(16, PLAIN, sampler=RankBased(resort_every=2), window=Recent(eta=0.9, c_min=2))
    ),
}


def pinned(buffer: ReplayBuffer) -> ReplayBuffer:
    buffer.extend(**{**steps(buffer, 3), "env": 0})
    buffer.pin_demonstrations(3, reserve=2)
    return buffer


def steps(buffer: ReplayBuffer, *axes: int) -> dict[str, Any]:
    """Steps that fit, with leading axes."""

    def of(field: Any) -> Any:
        if isinstance(field, dict):
            return {key: of(part) for key, part in field.items()}
        array = np.ones((*axes, *field.shape))
        return array if field.dtype.is_floating_point else array.astype(np.int16)

    given = {name: of(field) for name, field in buffer._home.layout.fields.items()}
    flags = {"terminated": np.zeros(axes, bool), "truncated": np.zeros(axes, bool)}
    return {**given, "next_obs": given["obs"], "reward": np.ones(axes, np.float32), **flags}


class SomeEnv:
    """What `for_env` and `fields_of` look at."""

    num_envs = 2

    def __init__(self, space: Any, mode: Any) -> None:
        self.single_observation_space = self.single_action_space = space
        self.metadata = mode if isinstance(mode, dict) else {"autoreset_mode": mode}


def of_buffer(buffer: ReplayBuffer, rng: np.random.Generator, folder: Path) -> list[Entry]:
    """Methods, with arguments that most of the time are right."""
    live = buffer.live_ids()
    ids = live[torch.from_numpy(rng.integers(0, len(live), 4))] if len(live) else live
    newest = buffer.stats()["added"]
    lanes = buffer.num_envs
    added = steps(buffer, lanes)
    if buffer._home.settings.resets == "same_step":
        added |= {"terminated": np.ones(lanes, bool), "final_obs": added["next_obs"]}
    discount = np.ones(4, np.float32)
    every = {**steps(buffer, 4, lanes), "env": None}
    size = {"batch_size": int(rng.integers(1, 5))}
    errors = {"ids": ids.numpy(), "td_errors": np.ones(len(ids), np.float32)}
    found: list[Entry] = [
        ("add", buffer.add, added),
        ("add", buffer.add, added),
        ("extend", buffer.extend, {**steps(buffer, 4), "env": 0}),
        ("extend", buffer.extend, {**steps(buffer, 4), "env": 0, "discount": discount}),
        ("extend", buffer.extend, every),
        ("end_episode", buffer.end_episode, {"env": 0}),
        ("ready", buffer.ready, size),
        ("sample", buffer.sample, {**size, "train": True, "out": None, "device": "cpu"}),
        ("sample", buffer.sample, {**size, "out": buffer.empty_batch(size["batch_size"])}),
        ("sample_range", buffer.sample_range, {**size, "start": 0, "stop": newest + 1}),
        ("empty_batch", buffer.empty_batch, size),
        ("batches", buffer.batches, {**size, "ahead": 1, "device": "cpu", "train": False}),
        ("stats", buffer.stats, {"wait": True}),
        ("rows", buffer.rows, {"ids": ids}),
        ("update_priorities", buffer.update_priorities, errors),
        ("update_priorities", buffer.update_priorities, errors),
        ("priorities", buffer.priorities, {"ids": ids}),
        ("pin", buffer.pin, {"ids": ids[:1]}),
        (
            "pin_demonstrations",
            buffer.pin_demonstrations,
            {"count": len(buffer), "batch_size": 1, "reserve": 1},
        ),
        ("set_progress", buffer.set_progress, {"t": 5}),
        ("start_sweep", buffer.start_sweep, {"updates": 5}),
        ("reseed", buffer.reseed, {"seed": 5}),
        ("split", buffer.split, {"holdout": 0.5, "seed": 1}),
        ("grown", buffer.grown, {"capacity": buffer.capacity + 1}),
        ("load_state_dict", buffer.load_state_dict, {"state": buffer.state_dict()}),
        ("tee", buffer.tee, {"store": None}),
    ]
    if rng.random() < 0.1:  # they write to the disk
        path = folder / str(int(rng.integers(3)))
        note = {"step": 3, "weights": [torch.ones(2)], "rate": (0.1, None)}
        found.append(("save", buffer.save, {"path": path, "note": note, "background": False}))
        where = {"device": "cpu", "rows_on": "device"}
        found.append(("load", ReplayBuffer.load, {"path": path, "capacity": 30, **where}))
        found.append(("saved_note", ReplayBuffer.saved_note, {"path": path}))
    return found


def of_store(store: TrajectoryStore, buffer: ReplayBuffer) -> list[Entry]:
    """Methods of a store of episodes, with arguments that most of the time are right."""
    path = store.path
    return [
        ("append", store.append, {**steps(buffer, 4), "env": 0}),
        ("append", store.append, {**steps(buffer, 4), "env": 0}),
        ("flush", store.flush, {"sync": False}),
        ("episode", store.episode, {"number": len(store) - 1}),
        ("fill", store.fill, {"buffer": buffer, "where": None, "limit": 1, "env": 0}),
        ("TrajectoryStore", TrajectoryStore, {"path": path, "fields": PLAIN, "mode": "r"}),
        ("tee", buffer.tee, {"store": None}),
    ]


def of_the_package() -> list[Entry]:
    """Constructors and functions."""
    beta, uniform = Linear(0.1, 0.9, 10), Uniform()
    alike = {"alpha": 0.5, "beta": beta, "normalize": "batch", "stratified": True}
    alike |= {"bad_priority": "max", "weight_clip": 3.0, "uniform_share": 0.1}
    alike |= {"mixture_weights": False}
    settings = {"sampler": uniform, "num_envs": 2, "n_step": 2}
    making = {"capacity": 8, "fields": PLAIN, **settings}
    env = SomeEnv(Odd(), "NEXT_STEP")
    return [
        ("Field", Field, {"shape": (2,), "dtype": torch.float32, "store": torch.uint8}),
        ("Linear", Linear, {"start": 0.1, "end": 1.0, "steps": 10}),
        ("Recent", Recent, {"count": 3}),
        ("Recent", Recent, {"eta": 0.9, "c_min": 3, "updates": 5, "of": "capacity"}),
        (
            "Proportional",
            Proportional,
            {**alike, "eps": 0.1, "new_priority": "max_seen", "demo_bonus": 0.1},
        ),
        ("RankBased", RankBased, {**alike, "resort_every": 3}),
        ("plan", plan, {**making, "batch_size": 4, "device": "cuda", "rows_on": "host"}),
        ("plan", plan, {**making, "batch_size": 4, "track_reuse": True, "device": "cpu"}),
        (
            "ReplayBuffer",
            ReplayBuffer,
            {
                **making,
                "window": Recent(2),
                "demo_fraction": 0.5,
                "gamma": 0.9,
                "autoreset": "disabled",
                "device": "cpu",
                "rows_on": "device",
                "seed": 1,
                "track_reuse": True,
                "kernels": "cpu",
            },
        ),
        ("ReplayBuffer", ReplayBuffer, {"capacity": 8, "fields": dict(PLAIN), "seed": 3}),
        ("ReplayBuffer", ReplayBuffer, {"capacity": 8, "fields": dict(NESTED), "device": "cpu"}),
        ("for_env", ReplayBuffer.for_env, {"env": env, "capacity": 8, "fields": PLAIN}),
        ("fields_of", fields_of, {"env": env}),
    ]


class Odd:
    """No space."""


def of_mixture(mixture: Mixture, rng: np.random.Generator) -> list[Entry]:
    batch = mixture.sample(4)
    size = {"batch_size": int(rng.integers(1, 5))}
    return [
        ("Mixture", Mixture, {"buffers": list(mixture.buffers), "shares": [1.0, 2.0]}),
        ("Mixture.sample", mixture.sample, {**size, "out": None, "train": True, "device": "cpu"}),
        ("Mixture.sample", mixture.sample, {"batch_size": 4, "out": batch}),
        ("Mixture.ready", mixture.ready, size),
        ("Mixture.empty_batch", mixture.empty_batch, size),
        (
            "Mixture.update_priorities",
            mixture.update_priorities,
            {"ids": batch.ids.numpy(), "td_errors": np.ones(4, np.float32)},
        ),
        ("Mixture.where", mixture.where, {"ids": batch.ids}),
        ("Batch.to", batch.to, {"device": "cpu"}),
    ]
