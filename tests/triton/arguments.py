"""What is launched: how often, and whether a captured step would still be right.

A graph plays a step back with the arguments it had when it was captured. So a step must launch the
same kernels every time, with the same numbers by value, whatever is in the buffer:

    steps = Steps()
    for _ in range(20):
        with steps.named("update of 64"):
            update(state, ids, errors, as_leaves=False)

and few of them:

    with launches(at_most=2):
        update(state, ids, errors, as_leaves=False)
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from relive.ops.launch import Address, launch
from tests.triton.waits import launches_unseen

if TYPE_CHECKING:
    from collections.abc import Iterator

# What takes memory from torch's allocator, or only looks at some; all else launches a kernel.
ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_"}


class FrozenError(AssertionError):
    """A captured step would go on with what was true when it was captured."""


class BudgetError(AssertionError):
    """A call launches more than it may."""


class Launch(NamedTuple):
    """A kernel on its way to the device; `arguments` by name, tensors as dtype and shape."""

    kernel: str
    grid: tuple[int, ...]
    arguments: dict[str, Any]


class Steps:
    """What steps that go by one name launched the first time, compared with all later times."""

    def __init__(self) -> None:
        self.first: dict[str, list[Launch]] = {}

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """One step.

        Raises:
            FrozenError: it launches other kernels than the first step of this name, or one with
                another grid, another number by value or tensors of another shape.
        """
        with recorded() as seen:
            yield
        first = self.first.setdefault(name, seen)
        if [entry.kernel for entry in seen] != [entry.kernel for entry in first]:
            raise FrozenError(
                f"{name} launched {[entry.kernel for entry in first]}, then "
                f"{[entry.kernel for entry in seen]}"
            )
        for was, now in zip(first, seen, strict=True):
            for argument, value in {"the grid": now.grid, **now.arguments}.items():
                before = {"the grid": was.grid, **was.arguments}.get(argument)
                if before != value or type(before) is not type(value):
                    raise FrozenError(
                        f"{name}: {argument} of {now.kernel} was {before!r}, now {value!r}; what "
                        "varies has to be read from device memory"
                    )


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """The launches inside, in order."""
    seen: list[Launch] = []

    def note(kernel: Any, grid: tuple[int, ...], args: Any, constants: dict[str, Any]) -> None:
        names = getattr(kernel, "arg_names", [f"argument {k}" for k in range(len(args))])
        arguments = {**dict(zip(names, args, strict=False)), **constants}
        known = {name: _by_value(value) for name, value in arguments.items()}
        seen.append(Launch(kernel.__name__, grid, known))

    launch.listeners.append(note)
    try:
        yield seen
    finally:
        launch.listeners.remove(note)


@contextmanager
def launches(*, at_most: int) -> Iterator[list[str]]:
    """Counts kernels, of ours and of torch's; their names, once the block has ended.

    Raises:
        BudgetError: there are more than `at_most`; says which.
    """
    operations = _Operations()
    seen: list[str] = []
    with recorded() as kernels, launches_unseen(), operations:
        yield seen
    seen += [entry.kernel for entry in kernels] + operations.seen
    if len(seen) > at_most:
        raise BudgetError(f"{len(seen)} launches where {at_most} are allowed: {', '.join(seen)}")


class _Operations(TorchDispatchMode):
    """Notes what torch itself launches."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if not operation.is_view and operation.overloadpacket.__name__ not in ALLOCATIONS:
            self.seen.append(str(operation))
        return operation(*args, **(kwargs or {}))


def _by_value(argument: Any) -> Any:
    """A number as it is; of a tensor or address what a launch is specialised to."""
    if isinstance(argument, Address):
        argument = argument.tensor
    if isinstance(argument, Tensor):
        return f"{argument.dtype} {tuple(argument.shape)}"
    if isinstance(argument, tuple | list):
        return tuple(map(_by_value, argument))
    return argument
