"""The device memory of one buffer."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from relive.errors import InputError, shown
from relive.ops import words as w

# Words that change; all others are addresses, or follow from settings.
CHANGING = [w.SWEEP_LENGTH, *range(w.FIRST_SAVED, w.FLOATS), w.MAX_LEAF, w.DEMO_CARRY]
CHANGING_FRAMES = slice(w.NEXT_FRAME, w.NUM_MOVES)  # of the words of the frames
FROM_SETTINGS = ("columns", "gammas")  # tensors that never change


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Every tensor of a buffer, all on one device, none ever resized.

    Attributes:
        words: int64 [NUM_WORDS], see `relive.ops.words`.
        rows: uint8 [N, row_bytes], the ring.
        pending: uint8 [E, n, row_bytes], steps whose n-step window is not full yet; a ring a lane.
        lanes: int64 [E, LANE_WORDS].
        leaves: float32 [padded N], priority^alpha by slot, 0 where no row lives; empty without
            priorities.
        sums: int64, masses of the tree's inner nodes, lowest level first.
        errors: float32 [N], |td error| by slot, infinity until the first update; empty unless
            priorities are by rank.
        mins, maxs: float32, smallest positive and largest leaf below each node; empty unless
            needed.
        gammas: float64 [n + 1], gamma^k.
        columns: int64 [C, COLUMN_WORDS], where each gathered field lies and how it is read.
        uses: int32 [N], draws of each live row; empty unless reuse is tracked.
        age_counts, reuse_counts: int64 [HISTOGRAM_BINS]; empty unless reuse is tracked.
        frames: uint8 [F, bytes], the ring of frames; empty unless they are kept once.
        frame_words: int64, see `relive.ops.words`; empty likewise.
        stacks: int64 [E, k], ids of the frames of the last next observation of each lane, -1: not
            known; empty likewise.
    """

    words: Tensor
    rows: Tensor
    pending: Tensor
    lanes: Tensor
    leaves: Tensor
    errors: Tensor
    sums: Tensor
    mins: Tensor
    maxs: Tensor
    gammas: Tensor
    columns: Tensor
    uses: Tensor
    age_counts: Tensor
    reuse_counts: Tensor
    frames: Tensor
    frame_words: Tensor
    stacks: Tensor
    header: int = field(init=False)  # address of the words: all that a CPU kernel is given
    workspace: dict[str, Any] = field(init=False)  # of CUDA kernels, to be reused; not saved
    host: Any = field(init=False)  # the words as an array, where the host can read them at once

    def __post_init__(self) -> None:
        object.__setattr__(self, "header", self.words.data_ptr())
        object.__setattr__(self, "workspace", {})
        object.__setattr__(self, "host", self.words.numpy() if self.words.is_cpu else self.words)
        for word, tensor in (
            (w.ROWS, self.rows),
            (w.PENDING, self.pending),
            (w.LANES, self.lanes),
            (w.LEAVES, self.leaves),
            (w.SUMS, self.sums),
            (w.MINS, self.mins),
            (w.MAXS, self.maxs),
            (w.USES, self.uses),
            (w.AGE_COUNTS, self.age_counts),
            (w.REUSE_COUNTS, self.reuse_counts),
            (w.GAMMAS, self.gammas),
            (w.COLUMNS, self.columns),
            (w.ERRORS, self.errors),
            (w.FRAMES, self.frames),
            (w.FRAME_WORDS, self.frame_words),
            (w.STACKS, self.stacks),
        ):
            self.words[word] = tensor.data_ptr()

    @property
    def floats(self) -> Tensor:
        """The words as float64."""
        return self.words.view(torch.float64)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def memory(self) -> list[Tensor]:
        """All tensors on the device of the words, those of kernels too."""
        kept = [*self.tensors().values(), *self.workspace.values()]
        kept = [one for some in kept for one in (some if isinstance(some, tuple) else [some])]
        device = self.words.device
        return [one for one in kept if isinstance(one, Tensor) and one.device == device]

    def require_fit(self, tensors: Any) -> None:
        """Raise InputError unless a tensor is given for each of its own, of its shape and dtype."""
        if not isinstance(tensors, dict):
            raise InputError(f"the tensors of a state are a dict; given {shown(tensors)}")
        for name, tensor in self.tensors().items():
            if name in FROM_SETTINGS:
                continue
            given = tensors.get(name, None if tensor.numel() else tensor)  # of an older version
            if not isinstance(given, Tensor) or given.shape != tensor.shape:
                shape = tuple(given.shape) if isinstance(given, Tensor) else "nothing"
                raise InputError(f"{name} has shape {tuple(tensor.shape)}; given {shape}")
            if given.dtype != tensor.dtype:
                raise InputError(f"{name} is {tensor.dtype}; given {given.dtype}")
            if given.layout != torch.strided or given.is_meta:
                raise InputError(f"{name}: given a tensor without memory of its own")

    def take(self, tensors: dict[str, Tensor]) -> None:
        """Copy what `tensors` of another state of these shapes gave.

        Addresses and what was chosen at construction stay its own.

        Raises:
            InputError: a tensor is missing, or has another shape or dtype; nothing has changed.
        """
        self.require_fit(tensors)
        for name, tensor in self.tensors().items():
            if name == "words":
                tensor[CHANGING] = tensors[name][CHANGING].to(tensor.device)
            elif name == "frame_words" and tensor.numel():
                tensor[CHANGING_FRAMES] = tensors[name][CHANGING_FRAMES].to(tensor.device)
            elif name not in FROM_SETTINGS and tensor.numel():
                tensor.copy_(tensors[name])

    @property
    def keeps_frames(self) -> bool:
        """Whether frames of stacked observations are kept once."""
        return self.frame_words.numel() > 0

    def put(self, index: int, value: float) -> None:
        """Set a word; `words[index] = value` would have the host wait for a GPU."""
        words = self.words if index < w.FLOATS else self.floats
        words[index : index + 1].fill_(value)

    # What the words say, read by the host (waits on CUDA).

    def word(self, index: int) -> int:
        """One int64 word."""
        return int(self.host[index])

    def real(self, index: int) -> float:
        """One float64 word."""
        return float(self.floats[index])

    def frame_word(self, index: int) -> int:
        """One word of the frames."""
        return int(self.frame_words[index])
