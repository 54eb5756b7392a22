"""Every kernel is compiled once: whatever a caller passes, kernels see the same types.

A specialisation more is a compilation of seconds in the middle of training. What is counted are
those of a process of its own that has made every call with every kind of argument.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba.core.dispatcher import Dispatcher

import relive.ops
from relive import Field, Linear, Proportional, RankBased, Recent, ReplayBuffer, Uniform
from relive.ops import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
MOST = 1  # specialisations of a kernel
# These pass no number of the caller on to a kernel.
NOT_CALLED = {"for_env", "save", "load", "saved_note", "state_dict", "load_state_dict", "tee"}

FIELDS = {
    "obs": {"x": Field((2,)), "image": Field((2, 2), torch.uint8)},
    "action": Field((), torch.int64),
    "half": Field((2,), torch.float16),
}
STACKED = {
    **FIELDS,
    "obs": {"x": Field((2,)), "image": Field((2, 2), torch.uint8, stack=2)},
}
SAMPLERS = [
    Uniform(),
    Proportional(),
    Proportional(alpha=1, beta=1, eps=0, weight_clip=1),  # whole numbers
    Proportional(beta=Linear(0, 1, 10), normalize=None, stratified=False),
    Proportional(normalize="batch", new_priority="max_current", bad_priority="max"),
    Proportional(bad_priority="raise", uniform_share=0.5, mixture_weights=True),
    RankBased(resort_every=2),
]
WINDOWS = [None, Recent(20), Recent(eta=Linear(0.5, 1, 9), c_min=3, updates=4)]
FORMS: list[Callable[[np.ndarray], Any]] = [  # of an array
    lambda a: a,
    lambda a: a.tolist(),
    lambda a: np.asfortranarray(a),
    lambda a: np.repeat(a, 2, axis=0)[::2],  # strided
    torch.tensor,
    lambda a: torch.tensor(np.repeat(a, 2, axis=0))[::2],
    lambda a: torch.tensor(a[None])[0],
]
FORMS_OF_STEPS = [*FORMS, lambda a: a[::-1].copy()[::-1], lambda a: read_only(a)]
INTEGERS = [np.int64, np.int32, np.int16, np.uint8, np.uint16, np.uint32, np.intp]
FLOATS = [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_]


def read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def kernels() -> dict[str, Dispatcher]:
    """Every entry point made by `compiled.kernel`, by its name."""
    found = {}
    for module in pkgutil.walk_packages(relive.ops.__path__, "relive.ops."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Dispatcher) and isinstance(value._cache, compiled._KernelCache):
                found[f"{value.__module__}.{name}"] = value
    return found


def steps(*axes: int) -> dict[str, Any]:
    return {
        "obs": {"x": np.ones((*axes, 2), np.float32), "image": np.ones((*axes, 2, 2), np.uint8)},
        "action": np.ones(axes, np.int64),
        "half": np.ones((*axes, 2), np.float32),
        "reward": np.ones(axes, np.float32),
        "next_obs": {"x": np.ones((*axes, 2), np.float32), "image": np.ones((*axes, 2, 2), "u1")},
        "terminated": np.zeros(axes, bool),
        "truncated": np.zeros(axes, bool),
    }


def formed(values: dict[str, Any], form: Callable[[Any], Any]) -> dict[str, Any]:
    return {
        name: formed(value, form) if isinstance(value, dict) else form(value)
        for name, value in values.items()
    }


def scalars() -> Iterator[dict[str, Any]]:
    """Single numbers of all kinds in place of those of a step."""
    for reward in (1, 1.0, True, np.float32(1), np.float64(1), np.float16(1), np.int64(1)):
        yield {"reward": reward}
    for action in (1, True, np.int64(1), np.int32(1), np.uint8(1), np.array(1), torch.tensor(1)):
        yield {"action": action}
    for flag in (True, np.True_, np.array(True), torch.tensor(True)):
        yield {"terminated": flag, "truncated": flag}
    yield {"reward": torch.tensor(1.0, requires_grad=True)}
    yield {"reward": torch.tensor(1.0, dtype=torch.float64)}


def write(buffer: ReplayBuffer, num_envs: int) -> None:
    """Steps and streams of all kinds."""
    final = {}
    if buffer._home.settings.resets == "same_step":
        final = {"final_obs": steps(num_envs)["obs"]}
    for form in FORMS_OF_STEPS:
        buffer.add(**formed(steps(num_envs), form), **final)
        buffer.extend(**formed(steps(7), form))
        buffer.extend(**formed(steps(3, num_envs), form), env=None)
        buffer.extend(**formed({**steps(3), "discount": np.ones(3)}, form), env=num_envs - 1)
    buffer.extend(**steps(0))
    ended = {**steps(num_envs), "terminated": np.ones(num_envs, bool)}
    buffer.add(**ended, **final)
    for dtype in FLOATS:
        buffer.extend(**{**steps(2), "reward": np.ones(2, dtype)})
    if num_envs == 1 and not final:
        one = formed(steps(1), lambda value: value[0])
        for changed in scalars():
            buffer.add(**{**one, **changed})
    buffer.end_episode()
    buffer.end_episode(env=num_envs - 1)


def read(buffer: ReplayBuffer) -> None:
    """Batches of all sizes, rows by ids of all kinds, and whatever else says something."""
    for size in (5, *(dtype(5) for dtype in INTEGERS)):
        buffer.sample(size)
        buffer.sample(size, train=False, out=buffer.empty_batch(size))
        buffer.sample(size, train=np.True_, device="cpu")
        buffer.sample(size, train=1)
        buffer.ready(size)
        next(buffer.batches(size, ahead=1))
    live = buffer.live_ids().numpy()
    for form, dtype in itertools.product(FORMS, INTEGERS):
        if live[4] <= np.iinfo(dtype).max:
            buffer.rows(form(live[:5].astype(dtype)))
    newest = int(live[live < 2**62][-1])
    buffer.rows(range(newest - 2, newest))
    len(buffer), repr(buffer), buffer.stats(), buffer.memory(), buffer.check()


def update(buffer: ReplayBuffer) -> None:
    """Priorities of all kinds, of ids of all kinds."""
    ids = buffer.live_ids().numpy()[:5]
    errors = np.arange(1.0, 6)
    for form, dtype in itertools.product(FORMS, INTEGERS):
        buffer.update_priorities(form(ids.astype(dtype)), errors)
        buffer.priorities(form(ids.astype(dtype)))
    for form, dtype in itertools.product(FORMS, FLOATS):
        buffer.update_priorities(ids, form(errors.astype(dtype)))
        buffer.update_priorities(ids, priorities=form(errors.astype(dtype)))
    for given in (torch.float16, torch.bfloat16, torch.float64):
        buffer.update_priorities(ids, torch.ones(5, dtype=given, requires_grad=True))
    buffer.update_priorities([], [])
    buffer.update_priorities(range(ids[0], ids[0] + 2), (1, 2.0))
    buffer.update_priorities([ids[0], int(ids[1])], [np.float32(1), True])
    buffer.update_priorities(ids, np.zeros(5))
    buffer.update_priorities(ids, priorities=buffer.priorities(ids))
    buffer._home.ops.rebuild(buffer._state)
    if buffer.sampler.ranked:
        buffer.resort()


def pin(buffer: ReplayBuffer, num_envs: int) -> None:
    """Demonstrations, rows added to them, and ranges."""
    buffer.extend(**steps(3, num_envs), env=None)
    buffer.pin_demonstrations(len(buffer), batch_size=np.int64(4), reserve=5)
    write(buffer, num_envs)
    ids = buffer.live_ids().numpy()[:1]
    for form in FORMS[:5]:
        buffer.pin(form(ids))
    read(buffer)
    newest = buffer.stats()["added"]
    for batch_size in (4, np.int64(4)):
        buffer.sample_range(batch_size, 0, newest)
        buffer.sample_range(batch_size, torch.tensor(0), torch.tensor(newest))
        buffer.sample_range(batch_size, newest - 3, 2**63 - 1, out=buffer.empty_batch(4))
    buffer.split(0.5, seed=1)
    buffer.split(1)
    buffer.all()


def session() -> None:
    """Makes every call with every kind of argument; prints how often each kernel was compiled."""
    environments = [(1, None), (1, "same_step"), (3, "disabled"), (3, "next_step")]
    made = itertools.product(SAMPLERS, environments)
    for number, (sampler, (num_envs, autoreset)) in enumerate(made):
        buffer = ReplayBuffer(
            60,
            FIELDS,
            sampler=sampler,
            num_envs=num_envs,
            autoreset=autoreset,
            n_step=(1, 3)[number % 2],
            gamma=(1, 0.9, 0)[number % 3],
            track_reuse=number % 4 < 2,
            seed=number,
            window=WINDOWS[number % 3],
            demo_fraction=(0.5, None, 1, Linear(0, 1, 5))[number // 2 % 4],
        )
        write(buffer, num_envs)
        read(buffer)
        if buffer.prioritized:
            update(buffer)
        buffer.set_progress(3)
        buffer.reseed(-1)
        read(buffer)
        if buffer.window is not None and buffer.window.count is None:
            buffer.start_sweep(7)
        read(buffer.grown(70))
        buffer.clear()
        pin(buffer, num_envs)
    for number, (num_envs, autoreset) in enumerate(environments):
        n_step = (1, 3)[number % 2]
        buffer = ReplayBuffer(60, STACKED, num_envs=num_envs, autoreset=autoreset, n_step=n_step)
        write(buffer, num_envs)
        read(buffer)
        read(buffer.grown(70))
        buffer._home.ops.evict(buffer._state)
    print(json.dumps({name: len(kernel.signatures) for name, kernel in kernels().items()}))  # noqa: T201


def test_every_kernel_has_one_specialisation_after_calls_with_arguments_of_every_kind() -> None:
    environment = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import session; session()"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    compiled_times = json.loads(done.stdout)
    assert len(compiled_times) >= 6
    assert compiled_times == dict.fromkeys(compiled_times, MOST)


def test_the_session_calls_every_public_method() -> None:
    text = "".join(map(inspect.getsource, (session, write, read, update, pin)))
    public = {name for name in vars(ReplayBuffer) if not name.startswith("_")}
    methods = {name for name in public if inspect.isroutine(getattr(ReplayBuffer, name))}
    assert {name for name in methods - NOT_CALLED if f"buffer.{name}(" not in text} == set()
