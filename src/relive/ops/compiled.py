"""How the CPU kernels are compiled: Numba, GIL released, cached on disk, and two ways to memory.

Numba's cache notices an edit of the file a kernel stands in, but not of the files it calls into.
Here the stamp of a cached kernel is a digest of every `cpu.py` (and of the words they share), so an
edit anywhere is seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from llvmlite import ir
from numba import carray, njit, types
from numba.core import caching, cgutils
from numba.extending import intrinsic

from relive.ops import words as w

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": False}


def kernel_digest() -> str:
    """Digest of the sources that compiled kernels are made of."""
    folder = Path(__file__).parent
    layouts = [folder.parent / "fields.py", folder.parent / "batch.py"]  # kernels use their numbers
    sources = [path for path in sorted(folder.rglob("*.py")) if path.name != "cuda.py"]
    sources += layouts
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]  # numba ships no stubs
    """The on-disk cache of one kernel, valid as long as no kernel source has changed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = caching.IndexDataCacheFile(
            cache_path=self._cache_path, filename_base=self._impl.filename_base, source_stamp=DIGEST
        )

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """What is on disk; None, so that it is compiled anew, where that is damaged."""
        try:
            return super().load_overload(signature, target_context)
        except Exception:  # whatever a damaged file makes of unpickling
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep what was compiled, unless the disk is full."""
        with suppress(OSError):
            super().save_overload(signature, data)


DIGEST = kernel_digest()


def kernel(function: Kernel) -> Kernel:
    """Compile an entry point: called from Python, cached on disk."""
    compiled: Any = njit(**OPTIONS)(function)
    with suppress(RuntimeError):  # nowhere to write: then it is compiled in each process
        compiled._cache = _KernelCache(function)
    return compiled


def helper(function: Kernel) -> Kernel:
    """Compile a function that only kernels call."""
    return njit(**OPTIONS)(function)


def _pointer_to(number_type: Any) -> Any:
    @intrinsic  # numba ships no stubs
    def pointer(typing_context: Any, address: Any) -> Any:  # noqa: ARG001 - numba's calling convention
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(number_type)(types.int64), build

    return pointer


int64_pointer = _pointer_to(types.int64)
int32_pointer = _pointer_to(types.int32)
float64_pointer = _pointer_to(types.float64)
float32_pointer = _pointer_to(types.float32)
byte_pointer = _pointer_to(types.uint8)
uint16_pointer = _pointer_to(types.uint16)
uint32_pointer = _pointer_to(types.uint32)


@helper
def words_at(header: Any) -> Any:
    """The words of a state, as int64 and as float64."""
    return (
        carray(int64_pointer(header), w.NUM_WORDS),
        carray(float64_pointer(header), w.NUM_WORDS),
    )


@intrinsic
def copy_bytes(typing_context: Any, target: Any, source: Any, count: Any) -> Any:  # noqa: ARG001
    """Copy memory between two addresses."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        byte = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder, builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], 1
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@helper
def copy_value(target: Any, source: Any, nbytes: Any) -> None:
    """Copy a value of any size; one move, or a few that overlap, where memcpy would be a call."""
    if nbytes == 4:
        copy_bytes(target, source, 4)
    elif nbytes == 1:
        copy_bytes(target, source, 1)
    elif nbytes >= 256 or nbytes < 8:
        copy_bytes(target, source, nbytes)
    elif nbytes >= 32:
        for offset in range(0, nbytes - 31, 32):
            copy_bytes(target + offset, source + offset, 32)
        copy_bytes(target + nbytes - 32, source + nbytes - 32, 32)
    elif nbytes >= 16:
        copy_bytes(target, source, 16)
        copy_bytes(target + nbytes - 16, source + nbytes - 16, 16)
    else:
        copy_bytes(target, source, 8)
        copy_bytes(target + nbytes - 8, source + nbytes - 8, 8)


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
    """Ask for the cache line at an address, to be read soon."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        word = ir.IntType(32)
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(types.int64), build


@intrinsic
def multiply_high(typing_context: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    """High 64 bits of the product of two unsigned 64-bit integers."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), build


@intrinsic
def reverse_bits(typing_context: Any, value: Any) -> Any:  # noqa: ARG001
    """The 64 bits of an integer, the lowest first."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.bitreverse.i64")
        return builder.call(function, args)

    return types.uint64(types.int64), build
