"""One step of every environment, packed in host memory.

E  environments (lanes)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relive.errors import InputError
from relive.writing import autoreset as resets
from relive.writing.packer import Packer, ndim

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from relive.fields import RowLayout


class StepPacker:
    """Checks a step and packs it, with the true last observation of each episode that ends.

    Attributes:
        steps: uint8 [E, row_bytes], the step; nothing in it means anything until `pack` has
            returned.
        ends: uint8 [E, 2], whether each environment was terminated, and truncated.
        out_of_range: values of the step that their stored dtype cannot hold.

    Args:
        layout: of packed steps.
        steps: written into.
        resets: how environments reset, see `autoreset.MODES`.
    """

    def __init__(self, layout: RowLayout, steps: Tensor, resets: str) -> None:
        self.steps, self._layout, self._resets = steps, layout, resets
        self.out_of_range = 0
        num_envs = len(steps)
        self._one_env = num_envs == 1
        self._packer = Packer(layout, steps, (num_envs,))
        self._bare_packer = Packer(layout, steps, ()) if self._one_env else self._packer
        ends = slice(layout.columns["terminated"].offset, layout.columns["truncated"].offset + 1)
        self.ends = steps[:, ends].numpy()  # they lie side by side

    def pack(
        self,
        obs: Any,
        action: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        final_obs: Any,
        own: Mapping[str, Any],
    ) -> None:
        """Pack one step of every environment, as `ReplayBuffer.add` is given it.

        Raises:
            InputError: a shape, dtype or key that does not fit, or a missing final observation.
        """
        bare = self._one_env and (type(reward) is float or ndim(reward) == 0)
        packer = self._bare_packer if bare else self._packer
        packer.pack(obs, action, reward, next_obs, terminated, truncated, own)
        self.out_of_range = packer.out_of_range
        if self._resets == "same_step":
            self.out_of_range += self._pack_final(final_obs)
        elif final_obs is not None:
            self.refuse_final()

    def refuse_final(self) -> None:
        """Raise InputError for final observations that have no place here."""
        raise InputError(
            f"final_obs belongs to autoreset='same_step'; this buffer has {self._resets!r}"
        )

    def _pack_final(self, final_obs: Any) -> int:
        if not self.ends.any():
            return 0
        lanes = np.flatnonzero(self.ends.any(1)).tolist()
        value = resets.final_of(self._layout.tree["obs"], final_obs, lanes)
        return self._packer.pack_lanes("next_obs", value, lanes)
