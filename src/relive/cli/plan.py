"""`relive plan`: the bytes that a buffer will need, by component, without allocating it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from relive.cli.options import console, parse
from relive.closest import unknown
from relive.envs.make import fields_in, make_env
from relive.errors import ConfigError
from relive.fields import Field, stacked
from relive.numbers import size
from relive.sampling import Proportional, RankBased, Uniform
from relive.storage.memory import MemoryPlan, free_memory, plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

SAMPLERS = {"uniform": Uniform, "proportional": Proportional, "rank": RankBased}
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}
DOES_NOT_FIT = 1
MOST_FRAMES = 8  # of a stack, as a guess


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Tell how much memory a buffer will need, and what fits; allocates nothing.

    The rows are those of an environment (--env), or given by --obs and --action.

    Exit status 1 means that it does not fit into the memory that is free.
    """

    capacity: int = 100_000
    """Rows, for all environments together."""
    env: str | None = None
    """Gymnasium environment whose spaces give the rows."""
    obs: str | None = None
    """Shape of an observation: 51, or 4x84x84."""
    obs_dtype: str = "float32"
    """Number format of an observation: float32, uint8, and so on."""
    action: str = "discrete"
    """An action: its shape as a vector of floats (6), or discrete."""
    obs_store: str | None = None
    """Number format of an observation in the buffer, if another: uint8, float16 or bfloat16."""
    stack: int = 0
    """Frames along the first axis of an observation, each of which is kept once; 0: none are."""
    sampler: Literal["uniform", "proportional", "rank"] = "proportional"
    """How rows are drawn: proportional and rank need priorities and a tree."""
    num_envs: int = 1
    """Environments that write side by side."""
    n_step: int = 1
    """Steps folded into one row."""
    batch_size: int = 256
    """Rows of a batch."""
    track_reuse: bool = False
    """Count the age and reuse of what is drawn."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the buffer will live."""
    rows_on: Literal["device", "host"] = "device"
    """Rows in pinned host memory, of a buffer on a GPU: for more rows than fit there."""


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive plan`."""
    options = parse(PlanOptions, words, command="relive plan")
    planned = fields(options)
    needed = plan(
        options.capacity,
        planned,
        sampler=SAMPLERS[options.sampler](),
        num_envs=options.num_envs,
        n_step=options.n_step,
        batch_size=options.batch_size,
        track_reuse=options.track_reuse,
        device=options.device,
        rows_on=options.rows_on,
    )
    free = free_memory(options.device) if can_ask(options.device) else None
    out = console()
    out.print(table(needed))
    out.print(verdict(needed, free, options.device))
    if free is not None and needed.on_device > free and (stack := likely_stack(planned["obs"])):
        out.print(f"If that is a stack of {stack} frames, --stack {stack} keeps each frame once.")
    return DOES_NOT_FIT if free is not None and needed.on_device > free else 0


def fields(options: PlanOptions) -> dict[str, Any]:
    """The fields of a row: those of the environment, or those of the shapes given.

    Raises:
        ConfigError: Neither or both are given, or a shape cannot be read.
    """
    if (options.env is None) == (options.obs is None):
        raise ConfigError(
            "a row is that of --env (CartPole-v1) or of --obs (51, 4x84x84) and --action: give one"
        )
    if options.env is not None:
        env = make_env(options.env)
        try:
            return with_stack(fields_in(env), options.stack)
        finally:
            env.close()
    if options.obs_dtype not in DTYPES:
        raise ConfigError(unknown("number format", options.obs_dtype, DTYPES))
    if options.obs_store is not None and options.obs_store not in DTYPES:
        raise ConfigError(unknown("number format", options.obs_store, DTYPES))
    store = None if options.obs_store is None else DTYPES[options.obs_store]
    obs = Field(shape("--obs", options.obs or ""), DTYPES[options.obs_dtype], store)
    action = Field((), torch.int64)
    if options.action != "discrete":
        action = Field(shape("--action", options.action))
    return with_stack({"obs": obs, "action": action}, options.stack)


def with_stack(fields: dict[str, Any], stack: int) -> dict[str, Any]:
    """Fields of which the observation has so many frames; 0: as they are."""
    return {**fields, "obs": stacked(fields["obs"], stack)} if stack else fields


def shape(option: str, words: str) -> tuple[int, ...]:
    """A shape as typed.

    >>> shape("--obs", "4x84x84")
    (4, 84, 84)
    """
    sizes = words.lower().split("x")
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        also = " or discrete" if option == "--action" else ""
        raise ConfigError(f"{option} takes a shape such as 51 or 4x84x84{also}, got {words!r}")
    return tuple(int(size) for size in sizes)


def likely_stack(obs: Any) -> int | None:
    """How many frames an observation seems to have, each of which could be kept once."""
    if not isinstance(obs, Field) or obs.stack is not None or len(obs.shape) < 3:
        return None
    return obs.shape[0] if 2 <= obs.shape[0] <= MOST_FRAMES else None


def can_ask(device: str) -> bool:
    """Whether this machine has the device, so that its free memory can be told."""
    return device == "cpu" or torch.cuda.is_available()


def table(needed: MemoryPlan) -> Table:
    """The components and their bytes."""
    from rich import box
    from rich.table import Table

    title = f"{needed.capacity:,} rows of {needed.row_bytes:,} bytes".replace(",", "\u202f")
    made = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        show_footer=True,
    )
    made.add_column("component", "total", style="cyan", footer_style="bold")
    made.add_column("bytes", size(needed.total), justify="right", footer_style="bold")
    made.add_column("share", "100 %", justify="right", style="dim", footer_style="dim")
    made.add_column("what it holds", style="dim")
    for name, what in (
        ("rows", "the transitions themselves"),
        ("frames", "those of stacked observations, each once"),
        ("priorities", "one number a row"),
        ("tree", "sums over priorities, to draw by them"),
        ("workspace", "unfinished steps, one batch, counters"),
    ):
        count = getattr(needed, name)
        if name == "frames" and not count:
            continue
        made.add_row(name, size(count), f"{100 * count / needed.total:.1f} %", what)
    if needed.host:
        share = f"{100 * needed.host / needed.total:.1f} %"
        made.add_row("of it host", size(needed.host), share, "in RAM, not on the GPU")
    return made


def verdict(needed: MemoryPlan, free: int | None, device: str) -> str:
    """Whether it fits, and what would."""
    if free is None:
        return f"This machine does not say how much {device} memory is free."
    most = f"{needed.largest_capacity(free):,}".replace(",", "\u202f")
    if needed.on_device <= free:
        answer = "[green]It fits[/green]"
    else:
        answer = "[bold red]It does not fit[/bold red]"
    return f"{answer}: {size(free)} are free on {device}, up to {most} rows of this kind."
