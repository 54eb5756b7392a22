"""What a buffer is made with: one value, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import torch

from relive.declared import take_plain
from relive.devices import known_device
from relive.errors import ConfigError, UnsupportedError, shown
from relive.fields import Fields, RowLayout
from relive.frames import FrameLayout
from relive.ops import words as w
from relive.sampling import Recent, Sampler, Uniform
from relive.sampling.settings import check_choice, check_flag, check_schedule, write_schedule
from relive.schedules import Linear, Schedule
from relive.storage import memory, ring
from relive.writing import autoreset as resets

if TYPE_CHECKING:
    from relive.batch import BatchLayout
    from relive.ops.state import State

Autoreset = Literal["disabled", "next_step", "same_step"]
RowsOn = Literal["device", "host"]
Kernels = Literal["auto", "reference", "cpu"]
OnFailure = Literal["raise", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of `ReplayBuffer`, but for the seed.

    Raises:
        ConfigError: A value outside its range, or values that do not fit each other.
        UnsupportedError: A device that is not there.
    """

    capacity: int
    fields: Fields
    sampler: Sampler = Uniform()
    window: Recent | None = None
    demo_fraction: Schedule | None = 0.5
    num_envs: int = 1
    n_step: int = 1
    gamma: float = 0.99
    autoreset: Autoreset | None = None
    device: str | torch.device = "cpu"
    rows_on: RowsOn = "device"
    track_reuse: bool = False
    kernels: Kernels = "auto"
    on_failure: OnFailure = "raise"

    def __post_init__(self) -> None:
        take_plain(self)
        for name in ("capacity", "num_envs", "n_step"):
            memory.check_count(name, getattr(self, name))
        memory.check_capacity(self.capacity, self.num_envs)
        gamma = self.gamma
        if isinstance(gamma, bool) or not isinstance(gamma, int | float) or not 0 <= gamma <= 1:
            raise ConfigError(f"gamma lies in [0, 1]; given {shown(gamma)}")
        if self.autoreset is not None:
            check_choice("autoreset", self.autoreset, resets.MODES)
        elif self.num_envs > 1:
            raise ConfigError(
                f"say how the {self.num_envs} environments reset: autoreset= "
                f"{' | '.join(resets.MODES)} "
                "(ReplayBuffer.for_env reads it from a Gymnasium vector environment)"
            )
        if not isinstance(self.sampler, Sampler):
            raise ConfigError(
                "sampler is Uniform(), Proportional(...) or RankBased(...); "
                f"given {shown(self.sampler)}"
            )
        if self.window is not None and not isinstance(self.window, Recent):
            raise ConfigError(f"window is None or Recent(...); given {shown(self.window)}")
        if self.demo_fraction is not None:
            checked = check_schedule("demo_fraction", self.demo_fraction, 0.0, 1.0)
            object.__setattr__(self, "demo_fraction", checked)
        check_flag("track_reuse", self.track_reuse)
        check_choice("on_failure", self.on_failure, {"raise": 0, "cpu": 1})
        device = known_device(self.device)
        memory.check_rows_on(self.rows_on, device.type)
        if device.type == "cuda" and getattr(self.sampler, "bad_priority", None) == "raise":
            raise UnsupportedError(
                "bad_priority='raise' would wait for the GPU at every update; take 'keep' or "
                "'max', which count bad priorities in stats()"
            )
        object.__setattr__(self, "device", str(device))

    @property
    def resets(self) -> Autoreset:
        """How environments reset; "disabled" where nothing was said."""
        return self.autoreset or "disabled"

    def arguments(self) -> dict[str, Any]:
        """By name, as the constructor of a buffer takes them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def layouts(self) -> tuple[RowLayout, RowLayout]:
        """Where each field lies in a packed step, and in a row; see `memory.layouts`."""
        return memory.layouts(self.fields, known_device(self.device).type)

    def new_state(self, step: RowLayout, row: RowLayout, batch: BatchLayout) -> State:
        """The memory of an empty buffer.

        Raises:
            ConfigError: More than is free.
        """
        frames = FrameLayout.of(step, row, self.capacity, self.num_envs, self.n_step)
        shapes = memory.tensor_shapes(
            self.capacity, row, self.sampler, self.num_envs, self.n_step, self.track_reuse, frames
        )
        state = memory.allocate(shapes, known_device(self.device), self.rows_on)
        ring.initialise(
            state, row, batch, gamma=float(self.gamma), autoreset=resets.MODES[self.resets]
        )
        if frames is not None:
            ring.initialise_frames(state, frames)
        self.sampler.configure(state)
        if self.window is not None:
            self.window.configure(state)
        if self.demo_fraction is not None:
            state.words[w.DEMO_MODE] = w.TWO_PARTS
            write_schedule(state, w.DEMO_SHARE_START, cast("Linear", self.demo_fraction))
        return state


def in_host_memory(settings: Settings) -> Settings:
    """The same settings, of a buffer on the CPU."""
    return replace(settings, device="cpu", rows_on="device")
