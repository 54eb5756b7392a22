"""Between the actions of an environment and [-1, 1]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relive.errors import ConfigError, InputError, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class ActionScale:
    """The box of an environment's actions, and the way from it to [-1, 1] and back.

    Networks see and give numbers in [-1, 1], environments and buffers have their own units; this is
    the only place where one becomes the other.

    Args:
        low: Smallest action, of any shape; D numbers.
        high: Largest action, of the same shape.
        device: Where tensors are scaled.

    Attributes:
        shape: Of one action.
        size: D.

    Raises:
        ConfigError: Bounds of two shapes, infinite ones, or an empty range between two.

    Examples:
        >>> scale = ActionScale([-1.0, 0.0], [1.0, 10.0])
        >>> scale.to_unit(torch.tensor([[0.5, 0.0]]))
        tensor([[ 0.5000, -1.0000]])
        >>> scale.from_unit(torch.tensor([[0.5, 0.0]]))
        tensor([[0.5000, 5.0000]])
    """

    def __init__(self, low: Any, high: Any, device: torch.device | str = "cpu") -> None:
        lows, highs = _float32(low, np.inf), _float32(high, -np.inf)
        if lows.shape != highs.shape or not lows.size:
            raise ConfigError(
                "the bounds of actions are of one shape; "
                f"given low {shown(lows.shape)} and high {shown(highs.shape)}"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.abs(lows) + np.abs(highs)  # infinite also where a float32 cannot hold it
        if not (np.isfinite(spread).all() and (lows < highs).all()):
            raise ConfigError(
                "actions are scaled, so each has finite bounds, low < high; given low "
                f"{shown(lows.tolist())}, high {shown(highs.tolist())}; "
                "gymnasium.wrappers.TransformAction can give an environment a finite box"
            )
        self.low, self.high = lows, highs
        self.shape, self.size = lows.shape, lows.size
        bounds = torch.from_numpy(np.stack([lows, highs])).to(device)
        self._low, self._high = (bound.clone() for bound in bounds.reshape(2, -1))
        self._middle, self._half = (self._low + self._high) / 2, (self._high - self._low) / 2
        self._is_unit = bool((lows == -1.0).all() and (highs == 1.0).all())

    @classmethod
    def for_env(cls, env: Any, device: torch.device | str = "cpu") -> ActionScale:
        """The box of an environment of Gymnasium's, or of one copy of a vector environment.

        Raises:
            ConfigError: Its actions are no box of floats, or as above.
        """
        space = getattr(env, "single_action_space", None) or env.action_space
        if not hasattr(space, "low") or space.dtype.kind != "f":
            raise ConfigError(f"the action space is {space}; expected Box(low, high) of floats")
        return cls(space.low, space.high, device)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ActionScale)
            and self.low.tolist() == other.low.tolist()
            and self.high.tolist() == other.high.tolist()
        )

    def __hash__(self) -> int:
        return hash((self.low.tobytes(), self.high.tobytes()))

    def __repr__(self) -> str:
        return f"ActionScale({self.low.tolist()}, {self.high.tolist()})"

    def to(self, device: torch.device | str) -> ActionScale:
        """The same for tensors on `device`."""
        return ActionScale(self.low, self.high, device)

    def to_unit(self, action: Tensor) -> Tensor:
        """Actions of the environment, `[B, *shape]`, in [-1, 1], `[B, D]`.

        Those of a box from -1 to 1 are given back as they lie.

        Raises:
            InputError: They are not of this box.
        """
        if self._is_unit and action.shape[1:] == (self.size,) and action.dtype == torch.float32:
            return action  # two operations would give the same bits
        if action.numel() != len(action) * self.size:
            raise InputError(
                f"one action has the shape {shown(tuple(action.shape[1:]))}, the ActionScale "
                f"{shown(self.shape)}; ActionScale.for_env(env) makes one that fits"
            )
        flat = action.reshape(len(action), self.size)
        unit: Tensor = (flat - self._middle) / self._half
        return unit

    def from_unit(self, action: Tensor) -> Tensor:
        """Actions in [-1, 1], `[B, D]`, as the environment takes them, `[B, *shape]`.

        Never outside of the box, which rounding could leave by the last bit.
        """
        scaled: Tensor = self._middle + self._half * action  # rounded twice, as NumPy does
        return scaled.clamp(self._low, self._high).view(action.shape[0], *self.shape)

    def array_from_unit(self, action: NDArray[Any]) -> NDArray[np.float32]:
        """As `from_unit`, from an array to one; whatever device tensors are scaled on."""
        unit = action.astype(np.float32, copy=False).reshape(len(action), *self.shape)
        scaled: NDArray[Any] = unit
        if not self._is_unit:
            scaled = (self.low + self.high) / 2 + (self.high - self.low) / 2 * unit
        inside: NDArray[np.float32] = np.minimum(np.maximum(scaled, self.low), self.high)
        return inside


def _float32(bound: Any, inwards: float) -> NDArray[np.float32]:
    """A bound as float32, and if that is another number, the next one `inwards` of the box."""
    wide = np.asarray(bound, np.float64)
    rounded = wide.astype(np.float32)
    outside = (rounded < wide) if inwards > 0 else (rounded > wide)
    return np.where(outside, np.nextafter(rounded, np.float32(inwards)), rounded)
