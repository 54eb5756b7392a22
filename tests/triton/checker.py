"""Kernels under Triton's interpreter, watched: what a GPU would do wrong raises here.

    with checked(shuffle=3):
        sample(state, arena, 64, train=True)

Raised in the call that is at fault:

    bounds     a load or store outside the tensors of the launch, or at an address that is no
               multiple of its size
    races      two programs of a launch touch an address, one of them by a store, or one by an
               atomic and the other by a plain load: their order is not defined
    barriers   two threads of a program do so without `tl.debug_barrier()` between. A scalar, like a
               block of fewer lanes than the program has threads, is loaded by several threads and
               stored by one, so that even `store(p, load(p) + 1)` is a race unless the program has
               one warp; `tl.atomic_add` is none
    stores     lanes of one store write different values to one address
    asserts    `tl.device_assert`, which the interpreter ignores otherwise

Programs run one after another, in an order shuffled by a seed. Triton is pinned where this runs: it
replaces parts of the interpreter.
"""

from __future__ import annotations

import builtins
import random
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter
from torch import Tensor

from relive.ops.launch import Address
from tests.triton.accesses import ATOMIC, LOAD, NAMES, STORE, Accesses, KernelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["KernelError", "checked"]


@contextmanager
def checked(
    *,
    shuffle: int | None = None,
    benign: Iterable[Tensor] = (),
    reachable: Iterable[Tensor] = (),
) -> Iterator[None]:
    """Watches every launch inside.

    Args:
        shuffle: Seed of the order of programs; None: as they are numbered.
        benign: Tensors on which races are meant, such as several programs storing one value.
        reachable: Tensors that kernels find by an address in memory.

    Raises:
        KernelError: see above.
    """
    watch = _Watch([extent(t) for t in benign], [extent(t) for t in reachable])
    executor, builder = interpreter.GridExecutor, interpreter.interpreter_builder
    run, accesses, options = executor.__call__, interpreter._interpreter, builder.options
    patch = interpreter._patch_lang

    def patch_once(function: Any) -> Any:
        """Makes `tl` the interpreter's once a launch; in every call it would double the time."""
        return interpreter._LangPatchScope() if watch.has_patched(function) else patch(function)

    def watched(self: Any, *args: Any, **constants: Any) -> None:
        threads = 32 * constants.get("num_warps", 4)
        watch.begin(self.fn.__name__, [*args, *constants.values()], threads)
        try:
            run(self, *args, **constants)
        except interpreter.InterpreterError as error:
            raise _first_cause(error) from None
        watch.end()

    executor.__call__ = watched
    interpreter._interpreter, interpreter._patch_lang = _Memory(accesses, watch), patch_once
    builder.options = interpreter.InterpreterOptions(debug=True, sanitize_overflow=False)
    builder.create_barrier = watch.barrier
    if shuffle is not None:
        interpreter.range = _shuffled(random.Random(shuffle))
    try:
        yield
    finally:
        executor.__call__, interpreter._interpreter, builder.options = run, accesses, options
        interpreter._patch_lang = patch
        del builder.create_barrier
        if shuffle is not None:
            del interpreter.range


def extent(tensor: Tensor) -> tuple[int, int]:
    """First address of a tensor and the one behind its last element."""
    if tensor.numel() == 0:
        return 0, 0
    spans = ((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.data_ptr()
    return first, first + (sum(spans) + 1) * tensor.element_size()


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Address):
            yield value.tensor
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


class _Watch:
    """What the programs of the launch that runs have touched."""

    def __init__(self, benign: list[tuple[int, int]], reachable: list[tuple[int, int]]) -> None:
        self.benign, self.reachable = benign, reachable
        self.languages: dict[str, set[str]] = {}  # of Triton's, that a module of kernels sees

    def begin(self, kernel: str, args: Iterable[Any], threads: int) -> None:
        self.kernel = kernel
        self.patched: set[str] = set()
        self.extents = [*self.reachable, *map(extent, _tensors(args))]
        self.accesses = Accesses(kernel, threads)
        self.barriers = 0

    def has_patched(self, function: Any) -> bool:
        """Whether all that a function sees of Triton's language is the interpreter's already."""
        module = function.__module__
        if module not in self.languages:
            seen = function.__globals__.values()
            self.languages[module] = {
                m.__name__ for m in (tl, tl.core) if any(m is v for v in seen)
            }
        missing = self.languages[module] - self.patched
        self.patched |= missing
        return not missing

    def barrier(self) -> None:
        self.barriers += 1

    def touch(self, kind: int, pointers: Any, mask: Any, size: int, values: Any = None) -> None:
        addresses = np.asarray(pointers).astype(np.int64)
        active = np.broadcast_to(np.asarray(mask).astype(bool), addresses.shape).reshape(-1)
        lanes = np.flatnonzero(active)
        addresses = addresses.reshape(-1)[lanes]
        program = tuple(interpreter.interpreter_builder.grid_idx)
        self.require_inside(addresses, size, f"{NAMES[kind]} of {self.kernel}{program}")
        watched = np.ones(len(addresses), bool)
        for first, stop in self.benign:
            watched &= (addresses < first) | (addresses >= stop)
        if values is not None:
            values = np.broadcast_to(np.asarray(values), np.asarray(pointers).shape)
            values = values.reshape(-1)[lanes][watched]
        self.accesses.note(
            kind,
            program,
            self.barriers,
            addresses[watched],
            size,
            lanes[watched],
            active.size,
            values,
        )

    def require_inside(self, addresses: Any, size: int, what: str) -> None:
        inside = np.zeros(len(addresses), bool)
        for first, stop in self.extents:
            inside |= (addresses >= first) & (addresses + size <= stop)
        if not inside.all():
            outside = addresses[~inside]
            near = min(self.extents, key=lambda e: abs(int(outside[0]) - e[1]), default=(0, 0))
            raise KernelError(
                f"{what}: {len(outside)} lanes out of bounds, the first {outside[0] - near[1]} "
                f"bytes behind the end of the nearest tensor ({near[1] - near[0]} bytes)"
            )
        if (addresses % size).any():
            raise KernelError(f"{what}: an address is no multiple of {size} bytes")

    def end(self) -> None:
        self.accesses.require_order()


class _Memory:
    """Stands for the module that does the interpreter's loads and stores."""

    def __init__(self, module: Any, watch: _Watch) -> None:
        self._module, self._watch = module, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._watch.touch(LOAD, pointers, mask, np.dtype(dtype).itemsize)
        return self._module.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, values: Any, mask: Any) -> Any:
        self._watch.touch(STORE, pointers, mask, values.dtype.itemsize, values)
        return self._module.store(pointers, values, mask)

    def atomic_rmw(self, operation: Any, pointers: Any, values: Any, mask: Any, order: Any) -> Any:
        self._watch.touch(ATOMIC, pointers, mask, values.dtype.itemsize)
        return self._module.atomic_rmw(operation, pointers, values, mask, order)

    def atomic_cas(self, pointers: Any, expected: Any, values: Any, order: Any) -> Any:
        self._watch.touch(ATOMIC, pointers, True, values.dtype.itemsize)
        return self._module.atomic_cas(pointers, expected, values, order)


def _first_cause(error: BaseException) -> BaseException:
    """What went wrong inside a kernel; a failed assert of the kernel is its fault."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, AssertionError) and not isinstance(error, KernelError):
        return KernelError(f"device_assert: {error}")
    return error


def _shuffled(order: random.Random) -> Any:
    """`range`, in another order where the interpreter goes through the programs of a grid."""

    def shuffled_range(*bounds: int) -> Any:
        numbers = builtins.range(*bounds)
        if sys._getframe(1).f_code.co_name != "__call__":
            return numbers
        numbers = list(numbers)
        order.shuffle(numbers)
        return numbers

    return shuffled_range
