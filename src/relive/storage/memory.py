"""How much memory a buffer needs, and getting it."""

from __future__ import annotations

import math
import mmap
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from relive.batch import BatchLayout
from relive.declared import is_whole, plain
from relive.devices import known_kind
from relive.errors import ConfigError, shown
from relive.fields import Fields, RowLayout
from relive.frames import FrameLayout, as_stored, most_at_once, stack_in
from relive.gpu.pinned import pin
from relive.ops import words as w
from relive.ops.state import State
from relive.ops.tree.shape import LEAVES_PER_NODE, level_sizes

IN_ROWS = ("rows", "frames")  # what rows_on="host" keeps in host memory
HUGE_PAGE = 1 << 21
NOTE_BYTES = 4 + 8  # of a frame that is looked at on a GPU: what it equals, and an id
STAGING_BYTES = 1 << 18  # fits the processor's second cache
ROW_ALIGNMENT = {"cpu": 16, "cuda": 32}
COMPONENT_OF = {
    "rows": "rows",
    "leaves": "priorities",
    "errors": "priorities",
    "sums": "tree",
    "mins": "tree",
    "maxs": "tree",
    "uses": "rows",
    "frames": "frames",
}


class DoesNotFitError(ConfigError):
    """More memory than is free."""


@runtime_checkable
class Weighting(Protocol):
    """What a sampler asks of the memory."""

    @property
    def prioritized(self) -> bool:
        """A leaf a row, and sums."""

    @property
    def ranked(self) -> bool:
        """An error a row, to be sorted."""

    @property
    def needs_smallest(self) -> bool:
        """The smallest leaf below each node."""

    @property
    def needs_largest(self) -> bool:
        """The largest leaf below each node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes of a buffer, by component.

    Attributes:
        rows: the ring of packed rows, and 4 bytes a row where reuse is tracked.
        frames: the ring of frames that are kept once; 0 where observations are stored whole.
        priorities: one leaf a row, padded, and one error where they are by rank.
        tree: sums, and extrema where the sampler needs them.
        workspace: n-step lanes, staging, state words, statistics, and one batch.
        host: how many of all these are host memory, for a buffer on a GPU.
    """

    capacity: int
    row_bytes: int
    rows: int
    priorities: int
    tree: int
    workspace: int
    frames: int = 0
    host: int = 0

    @property
    def total(self) -> int:
        """Bytes of everything."""
        return self.rows + self.frames + self.priorities + self.tree + self.workspace

    @property
    def on_device(self) -> int:
        """Bytes on the buffer's device."""
        return self.total - self.host

    def largest_capacity(self, available: int) -> int:
        """About how many such rows fit into `available` bytes of the device (rather too few)."""
        workspace = self.workspace
        per_row = max(self.on_device - workspace, 1) / self.capacity
        return max(0, int((available - workspace) / per_row * 0.999))


def plan(
    capacity: int,
    fields: Fields,
    *,
    sampler: Weighting | None = None,
    num_envs: int = 1,
    n_step: int = 1,
    batch_size: int = 256,
    track_reuse: bool = False,
    device: str = "cpu",
    rows_on: str = "device",
) -> MemoryPlan:
    """The bytes that `ReplayBuffer` with these arguments will need; allocates nothing.

    Args:
        device: "cpu" or "cuda"; need not be there.
        sampler: None counts as `Uniform()`.
        batch_size: rows of the one batch counted as workspace; 0 for none.

    Raises:
        ConfigError: as the constructor of the buffer.

    Examples:
        >>> from relive import Field, Proportional, plan
        >>> fields = {"obs": Field((51,)), "action": Field((1,))}
        >>> needed = plan(100_000, fields, sampler=Proportional())
        >>> needed.row_bytes, round(needed.total / 1e6, 1)
        (448, 45.7)
    """
    capacity, num_envs, n_step = plain(capacity), plain(num_envs), plain(n_step)
    batch_size, track_reuse = plain(batch_size), plain(track_reuse)
    for name, count in (("capacity", capacity), ("num_envs", num_envs), ("n_step", n_step)):
        check_count(name, count)
    check_count("batch_size", batch_size, least=0)
    check_capacity(capacity, num_envs)
    if not isinstance(track_reuse, bool):
        raise ConfigError(f"track_reuse is True or False; given {shown(track_reuse)}")
    if sampler is not None and (isinstance(sampler, type) or not isinstance(sampler, Weighting)):
        raise ConfigError(
            f"sampler is Uniform(), Proportional(...) or RankBased(...); given {shown(sampler)}"
        )
    kind = known_kind(device)
    check_rows_on(rows_on, kind)
    step, row = layouts(fields, kind)
    frames = FrameLayout.of(step, row, capacity, num_envs, n_step)
    shapes = tensor_shapes(capacity, row, sampler, num_envs, n_step, track_reuse, frames)
    nbytes = dict.fromkeys(("rows", "frames", "priorities", "tree", "workspace", "host"), 0)
    for name, (shape, dtype) in shapes.items():
        nbytes[COMPONENT_OF.get(name, "workspace")] += math.prod(shape) * dtype.itemsize
    staging = staging_rows(step, num_envs) * step.row_bytes
    nbytes["workspace"] += staging + BatchLayout(step).arena_bytes(batch_size)
    on_device = num_envs  # steps
    if frames is not None:
        on_device = most_at_once(num_envs)
        nbytes["workspace"] += on_device * row.row_bytes
    if kind == "cuda":
        stamps = math.prod(shapes["leaves"][0]) * torch.int32.itemsize
        nbytes["tree"] += stamps  # by which an update finds the last error of a row
        nbytes["workspace"] += on_device * step.row_bytes
        if frames is not None:
            nbytes["workspace"] += on_device * 2 * frames.stack * NOTE_BYTES
        nbytes["host"] = staging
    if rows_on == "host":
        rows = (shapes[name] for name in IN_ROWS)
        nbytes["host"] += sum(math.prod(shape) * dtype.itemsize for shape, dtype in rows)
    return MemoryPlan(capacity=capacity, row_bytes=row.row_bytes, **nbytes)


def layouts(fields: Fields, kind: str) -> tuple[RowLayout, RowLayout]:
    """Of a packed step and of a row, on a kind of device; they differ where frames are kept once.

    Raises:
        ConfigError: fields of no buffer.
    """
    step = RowLayout(fields, ROW_ALIGNMENT[kind])
    is_same = stack_in(fields) is None
    return step, step if is_same else RowLayout(as_stored(fields), ROW_ALIGNMENT[kind])


def tensor_shapes(
    capacity: int,
    layout: RowLayout,
    sampler: Weighting | None,
    num_envs: int,
    n_step: int,
    track_reuse: bool,
    frames: FrameLayout | None,
) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and dtype of every tensor of the state."""
    prioritized = sampler is not None and sampler.prioritized
    sizes = level_sizes(capacity) if prioritized else [0]
    if len(sizes) > w.MAX_LEVELS:
        raise ConfigError(
            f"a prioritized buffer holds at most {LEAVES_PER_NODE * 8**w.MAX_LEVELS} rows"
        )
    nodes = sum(sizes)
    bins = w.HISTOGRAM_BINS if track_reuse else 0
    return {
        "words": ((w.NUM_WORDS,), torch.int64),
        "rows": ((capacity, layout.row_bytes), torch.uint8),
        "pending": ((num_envs, n_step, layout.row_bytes), torch.uint8),
        "lanes": ((num_envs, w.LANE_WORDS), torch.int64),
        "leaves": ((sizes[0] * LEAVES_PER_NODE,), torch.float32),
        "errors": ((capacity if sampler is not None and sampler.ranked else 0,), torch.float32),
        "sums": ((nodes,), torch.int64),
        "mins": ((nodes if sampler is not None and sampler.needs_smallest else 0,), torch.float32),
        "maxs": ((nodes if sampler is not None and sampler.needs_largest else 0,), torch.float32),
        "gammas": ((n_step + 1,), torch.float64),
        "columns": ((len(BatchLayout(layout).gathered), w.COLUMN_WORDS), torch.int64),
        "uses": ((capacity if track_reuse else 0,), torch.int32),
        "age_counts": ((bins,), torch.int64),
        "reuse_counts": ((bins,), torch.int64),
        "frames": ((frames.room, frames.pitch) if frames else (0, 0), torch.uint8),
        "frame_words": (
            (w.FIRST_MOVE + w.MOVE_WORDS * len(frames.moves) if frames else 0,),
            torch.int64,
        ),
        "stacks": ((num_envs, frames.stack if frames else 0), torch.int64),
    }


def allocate(
    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]],
    device: torch.device,
    rows_on: str = "device",
) -> State:
    """Get the memory, all of it now: pages are touched, so nothing runs out later.

    Args:
        rows_on: "host" for rows in pinned host memory.

    Raises:
        DoesNotFitError: more than is free; says how much that is and how many rows would fit.
    """
    places = dict.fromkeys(shapes, device)
    on_host = [name for name in IN_ROWS if rows_on == "host" and 0 not in shapes[name][0]]
    places |= dict.fromkeys(on_host, torch.device("cpu"))
    capacity = shapes["rows"][0][0]
    for place in dict.fromkeys(places.values()):
        here = [shapes[name] for name in shapes if places[name] == place]
        needed = sum(math.prod(shape) * dtype.itemsize for shape, dtype in here)
        free = free_memory(place)
        if free is not None and needed > free:
            raise DoesNotFitError(
                f"the buffer needs {needed / 1e9:.2f} GB on {place}, {free / 1e9:.2f} GB are free; "
                f"capacity={int(capacity * 0.9 * free / needed)} would fit"
            )
    try:
        with torch.inference_mode(False):  # so that the buffer can be used in and outside of it
            tensors: dict[str, Tensor] = {
                name: _zeros(shape, dtype, places[name]) for name, (shape, dtype) in shapes.items()
            }
            tensors |= {name: pin(tensors[name], device) for name in on_host}
            return State(**tensors)
    except torch.OutOfMemoryError as error:  # what is free is in pieces, or was taken meanwhile
        raise DoesNotFitError(
            f"the buffer does not fit in one piece each into what is free on {device}; "
            f"take fewer rows than {capacity}, or make it before other things"
        ) from error


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on the CPU in huge pages, for which a random row costs fewer looks at page tables."""
    nbytes = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or nbytes < 2 * HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype, device=device).fill_(0)
    pages = mmap.mmap(-1, nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    start = -torch.frombuffer(pages, dtype=torch.uint8).data_ptr() % HUGE_PAGE
    block = torch.frombuffer(pages, dtype=torch.uint8, count=nbytes, offset=start)
    return block.fill_(0).view(dtype).view(shape)


def staging_rows(layout: RowLayout, num_envs: int) -> int:
    """Rows that are packed before they are written: at least one step of all environments."""
    fewest = num_envs if stack_in(layout.fields) is None else most_at_once(num_envs)
    return max(fewest, STAGING_BYTES // (num_envs * layout.row_bytes) * num_envs)


def allocate_staging(layout: RowLayout, num_envs: int) -> Tensor:
    """Where rows are packed: uint8 [rows, row_bytes], zeros."""
    return torch.zeros(
        staging_rows(layout, num_envs), layout.row_bytes, dtype=torch.uint8, device="cpu"
    )


def allocate_rows(state: State) -> Tensor:
    """Rows of steps whose frames are looked at together: uint8 [steps, row_bytes], zeros."""
    steps, row_bytes = most_at_once(len(state.lanes)), state.rows.shape[1]
    return torch.zeros(steps, row_bytes, dtype=torch.uint8, device=state.words.device)


def free_memory(device: torch.device | str = "cpu") -> int | None:
    """Bytes that can still be had on a device; None where the system does not say."""
    device = torch.device(device)
    if device.type == "cuda":  # torch gives back what it keeps for later before it fails
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
        )
    except (OSError, StopIteration):
        try:
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None
    limit = _container_limit()
    return free if limit is None else min(free, limit)


def _container_limit() -> int | None:
    """What the control group of this process still allows."""
    group = Path("/sys/fs/cgroup")
    try:
        used = int((group / "memory.current").read_text())
        lines = (group / "memory.stat").read_text().splitlines()
        cached = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file"))
        return max(0, int((group / "memory.max").read_text()) - used + cached)
    except (OSError, ValueError, StopIteration):  # no group, or "max": no limit
        return None


def check_rows_on(rows_on: str, kind: str) -> None:
    """Raise ConfigError unless rows can be there for a buffer on a kind of device."""
    if not isinstance(rows_on, str) or rows_on not in ("device", "host"):
        raise ConfigError(f"rows_on is 'device' or 'host'; given {shown(rows_on)}")
    if rows_on == "host" and kind == "cpu":
        raise ConfigError(
            "rows_on='host' is for a buffer on a GPU: on the CPU all is in host memory; leave it "
            "out, or give device='cuda'"
        )


def check_capacity(capacity: int, num_envs: int) -> None:
    """Raise ConfigError unless every environment has at least one row."""
    if capacity < num_envs:
        raise ConfigError(
            f"capacity counts rows of all environments, so at least num_envs={num_envs}; "
            f"given {capacity}"
        )


def check_count(name: str, value: int, least: int = 1) -> None:
    """Raise ConfigError unless `value` is a whole number of at least `least`."""
    if not is_whole(value, least, 2**62):
        raise ConfigError(f"{name} is a whole number >= {least}; given {shown(value)}")
