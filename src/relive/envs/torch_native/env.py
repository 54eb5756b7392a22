"""The vector environment around a task: episodes, resets, random starts.

E environments    S numbers of state    O numbers of an observation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relive.declared import is_whole, plain
from relive.errors import ConfigError, InputError, NotReadyError
from relive.ops.philox.batched import Philox

if TYPE_CHECKING:
    from relive.envs.torch_native.task import Task
    from relive.fields import Field

START_BITS = 24  # of a start's random number: what float32 holds exactly, whatever the dtype


class TorchEnv:
    """E copies of one environment as tensors; `make_torch_env` makes one.

    It resets in the same step, as Gymnasium's vector environments do with `SAME_STEP`: where an
    episode ends, `step` returns the first observation of the next one, and the last observation is
    in `info["final_obs"]`.

    The start of environment e's k-th episode is a function of (seed, e, k) alone: Philox4x32-10
    with counter k and stream e, one word for each number of the state. It does not depend on the
    device, on E, or on what the other environments did.

    All that changes is in tensors that are allocated once and updated in place. A step never makes
    the host wait and copies nothing from it, so that it can be captured in a CUDA graph. What it
    returns is in memory of its own, and never changed afterwards.

    Attributes:
        env_id: Gymnasium's name of it.
        num_envs: E.
        device: where states, actions and observations are.
        dtype: of states and rewards, float32 or float64.
        metadata: "autoreset_mode", for `ReplayBuffer.for_env`.
        task: what it is a copy of.
    """

    def __init__(
        self, task: Task, num_envs: int, *, device: torch.device, seed: int, dtype: torch.dtype
    ) -> None:
        self.num_envs = num_envs
        self.device = torch.empty(0, device=device).device  # with its number
        self.dtype = dtype
        self.metadata = {"autoreset_mode": "same_step"}
        self.env_id = task.env_id
        self.task = task
        low = torch.tensor(task.start_low, dtype=torch.float64)
        high = torch.tensor(task.start_high, dtype=torch.float64)
        self._start_low = low.unsqueeze(1).to(device, dtype)
        self._start_unit = ((high - low) / 2.0**START_BITS).unsqueeze(1).to(device, dtype)
        self._philox = Philox(device)
        self._index = torch.arange(num_envs, device=device)
        self._state = torch.zeros(len(low), num_envs, dtype=dtype, device=device)
        self._elapsed = torch.zeros_like(self._index)  # steps of the current episode
        self._episode = torch.zeros_like(self._index)  # its number
        self._reseed(seed)

    @property
    def fields(self) -> dict[str, Field]:
        """What `fields_of(env)` says, without Gymnasium: for `ReplayBuffer.for_env(fields=...)`."""
        return {"obs": self.task.obs_field, "action": self.task.action_field}

    @property
    def single_observation_space(self) -> Any:
        """The observation space of one copy, a Gymnasium `Box`.

        Raises:
            MissingExtraError: Gymnasium is not installed.
        """
        return self.task.obs_space()

    @property
    def single_action_space(self) -> Any:
        """The action space of one copy, a Gymnasium `Discrete` or `Box`.

        Raises:
            MissingExtraError: Gymnasium is not installed.
        """
        return self.task.action_space()

    @torch.no_grad()
    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        """Starts a new episode everywhere.

        Args:
            seed: Starts the random stream of this seed (any 64-bit integer) from its beginning,
                which copies from the host; None goes on with the stream, and nothing waits.

        Returns:
            Observations [E, O] float32, and an empty dictionary.

        Raises:
            ConfigError: The seed is no 64-bit integer.
        """
        if seed is not None:
            self._reseed(seed)
        self._ready = True
        self._episode += 1
        self._elapsed.zero_()
        self._state.copy_(self._starts())
        return self.task.observe(self._state), {}

    @torch.no_grad()
    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """One step of every environment, and the reset of those whose episode it ends.

        The host does not wait. Values of actions are not looked at: continuous ones are treated as
        the environment says, discrete ones outside the space have no meaning.

        Args:
            actions: [E] int64, or [E, 1] float32 if the actions are continuous; on `device`.

        Returns:
            obs [E, O] float32, reward [E] dtype, terminated [E] bool, truncated [E] bool, and info:
            "final_obs" [E, O] float32, the observation that the step led to, before any reset;
            "_final_obs" [E] bool, where an episode has ended, so that it differs from obs. As in
            Gymnasium both flags are true where an episode terminates at its time limit.

        Raises:
            NotReadyError: `reset` has not been called.
            InputError: Actions of another shape or dtype, or elsewhere. Nothing has changed then.
        """
        self._check(actions)
        action = actions.view(self.num_envs)
        state, reward, terminated = self.task.advance(self._state, action, self._elapsed == 0)
        self._elapsed += 1
        truncated = self._elapsed >= self.task.time_limit
        ended = terminated | truncated
        final_obs = self.task.observe(state)
        self._episode += ended
        self._elapsed.masked_fill_(ended, 0)
        torch.where(ended, self._starts(), state, out=self._state)
        obs = self.task.observe(self._state)
        info = {"final_obs": final_obs, "_final_obs": ended}
        return obs, reward, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """Copies of all that a later run needs to go on from here exactly.

        "state" [S, E] dtype; "elapsed" [E] int64, the steps of the current episode; "episode" [E]
        int64, its number since the seed; and "seed". The host does not wait.
        """
        copies = {name: tensor.clone() for name, tensor in self._parts().items()}
        return {**copies, "seed": self._seed}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave, here or on another device.

        This is also how a state is set by hand. Copies; waits where tensors come from elsewhere.

        Raises:
            InputError: An entry is missing, unknown, or of another shape or dtype. Nothing has
                changed then.
            ConfigError: The seed is no 64-bit integer. Nothing has changed then.
        """
        parts = self._parts()
        if saved.keys() != {*parts, "seed"}:
            raise InputError(f"expected the entries {[*parts, 'seed']}; given {list(saved)}")
        for name, tensor in parts.items():
            given = torch.as_tensor(saved[name])
            if given.shape != tensor.shape or given.dtype != tensor.dtype:
                raise InputError(
                    f"{name}: expected {list(tensor.shape)} {tensor.dtype}; "
                    f"given {list(given.shape)} {given.dtype}"
                )
        self._reseed(saved["seed"])
        for name, tensor in parts.items():
            tensor.copy_(torch.as_tensor(saved[name]))
        self._ready = True

    def close(self) -> None:
        """Nothing to close; here because other environments have it."""

    def _parts(self) -> dict[str, Tensor]:
        return {"state": self._state, "elapsed": self._elapsed, "episode": self._episode}

    def _reseed(self, seed: int) -> None:
        seed = plain(seed)
        if not is_whole(seed, -(2**63), 2**63):
            raise ConfigError(f"seed is a signed 64-bit integer; given {seed!r}")
        self._seed = seed
        self._philox.reseed(seed)
        self._episode.fill_(-1)  # so that the next reset starts episode 0
        self._ready = False

    def _starts(self) -> Tensor:
        """Where the current episode of each environment starts: [S, E] dtype."""
        words = self._philox.words(self._episode, self._index)[: len(self._state)]
        units = words.bitwise_right_shift(32 - START_BITS).to(self.dtype)
        return self._start_low + units * self._start_unit

    def _check(self, actions: Tensor) -> None:
        if not self._ready:
            raise NotReadyError("no episode has started: call reset() before step()")
        field = self.task.action_field
        shape = (self.num_envs, *field.shape)
        if not isinstance(actions, Tensor):
            raise InputError(
                f"actions: expected a tensor {list(shape)} {field.dtype} on {self.device}; "
                f"given {type(actions).__name__}, of which torch.as_tensor makes one"
            )
        if actions.shape != shape or actions.dtype != field.dtype:
            raise InputError(
                f"actions: expected {list(shape)} {field.dtype}; "
                f"given {list(actions.shape)} {actions.dtype}"
            )
        if actions.device != self.device:
            raise InputError(f"actions: expected on {self.device}; given on {actions.device}")
