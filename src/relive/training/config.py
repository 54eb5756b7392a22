"""The settings of a run: one frozen value, checked when it is made.

The loop reads nothing else, so a run is its configuration and its versions.
"""

from __future__ import annotations

import dataclasses
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, assert_never

import torch

from relive.agents import DQNConfig
from relive.agents.kinds import AgentConfig, Algorithm, agent_config, algorithm_of
from relive.declared import from_file, hold_to_types
from relive.errors import ConfigError, InputError, shown
from relive.fields import Field, stacked
from relive.sampling import Proportional, RankBased, Recent, Sampler, Uniform
from relive.schedules import Linear
from relive.training.demonstrations import DemosConfig
from relive.training.hindsight import HindsightConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relive.fields import Fields

MOST_THREADS = 1024
PRIORITIES = frozenset({"alpha", "beta", "normalize", "uniform_share"})
SETTINGS_OF_SAMPLER = {
    "uniform": frozenset[str](),
    "proportional": PRIORITIES | {"eps"},
    "rank": PRIORITIES | {"resort_every"},
}
SETTINGS_OF_WINDOW = {
    "all": frozenset[str](),
    "recent": frozenset({"window_rows"}),
    "ere": frozenset({"window_rows", "eta", "sweep"}),
}
NAMES_HERE = {"count": "window_rows", "c_min": "window_rows", "updates": "sweep"}  # of `Recent`


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayConfig:
    """Settings of the replay buffer.

    Attributes:
        sampler: How rows are drawn: all alike, in proportion to their last TD error, or by its
            rank.
        window: Which rows: all, the newest, or a window on the newest that shrinks from update to
            update.
        capacity: Rows kept, all environments together.
        device: Where the buffer lives: where the network is, or elsewhere.
        rows_on: Of a buffer on a GPU: rows in its memory, or in pinned memory of the host, for more
            rows.
        on_failure: Where the GPU has no memory for the buffer, or fails it: go on on the CPU, or
            stop.
        batch_size: Rows of an update.
        prefetch: Batches drawn, and sent to the device, ahead of the one in use; 1 hides the copy
            to a GPU.
        n_step: Steps folded into one row.
        stack: Frames along the first axis of an observation, each of which is kept once; 0 stores
            observations whole.
        gamma: Discount of a step.
        alpha: Priorities: 0 draws all rows alike, 1 in proportion to |delta| (or to 1 / rank).
        beta: Priorities: exponent of the importance weights at first; 1 at the last update.
        eps: Proportional: added to |delta|, so that no row dies out.
        normalize: Priorities: divide weights by the largest of the buffer, of the batch, or by
            nothing.
        uniform_share: Priorities: share of the draws that is uniform all the same.
        resort_every: Rank: updates from one sort to the next.
        window_rows: Recent: rows of the window. ERE: fewest rows of it.
        eta: ERE: how fast the window shrinks.
        sweep: ERE: updates until the window is whole again.

    Raises:
        ConfigError: A batch that the buffer can never fill, or a setting that is changed although
            the sampler or window does not have it.
    """

    sampler: Literal["uniform", "proportional", "rank"] = "proportional"
    window: Literal["all", "recent", "ere"] = "all"
    capacity: int = 100_000
    device: Literal["same", "cpu", "cuda"] = "same"
    rows_on: Literal["device", "host"] = "device"
    on_failure: Literal["cpu", "raise"] = "cpu"
    batch_size: int = 64
    prefetch: int = 0
    n_step: int = 1
    stack: int = 0
    gamma: float = 0.99
    alpha: float = 0.6
    beta: float = 0.4
    eps: float = 1e-6
    normalize: Literal["buffer", "batch", "none"] = "batch"
    uniform_share: float = 0.0
    resort_every: int = 100
    window_rows: int = 5_000
    eta: float = 0.996
    sweep: int = 1_000

    def __post_init__(self) -> None:
        hold_to_types(self, "replay.")
        if self.capacity < 1:
            raise ConfigError(f"replay.capacity is at least 1; given {self.capacity}")
        if not 1 <= self.batch_size <= self.capacity:
            raise ConfigError(
                f"replay.batch_size lies between 1 and replay.capacity, {self.capacity}; "
                f"given {self.batch_size}"
            )
        for name, least in (("prefetch", 0), ("n_step", 1), ("stack", 0), ("window_rows", 1)):
            if (value := getattr(self, name)) < least:
                raise ConfigError(f"replay.{name} is at least {least}; given {value}")
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"replay.gamma lies in [0, 1]; given {self.gamma}")
        for choice, settings in (("sampler", SETTINGS_OF_SAMPLER), ("window", SETTINGS_OF_WINDOW)):
            chosen = getattr(self, choice)
            for setting in dataclasses.fields(self):
                users = [name for name, names in settings.items() if setting.name in names]
                default, given = setting.default, getattr(self, setting.name)
                if users and chosen not in users and given != default:
                    raise ConfigError(
                        f"replay.{setting.name} {given} does nothing with replay.{choice} {chosen};"
                        f" leave it at {default}, or take {' or '.join(users)}"
                    )
        if self.window != "all" and self.window_rows > self.capacity:
            raise ConfigError(
                f"replay.window_rows is at most replay.capacity, {self.capacity}; given "
                f"{self.window_rows}"
            )
        with _called_here():
            self.build_sampler(1), self.build_window()  # they check their settings

    def drawing(self, sampler: str | None, window: str | None) -> ReplayConfig:
        """These settings with another sampler or window; what those do not have is as by default.

        Raises:
            ConfigError: A setting that they have is out of its range.
        """
        chosen: dict[str, Any] = {
            "sampler": sampler or self.sampler,
            "window": window or self.window,
        }
        for choice, settings in (("sampler", SETTINGS_OF_SAMPLER), ("window", SETTINGS_OF_WINDOW)):
            every = frozenset[str]().union(*settings.values())
            idle = every - settings.get(chosen[choice], every)
            fields = (field for field in dataclasses.fields(self) if field.name in idle)
            chosen |= {field.name: field.default for field in fields}
        return dataclasses.replace(self, **chosen)

    def build_fields(self, fields: Fields) -> Fields:
        """The fields of the buffer, of those of an environment.

        Raises:
            ConfigError: Its observations are no stacks.
        """
        if not self.stack:
            return fields
        if not isinstance(fields["obs"], Field):
            raise ConfigError(
                "replay.stack is for an observation that is one array, and this one is a dict: "
                "leave it out, or let a wrapper of the environment give the stack alone"
            )
        try:
            return {**fields, "obs": stacked(fields["obs"], self.stack)}
        except ConfigError as error:
            raise ConfigError(f"replay.stack: {error}") from None

    def build_sampler(self, planned_updates: int, accumulate: int = 1) -> Sampler:
        """The sampler, with beta reaching 1 at the last of so many updates.

        Args:
            planned_updates: Of the run.
            accumulate: Batches of an update; a buffer counts batches.
        """
        if self.sampler == "uniform":
            return Uniform()
        shared: dict[str, Any] = {
            "alpha": self.alpha,
            "beta": Linear(self.beta, 1.0, max(1, planned_updates * accumulate)),
            "normalize": None if self.normalize == "none" else self.normalize,
            "uniform_share": self.uniform_share,
        }
        if self.sampler == "rank":
            return RankBased(**shared, resort_every=self.resort_every * accumulate)
        if self.sampler == "proportional":
            return Proportional(**shared, eps=self.eps)
        assert_never(self.sampler)

    def build_window(self, accumulate: int = 1) -> Recent | None:
        """The window; None for all rows. Of `accumulate` as above."""
        if self.window == "all":
            return None
        if self.window == "recent":
            return Recent(self.window_rows)
        if self.window == "ere":
            return Recent(eta=self.eta, c_min=self.window_rows, updates=self.sweep * accumulate)
        assert_never(self.window)


@contextmanager
def _called_here() -> Iterator[None]:
    """Lets a part of the buffer refuse a setting by the name that it has here."""
    try:
        yield
    except ConfigError as error:
        name, _, rest = str(error).partition(" ")
        name = NAMES_HERE.get(name, name)
        if name not in {setting.name for setting in dataclasses.fields(ReplayConfig)}:
            raise
        raise ConfigError(f"replay.{name} {rest}") from None


def require_settings(config: object) -> None:
    """Refuses what are no settings of a run.

    Raises:
        InputError: Says how they are made.
    """
    if not isinstance(config, TrainConfig):
        raise InputError(
            f"a run takes its settings, TrainConfig(env=...) or preset(algorithm, env); given "
            f"{shown(config)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Settings of a run.

    Attributes:
        env: Id of a Gymnasium environment.
        name: What the run is called where it is shown; None for its algorithm.
        total_steps: Environment steps, all environments together.
        seed: Of everything random in training; evaluation has seeds of its own.
        num_envs: Copies of the environment.
        device: Where the networks live: auto is cuda where there is one and it is faster.
        threads: Threads of PyTorch on the CPU: auto is 1, and more only for large networks. None
            leaves them alone.
        out: Run directory; None makes a new one below runs/.
        learning_starts: Steps with random actions and no update; updates also wait until a batch of
            rows is there.
        train_every: Steps between two bursts of updates.
        updates_per_train: Updates in a burst; over `train_every` it is the ratio of updates to
            data.
        accumulate: Batches whose mean gradient makes one update.
        capture: Updates as CUDA graphs: where it can be done, by all means (or an error), or not.
        updates_per_graph: Most updates of a burst in one CUDA graph.
        compile: Losses and networks of an update by this backend of torch.compile, captured or not.
        eval_episodes: Greedy episodes after training; 0 for none.
        eval_every: Steps between two evaluations on the way, by as many episodes; the policy of the
            best one is kept beside the last. 0 for none.
        log_every: Steps between two records of progress: auto is 500, or 64 of each environment if
            that is more. A GPU is waited for then.
        save_every: Steps between two saves to resume from, in the background: auto is 25000,
            or 1000 of each environment if that is more. 0 saves at the end only.
        save_buffer: Save the rows of the buffer too; without them a run that is resumed fills it
            anew.
        replay: The buffer.
        demos: Demonstrations; they count as no step, episode or return of the run.
        hindsight: Steps written once more, with goals that their episode reached.
        agent: The agent; what kind of settings these are says which.

    Raises:
        ConfigError: A value outside its range, or values that do not fit each other.
    """

    env: str
    name: str | None = None
    total_steps: int = 50_000
    seed: int = 0
    num_envs: int = 1
    device: Literal["cpu", "cuda", "auto"] = "auto"
    threads: int | Literal["auto"] | None = "auto"
    out: Path | None = None
    learning_starts: int = 1_000
    train_every: int = 4
    updates_per_train: int = 1
    accumulate: int = 1
    capture: Literal["auto", "on", "off"] = "auto"
    updates_per_graph: int = 1
    compile: Literal["inductor", "aot_eager", "eager"] | None = None
    eval_episodes: int = 20
    eval_every: int = 0
    log_every: int | Literal["auto"] = "auto"
    save_every: int | Literal["auto"] = "auto"
    save_buffer: bool = True
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    demos: DemosConfig = field(default_factory=DemosConfig)
    hindsight: HindsightConfig = field(default_factory=HindsightConfig)
    agent: AgentConfig = field(default_factory=DQNConfig)

    def __post_init__(self) -> None:
        hold_to_types(self, but={"env"})  # which the command line leaves open for a moment
        for name, least in (
            ("total_steps", 1),
            ("seed", 0),
            ("num_envs", 1),
            ("threads", 1),
            ("learning_starts", 0),
            ("train_every", 1),
            ("updates_per_train", 1),
            ("accumulate", 1),
            ("updates_per_graph", 1),
            ("eval_episodes", 0),
            ("eval_every", 0),
            ("log_every", 1),
            ("save_every", 0),
        ):
            value = getattr(self, name)
            if isinstance(value, int) and value < least:
                raise ConfigError(f"{name} is at least {least}; given {value}")
        if isinstance(self.threads, int) and self.threads > MOST_THREADS:
            raise ConfigError(f"threads is at most {MOST_THREADS}; given {self.threads}")
        if self.eval_every and not self.eval_episodes:
            raise ConfigError("eval_every needs eval_episodes; given 0")
        if self.name is not None and not self.name.strip():
            raise ConfigError("name is empty; leave it out, or say what the run is called")
        if self.seed >= 2**63:
            raise ConfigError(f"seed is below 2^63; given {self.seed}")
        for name, device in (("device", self.device), ("replay.device", self.replay.device)):
            if device == "cuda" and not torch.cuda.is_available():
                raise ConfigError(
                    f"{name} cuda: this machine, or its PyTorch, has no CUDA; use cpu"
                )

    @property
    def algorithm(self) -> Algorithm:
        """Which agent."""
        return algorithm_of(self.agent)

    @property
    def updates_start(self) -> int:
        """Steps after which updates are made: random ones, or those that make a batch of rows.

        Of each environment the last n - 1 steps may still wait for their n-step returns.
        """
        waiting = self.num_envs * (self.replay.n_step - 1)
        return max(self.learning_starts, self.replay.batch_size + waiting - 1)

    @property
    def planned_updates(self) -> int:
        """Updates of the whole run, if it is not stopped before."""
        return self.updates_due(0, self.total_steps)

    def updates_due(self, before: int, after: int) -> int:
        """Updates owed when the step count goes from `before` to `after`; none before the start."""
        start = min(max(before, self.updates_start), after)
        return (after // self.train_every - start // self.train_every) * self.updates_per_train

    @property
    def log_interval(self) -> int:
        """Steps between two records of progress."""
        return max(500, 64 * self.num_envs) if self.log_every == "auto" else self.log_every

    @property
    def save_interval(self) -> int:
        """Steps between two saves; 0 for none on the way."""
        return max(25_000, 1_000 * self.num_envs) if self.save_every == "auto" else self.save_every

    def log_is_due(self, before: int, after: int) -> bool:
        """Whether a record of progress falls between two step counts."""
        return after // self.log_interval > before // self.log_interval

    def eval_is_due(self, before: int, after: int) -> bool:
        """Whether an evaluation falls between two step counts; after the last there is one."""
        every = self.eval_every
        return every > 0 and after // every > before // every and after < self.total_steps

    def save_is_due(self, before: int, after: int) -> bool:
        """Whether a save falls between two step counts; the last step has one of its own."""
        every = self.save_interval
        return every > 0 and after // every > before // every and after < self.total_steps

    def to_json(self) -> dict[str, Any]:
        """The settings as plain values, nested."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), default=str))
        return {"algorithm": self.algorithm, **plain}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> TrainConfig:
        """The settings that `to_json` gave.

        Raises:
            InputError: A setting is unknown, as one of another version may be.
        """
        try:
            settings = from_file(cls, plain)
            agent = agent_config(settings.pop("algorithm"), settings["agent"])
            parts = {
                "replay": ReplayConfig(**from_file(ReplayConfig, plain["replay"])),
                # earlier runs have neither
                "demos": DemosConfig(**from_file(DemosConfig, plain.get("demos", {}))),
                "hindsight": HindsightConfig(
                    **from_file(HindsightConfig, plain.get("hindsight", {}))
                ),
            }
            return cls(**dict(settings, **parts, agent=agent))
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"these are not the settings of a run: {error}") from None
