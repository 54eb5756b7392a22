"""The tree of torchrl's prioritized buffer on CUDA, kernel by kernel, for Triton.

torchrl 0.14 builds it (`torchrl/csrc/cuda_segment_tree.cu`) only into wheels for CUDA, which are
not on the package index. What its kernels do, and in how many launches, is the same here:

    set_leaves       one thread writes all leaves, in order, so that the last of an index counts
    add_up           a launch for each level, every node of it
    query            one thread adds up (or takes the least of) a run of leaves
    find             a thread a draw goes down from the root
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

THREADS = 256


@triton.jit
def set_leaves(tree, capacity, index, value, count):
    """One after another, in one program of a warp."""
    for i in range(count):
        tl.store(tree + capacity + tl.load(index + i), tl.load(value + i))


@triton.jit
def add_up(tree, first, IS_LEAST: tl.constexpr, BLOCK: tl.constexpr):
    """The nodes first..2 * first - 1 from their children."""
    node = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = node < first
    node += first
    left = tl.load(tree + 2 * node, inside)
    right = tl.load(tree + 2 * node + 1, inside)
    tl.store(tree + node, tl.minimum(left, right) if IS_LEAST else left + right, inside)


@triton.jit
def query(tree, capacity, ends, out, IS_LEAST: tl.constexpr):
    """Of the leaves ends[0]..ends[1] - 1."""
    left = tl.load(ends) + capacity
    right = tl.load(ends + 1) + capacity
    found = tl.full((), float("inf") if IS_LEAST else 0.0, tl.float32)
    while left < right:
        if left % 2 == 1:
            value = tl.load(tree + left)
            found = tl.minimum(found, value) if IS_LEAST else found + value
            left += 1
        if right % 2 == 1:
            right -= 1
            value = tl.load(tree + right)
            found = tl.minimum(found, value) if IS_LEAST else found + value
        left //= 2
        right //= 2
    tl.store(out, found)


@triton.jit
def find(tree, mass, out, count, LEVELS: tl.constexpr, BLOCK: tl.constexpr):
    """The leaf where the sum of those before first reaches each mass."""
    draw = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = draw < count
    left_over = tl.load(mass + draw, inside)
    node = tl.full((BLOCK,), 1, tl.int64)
    for _ in range(LEVELS):
        node *= 2
        left = tl.load(tree + node, inside)
        goes_right = left_over > left
        left_over = tl.where(goes_right, left_over - left, left_over)
        node += goes_right.to(tl.int64)
    tl.store(out + draw, node - (1 << LEVELS), inside)


class SegmentTree:
    """float32 [2 * capacity], the root at 1; of sums, or of the least.

    Args:
        size: leaves; the capacity is the next power of two above.
    """

    def __init__(self, size: int, device: torch.device, *, is_least: bool) -> None:
        self.levels = size.bit_length()
        self.capacity = 1 << self.levels
        self.is_least = is_least
        nothing = float("inf") if is_least else 0.0
        self.tree = torch.full((2 * self.capacity,), nothing, device=device)

    def update(self, index: Tensor, value: Tensor) -> None:
        """Set leaves, and compute every level anew; index int64 [B], value float32 [B]."""
        set_leaves[(1,)](self.tree, self.capacity, index, value, len(index), num_warps=1)
        count = self.capacity // 2
        while count:
            grid = (triton.cdiv(count, THREADS),)
            add_up[grid](self.tree, count, IS_LEAST=self.is_least, BLOCK=THREADS, num_warps=8)
            count //= 2

    def query(self, ends: Tensor) -> Tensor:
        """Of the leaves from ends[0] to ends[1], int64 [2]: float32 []."""
        out = torch.empty((), device=self.tree.device)
        query[(1,)](self.tree, self.capacity, ends, out, IS_LEAST=self.is_least, num_warps=1)
        return out

    def find(self, mass: Tensor) -> Tensor:
        """Leaves where the sum of all before comes to `mass`, float32 [B]: int64 [B]."""
        out = torch.empty(len(mass), dtype=torch.int64, device=mass.device)
        grid = (triton.cdiv(len(mass), THREADS),)
        find[grid](self.tree, mass, out, len(mass), LEVELS=self.levels, BLOCK=THREADS, num_warps=8)
        return out

    def at(self, index: Tensor) -> Tensor:
        """Leaves, float32 [B]."""
        return self.tree.index_select(0, index + self.capacity)
