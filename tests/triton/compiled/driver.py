"""Kernels are compiled for a GPU that need not be there, at the launches that would start them.

    with compiled_launches(90) as kernels:
        update(state, ids, errors, as_leaves=False)

A launch then compiles its kernel for exactly what it was given (dtypes, alignment of addresses,
constants, warps) and runs nothing. Tensors may lie anywhere.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget

from relive.ops.launch import LAYOUT, Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator


class CompiledKernel(NamedTuple):
    """What one launch would run; `code` is Triton's, with `asm` and `metadata`."""

    name: str
    warps: int
    constants: dict[str, Any]
    code: Any


class Driver:
    """What Triton asks of a GPU of a compute capability, such as 90, before it starts a kernel."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        """A number; what is compiled for it is kept apart from that for other devices."""
        return self.capability

    def get_current_stream(self, device: int) -> int:  # noqa: ARG002 - Triton's signature
        """The default one."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Where tensors are."""
        return torch.device("cpu")


@contextmanager
def compiled_launches(capability: int) -> Iterator[list[CompiledKernel]]:
    """What the launches inside compile, in order; nothing runs."""
    drivers = triton.runtime.driver
    before, drivers._active = drivers._active, Driver(capability)  # it has no public way back
    start, compiled = Launcher.__call__, []

    def compile_only(
        launcher: Launcher,
        kernel: Any,
        grid: tuple[int, ...],
        *args: Any,
        warps: int = 4,
        **constants: Any,
    ) -> None:
        code = kernel.warmup(
            *args, grid=grid, **constants, LAYOUT=LAYOUT, num_warps=warps, enable_fp_fusion=False
        )
        compiled.append(CompiledKernel(kernel.__name__, warps, constants, code))

    Launcher.__call__ = compile_only
    try:
        yield compiled
    finally:
        Launcher.__call__ = start
        drivers._active = before
