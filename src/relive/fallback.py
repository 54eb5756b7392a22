"""A buffer on a GPU goes on in host memory where the GPU fails it.

A call that fails is undone and made again there, once. What has to be known for that:

    nothing was started yet     memory or a kernel was missing before the first launch: the state is
                                as it was
    something was started       calls of one launch never get here. Others may: the first call of
                                its kind keeps a copy of all but the rows until it is over, for
                                then kernels are compiled and started for the first time. Rows that
                                a call had written it writes again, the same, into the same slots
    neither                     a kernel that had been started before was not: nobody knows why, so
                                the state is not trusted (`DeviceLostError`)

What is read from the GPU then is checked, every invariant of it, before it is used.
"""

from __future__ import annotations

import warnings
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import torch

from relive.errors import CorruptError, DeviceLostError
from relive.gpu.capture import is_captured
from relive.gpu.failures import DeviceFailure, loses_the_device, reason, spares_the_device
from relive.ops.launch import launch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from torch import Tensor

    from relive.home import Home
    from relive.ops.state import State

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

ALWAYS_NEW = "of no kind"  # every such call keeps a copy
REWRITTEN = ("rows", "columns", "gammas")  # by the call that is made again, or never


class Movable(Protocol):
    """A buffer, as far as it is moved from here."""

    _lock: Any
    _home: Home

    def _move_to_cpu(self, reason: str, tensors: dict[str, Tensor]) -> DeviceFailure:
        """Live in host memory from now on, with what these tensors of its state hold."""
        ...


Owner = TypeVar("Owner", bound=Movable)


class Fallback:
    """Makes calls of one buffer, on the CPU where its GPU fails them.

    Args:
        device: of the buffer.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._proven: set[Hashable] = set()  # kinds of calls that have been made
        self._inside = False

    def call(
        self,
        buffer: Movable,
        kind: Hashable,
        method: Callable[..., Result],
        *args: Any,
        **kwargs: Any,
    ) -> Result:
        """`method(*args, **kwargs)`, which may be made a second time, on the CPU.

        Args:
            kind: calls that start the same kernels; None for one that changes nothing.

        Raises:
            DeviceLostError: the GPU, or what is on it, is lost.
        """
        with buffer._lock:
            if self._inside or is_captured(self._device):
                return method(*args, **kwargs)
            started, self._inside = launch.started.count, True
            before: dict[str, Tensor] | None = None
            try:
                if kind is not None and kind not in self._proven:
                    before = _copy(buffer._home.state)
                result = method(*args, **kwargs)
            except Exception as error:
                undone = before is not None or launch.started.count == started or kind is None
                self._leave(buffer, error, before or {}, undone=undone)
            else:
                if kind is not ALWAYS_NEW:
                    self._proven.add(kind)
                return result
            finally:
                self._inside = False
            return method(*args, **kwargs)

    def call_unlocked(
        self, buffer: Movable, method: Callable[..., Result], *args: Any, **kwargs: Any
    ) -> Result:
        """As `call`, for what changes nothing and may wait for a thread that calls the buffer."""
        try:
            return method(*args, **kwargs)
        except Exception as error:
            with buffer._lock:
                if buffer._home.guard is self:  # no other thread was faster
                    self._leave(buffer, error, {}, undone=True)
        return method(*args, **kwargs)

    def _leave(
        self, buffer: Movable, error: Exception, before: dict[str, Tensor], *, undone: bool
    ) -> None:
        """Move the buffer, as it was before the call; raises the error if that is no way out."""
        if loses_the_device(error):
            buffer._home.keep()
            raise lost(self._device, error) from error
        if not spares_the_device(error):
            raise error
        if not undone:
            raise lost(self._device, error, "the call was half done") from error
        try:
            torch.cuda.synchronize(self._device)  # what failed before is told now
            tensors = buffer._home.state.tensors() | before
            failure = buffer._move_to_cpu(reason(error), tensors)
        except CorruptError as wrong:
            raise lost(self._device, error, f"it was damaged: {wrong}") from error
        except RuntimeError as worse:
            if loses_the_device(worse):
                buffer._home.keep()
                raise lost(self._device, worse) from worse
            raise
        tell(failure)


def _copy(state: State) -> dict[str, Tensor] | None:
    """All that a call changes, but for rows; None where there is no room for it. Never waits."""
    try:
        tensors = state.tensors().items()
        return {name: tensor.clone() for name, tensor in tensors if name not in REWRITTEN}
    except torch.OutOfMemoryError:
        return None


def falls_back(
    method: Callable[Concatenate[Owner, Arguments], Result], *, changes: bool = True
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """A method of a buffer that is made again on the CPU where its GPU fails it.

    Args:
        changes: whether the method changes the state; each call then keeps a copy until it is over.
    """

    @wraps(method)
    def made(self: Owner, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        guard = self._home.guard
        if guard is None:
            return method(self, *args, **kwargs)
        kind = ALWAYS_NEW if changes else None
        return guard.call(self, kind, method, self, *args, **kwargs)

    return cast("Callable[Concatenate[Owner, Arguments], Result]", made)


def reads(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """As `falls_back`, of a method that changes nothing."""
    return falls_back(method, changes=False)


def tell(failure: DeviceFailure) -> None:
    """Warn that a buffer is on the CPU."""
    warnings.warn(
        f"the buffer on {failure.device} failed ({failure.reason}) and is on the CPU from now on: "
        f"{failure.kept}; batches go to {failure.device} as before",
        RuntimeWarning,
        stacklevel=4,
    )


def lost(device: torch.device, error: BaseException, how: str = "") -> DeviceLostError:
    """What to raise when a GPU takes the buffer with it."""
    told = f" ({how})" if how else ""
    return DeviceLostError(
        f"what the buffer had on {device} is lost{told}: {reason(error)}; go on from the last save "
        "in a new process, or on the CPU: ReplayBuffer.load(path, device='cpu')"
    )
