"""What each call of a buffer on a GPU may do, as data; `docs/cuda.md` has it as a table.

A row is a call as it may be written, with ways to make it. `WAITS` and `GRAPH` are the words of the
table: whether the host waits for the device, and what becomes of the call while a CUDA graph is
captured.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from relive import Proportional, ReplayBuffer, TrajectoryStore
from tests.triton.cases import FIELDS, SETTINGS, steps

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from relive.batch import Batch

NO, YES, REFUSED = "no", "yes", "refused"
OWN_GRAPH = "yes, best in a graph of its own"
HOST_KNOWS = "yes, the host knows"

KINDS: dict[str, dict[str, Any]] = {
    **SETTINGS,
    "same step": {"sampler": Proportional(), "num_envs": 3, "autoreset": "same_step"},
    "rows on the host": {"sampler": Proportional(), "n_step": 2, "rows_on": "host"},
}
BATCH, CAPACITY, TIMES = 4, 60, 6


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        calls: Ways to make the call, by name; each is given a buffer with its tensors.
        suits: Which buffers have such a call.
    """

    waits: str
    graph: str
    calls: dict[str, Callable[[Given], Any]]
    suits: Callable[[ReplayBuffer], bool] = lambda _: True


class Given:
    """A buffer on the pretended GPU and what its calls are given, made before any of them.

    Args:
        folder: To save into.
    """

    def __init__(self, kind: str, folder: Path | None = None, **settings: Any) -> None:
        self.kind, self.folder = kind, folder
        self.buffer = new_buffer(kind, device="cuda", **settings)
        self.step = one_step(self.buffer)
        self.times = steps(self.buffer, TIMES)
        self.step_there, self.times_there = there(self.step), there(self.times)
        self.ids, self.errors = torch.arange(BATCH), torch.linspace(-1, 1, BATCH)
        self.ids_there, self.errors_there = there([self.ids, self.errors])
        self.bounds_here = torch.tensor(1), torch.tensor(5)
        self.bounds = there([*self.bounds_here])
        self.out: Batch = self.buffer.empty_batch(BATCH)
        self.store: TrajectoryStore | None = None

    def anew(self) -> Given:
        """The same for a new buffer."""
        given = copy(self)
        given.buffer = new_buffer(self.kind, device="cuda")
        given.out = given.buffer.empty_batch(BATCH)
        return given

    def fill(self) -> None:
        """Twice: kernels run."""
        self.buffer.extend(**arrays(self.times))
        self.buffer.add(**arrays(self.step))


def new_buffer(kind: str, capacity: int = CAPACITY, **settings: Any) -> ReplayBuffer:
    """An empty one of a kind."""
    return ReplayBuffer(capacity, **{"fields": FIELDS, **KINDS[kind], **settings})


def one_step(buffer: ReplayBuffer) -> dict[str, Tensor]:
    """A step of every environment, with all that its buffer asks for."""
    step = steps(buffer, buffer.num_envs)
    final = {"final_obs": step["obs"] / 2} if buffer._home.settings.resets == "same_step" else {}
    return {**step, **final}


def arrays(values: dict[str, Tensor]) -> dict[str, Any]:
    """The same in arrays of the host."""
    return {name: value.numpy() for name, value in values.items()}


def there(values: Any) -> Any:
    """The same on the device, brought there without a wait."""
    if isinstance(values, dict):
        return {name: there(value) for name, value in values.items()}
    if isinstance(values, list):
        return [there(value) for value in values]
    return values.pin_memory().to("cuda", non_blocking=True)


def made_for_env(given: Given) -> ReplayBuffer:
    settings = {**KINDS[given.kind], "device": "cuda", "autoreset": "disabled"}
    return ReplayBuffer.for_env(None, CAPACITY, **{"fields": FIELDS, **settings})


def saved(given: Given) -> None:
    given.buffer.save(given.folder / "saved")


def loaded(given: Given) -> ReplayBuffer:
    new_buffer(given.kind, device="cpu", rows_on="device").save(given.folder / "other")
    return ReplayBuffer.load(given.folder / "other", device="cuda")


def is_prioritized(buffer: ReplayBuffer) -> bool:
    return buffer.prioritized


def is_ranked(buffer: ReplayBuffer) -> bool:
    return buffer.sampler.ranked


def has_sweeps(buffer: ReplayBuffer) -> bool:
    return buffer.window is not None and buffer.window.count is None


PROPERTIES = [
    "capacity",
    "device",
    "num_envs",
    "n_step",
    "gamma",
    "sampler",
    "window",
    "prioritized",
    "failure",
    "is_saving",
]
TABLE: dict[str, Row] = {
    "`add` of host arrays": Row(
        NO,
        REFUSED,
        {
            "arrays": lambda g: g.buffer.add(**arrays(g.step)),
            "tensors": lambda g: g.buffer.add(**g.step),
            "some of each": lambda g: g.buffer.add(**{**g.step_there, "obs": g.step["obs"]}),
            "flags on the host": lambda g: g.buffer.add(
                **{**g.step_there, **{k: g.step[k] for k in ("terminated", "truncated")}}
            ),
        },
    ),
    "`add` of device tensors": Row(NO, YES, {"tensors": lambda g: g.buffer.add(**g.step_there)}),
    "`extend` of host arrays": Row(
        NO,
        REFUSED,
        {
            "one lane": lambda g: g.buffer.extend(**arrays(g.times)),
            "ready-made": lambda g: g.buffer.extend(
                **arrays(g.times), discount=arrays(g.times)["reward"]
            ),
            "some of each": lambda g: g.buffer.extend(
                **{**g.times_there, "action": g.times["action"]}
            ),
        },
    ),
    "`extend` of device tensors": Row(
        NO,
        YES,
        {
            "one lane": lambda g: g.buffer.extend(**g.times_there),
            "never truncated": lambda g: g.buffer.extend(
                **{k: v for k, v in g.times_there.items() if k != "truncated"}
            ),
            "ready-made": lambda g: g.buffer.extend(
                **g.times_there, discount=g.times_there["reward"]
            ),
        },
    ),
    "`sample`": Row(
        NO,
        YES,
        {
            "new": lambda g: g.buffer.sample(BATCH),
            "out": lambda g: g.buffer.sample(BATCH, out=g.out),
            "not for training": lambda g: g.buffer.sample(BATCH, train=False),
            "to where it is": lambda g: g.buffer.sample(BATCH, device="cuda"),
        },
    ),
    '`sample` with `device="cpu"`': Row(
        YES, REFUSED, {"to the CPU": lambda g: g.buffer.sample(BATCH, device="cpu")}
    ),
    "`batches`": Row(NO, YES, {"ahead 0": lambda g: next(g.buffer.batches(BATCH))}),
    "`batches` with `ahead` of 1 or more": Row(
        NO, REFUSED, {"ahead 2": lambda g: next(g.buffer.batches(BATCH, ahead=2))}
    ),
    "`sample_range` with bounds on the device": Row(
        NO,
        YES,
        {
            "new": lambda g: g.buffer.sample_range(BATCH, *g.bounds),
            "out": lambda g: g.buffer.sample_range(BATCH, *g.bounds, out=g.out),
        },
    ),
    "`sample_range` with numbers": Row(
        NO,
        REFUSED,
        {
            "numbers": lambda g: g.buffer.sample_range(BATCH, 1, 5),
            "tensors": lambda g: g.buffer.sample_range(BATCH, torch.tensor(1), torch.tensor(5)),
            "one of each": lambda g: g.buffer.sample_range(BATCH, 1, g.bounds[1]),
        },
    ),
    "`update_priorities` of device tensors": Row(
        NO,
        YES,
        {
            "errors": lambda g: g.buffer.update_priorities(g.ids_there, g.errors_there),
            "doubles": lambda g: g.buffer.update_priorities(g.ids_there, g.errors_there.double()),
            "priorities": lambda g: g.buffer.update_priorities(
                g.ids_there, priorities=g.errors_there
            ),
        },
        is_prioritized,
    ),
    "`update_priorities` of host arrays": Row(
        NO,
        REFUSED,
        {
            "arrays": lambda g: g.buffer.update_priorities(g.ids.numpy(), g.errors.numpy()),
            "errors alone": lambda g: g.buffer.update_priorities(g.ids_there, g.errors),
        },
        is_prioritized,
    ),
    "`resort`": Row(NO, OWN_GRAPH, {"now": lambda g: g.buffer.resort()}, is_ranked),
    "`ready`": Row(NO, HOST_KNOWS, {"4": lambda g: g.buffer.ready(BATCH)}),
    "`empty_batch`": Row(NO, YES, {"4": lambda g: g.buffer.empty_batch(BATCH)}),
    "`end_episode`, `clear`, `reseed`, `set_progress`, `stats()`": Row(
        NO,
        REFUSED,
        {
            "one lane": lambda g: g.buffer.end_episode(0),
            "all lanes": lambda g: g.buffer.end_episode(),
            "reseed": lambda g: g.buffer.reseed(3),
            "set_progress": lambda g: g.buffer.set_progress(7),
            "stats": lambda g: g.buffer.stats(),
            "tee": lambda g: g.buffer.tee(None),
            "clear": lambda g: g.buffer.clear(),
        },
    ),
    "`start_sweep`": Row(NO, REFUSED, {"5": lambda g: g.buffer.start_sweep(5)}, has_sweeps),
    "`len`, `stats(wait=True)`, `rows`, `all`, `live_ids`, `split`, `check`": Row(
        YES,
        REFUSED,
        {
            "len": lambda g: len(g.buffer),
            "stats": lambda g: g.buffer.stats(wait=True),
            "rows": lambda g: g.buffer.rows([1, 2]),
            "all": lambda g: g.buffer.all(),
            "live_ids": lambda g: g.buffer.live_ids(),
            "split": lambda g: g.buffer.split(0.5),
            "check": lambda g: g.buffer.check(),
        },
    ),
    "`priorities`, `beta`": Row(
        YES,
        REFUSED,
        {"priorities": lambda g: g.buffer.priorities([1, 2]), "beta": lambda g: g.buffer.beta},
        is_prioritized,
    ),
    "`save`, `state_dict`, `load_state_dict`, `grown`": Row(
        YES,
        REFUSED,
        {
            "save": saved,
            "state_dict": lambda g: g.buffer.state_dict(),
            "grown": lambda g: g.buffer.grown(CAPACITY + 1),
            "pickled": lambda g: g.buffer.__reduce__(),
            "load_state_dict": lambda g: g.buffer.load_state_dict(
                {"settings": g.buffer._described(), "tensors": g.buffer._state.tensors()}
            ),
        },
    ),
    "`pin_demonstrations`, `pin`": Row(
        YES,
        REFUSED,
        {
            "all so far": lambda g: g.buffer.pin_demonstrations(TIMES + 1, reserve=1),
            "one more": lambda g: g.buffer.pin(g.ids_there[:1]),
        },
        lambda buffer: buffer.num_envs == buffer.n_step == 1,
    ),
    "`ReplayBuffer(...)`, `for_env`, `load`": Row(
        YES,
        REFUSED,
        {
            "made": lambda g: new_buffer(g.kind, device="cuda"),
            "for_env": made_for_env,
            "loaded": loaded,
        },
    ),
    "`tee`": Row(YES, REFUSED, {"to a store": lambda g: g.buffer.tee(g.store)}),
    "`capacity`, `device`, `num_envs`, `n_step`, `gamma`, `sampler`, `window`, `prioritized`, "
    "`failure`, `is_saving`, `memory`, `saved_note`": Row(
        NO,
        HOST_KNOWS,
        {
            "properties": lambda g: [getattr(g.buffer, name) for name in PROPERTIES],
            "memory": lambda g: g.buffer.memory(),
        },
    ),
}
