"""Batches that come back: memory and views of a batch that nobody holds any more are used again.

A new batch costs an allocation and a view a field, which is more than drawing its rows; and memory
that was just read is still in the processor's cache. So a batch is lent: when nothing of it can be
reached by anyone, the next one is written into it. That is looked at, never assumed: the references
of Python to the batch and to each of its tensors, weak ones too, what was made an attribute of a
tensor, the references of torch to each tensor (autograd saves tensors) and to their memory (slices,
NumPy arrays and DLPack capsules share it).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import getweakrefcount as weak_references

import torch
from torch import Tensor

from relive.batch import Batch
from relive.errors import InputError
from relive.storage.memory import free_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.batch import BatchLayout

LARGE = 1 << 28  # bytes; to ask the system what is free takes longer than a small batch
KEPT = 4  # batches: the one in the caller's hands while the next is drawn, of two sizes

references = sys.getrefcount
# Torch promises neither of them; where one is missing, no batch is taken back.
references_of_torch: Any = getattr(Tensor, "_use_count", None)
references_to_memory: Any = getattr(torch._C, "_storage_Use_Count", None)

# Without a global lock, counts of references say nothing about other threads.
COUNTS_ARE_EXACT = (
    getattr(sys, "_is_gil_enabled", lambda: True)()
    and references_of_torch is not None
    and references_to_memory is not None
)


class Lender:
    """Makes batches of one layout, and takes back those that have been abandoned."""

    def __init__(self, layout: BatchLayout, device: torch.device) -> None:
        self._layout = layout
        self._device = device
        self._sizes: dict[int, tuple[dict[str, int], int]] = {}
        self._lent: list[_Loan] = []
        # A stream of CUDA may read what the host has let go of.
        self._takes_back = COUNTS_ARE_EXACT and device.type == "cpu"

    def make(self, batch_size: int) -> Batch:
        """A new batch, that stays with the caller for good."""
        size = self._sizes.get(batch_size)
        if size is None:
            size = self._layout.offsets(batch_size), self._layout.arena_bytes(batch_size)
            self._sizes[batch_size] = size
        return Batch(self._layout, self._memory(batch_size, size[1]), batch_size, size[0])

    def _memory(self, batch_size: int, nbytes: int) -> Tensor:
        # Some systems promise memory that they do not have, and end whoever uses it.
        free = free_memory(self._device) if nbytes > LARGE and self._device.type == "cpu" else None
        failure: Exception | None = None
        if free is None or nbytes < free:
            try:
                return torch.empty(nbytes, dtype=torch.uint8, device=self._device)
            except (RuntimeError, TypeError) as error:  # more than is free, or a number holds
                failure = error if self._may_have(nbytes) else None
        raise InputError(
            f"a batch of {batch_size} rows needs {nbytes / 1e9:.1f} GB, more than there is; draw "
            "it in parts"
        ) from failure

    def _may_have(self, nbytes: int) -> bool:
        """Whether a GPU that fails to give so much has failed, and not whoever asked for it."""
        return self._device.type == "cuda" and nbytes <= torch.cuda.mem_get_info(self._device)[1]

    def lend(self, batch_size: int) -> Batch:
        """A batch that nobody else can see: one that has been abandoned, or a new one."""
        for loan in self._lent:
            if loan.batch_size == batch_size and loan.is_over():
                loan.batch._nested.clear()
                return loan.batch
        batch = self.make(batch_size)
        if self._takes_back and not batch._arena.is_inference():
            self._lent.append(_Loan(batch))
            if len(self._lent) > KEPT:
                del self._lent[0]
        return batch


class _Loan:
    """A batch somebody may hold, and how to find out."""

    __slots__ = ("address", "batch", "batch_size", "cdata", "memory")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.batch_size = len(batch)
        self.address = batch._arena.data_ptr()
        self.memory = batch._arena.untyped_storage()
        self.cdata = self.memory._cdata

    def is_over(self) -> bool:
        """Whether nobody can reach any of its memory, and its tensors are as they were made."""
        batch, memory = self.batch, self.memory
        arena, views = batch._arena, batch._views
        tensors = BESIDES_TENSORS + 1 + len(batch._typed) + len(views)
        if (
            references(batch) != BATCH_ALONE
            or references(memory) != MEMORY_ALONE
            or references_to_memory(self.cdata) != tensors
            or references(arena) > BASE_ALONE
            or arena._version != 0  # changed in place: its shape too, perhaps
            or arena.data_ptr() != self.address  # moved, to be shared with a process
        ):
            return False
        for base in batch._typed.values():
            if references(base) > BASE_ALONE:
                return False
        for view in views.values():
            if (
                references(view) != TENSOR_ALONE
                or references_of_torch(view) != 1
                or weak_references(view)
                or view.__dict__
                or view.requires_grad
                or view.grad is not None
            ):
                return False
        return True


def _alone(make: Callable[[], Any]) -> int:
    """References to an object that one container and one variable hold."""
    for held in [make()]:
        return references(held)
    raise AssertionError


_probe = torch.empty(1, device="cpu")
_memory = _probe.untyped_storage()  # held, as that of a loan is: torch 2.9 counts who holds it
_base = torch.empty(1, device="cpu")
_view = _base.as_strided((1,), (1,))  # held, as those of a batch are: torch 2.13 counts its base
BATCH_ALONE, TENSOR_ALONE = _alone(object), _alone(lambda: torch.empty(1, device="cpu"))
BASE_ALONE = _alone(lambda: _base) - 1  # it has a name here, too
MEMORY_ALONE = _alone(torch.empty(1, device="cpu").untyped_storage)
BESIDES_TENSORS = references_to_memory(_memory._cdata) - 1 if COUNTS_ARE_EXACT else 0
