"""What happens in a run, one frozen record after another.

The loop yields them; sinks listen. As JSON a record is one flat object with the kind in `"record"`:

    {"record": "episode_ended", "step": 1184, "env": 0, "episode_return": 57.0, "length": 57}

Only `seconds`, `steps_per_second` and `chosen` depend on the clock: two runs with one seed, and the
same choices, agree in all else.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relive.demos import Loaded

LAST = 20  # episodes that a mean return is over


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The first record."""

    step: int
    """Environment steps so far, all environments together; so in every record."""
    config: dict[str, Any]
    """The settings as in `config.json`."""
    versions: dict[str, str]
    """Package name to version."""
    chosen: dict[str, str] = field(default_factory=dict)
    """What settings of "auto" became, and why, name to words; times that were measured in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """The first record of a run that goes on; all since the save has been taken back."""

    step: int
    config: dict[str, Any]
    versions: dict[str, str]
    """Of the machine it goes on with."""
    episodes: int
    """That ended before."""
    last_returns: tuple[float, ...]
    """Of the last of them, at most `LAST`; means where episodes are told together."""
    changed: dict[str, str]
    """What is not as it was, name to words: numbers may differ from a run without a break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationsLoaded:
    """Demonstrations were pinned in the buffer; they count in nothing else."""

    step: int
    path: str
    format: str
    episodes: int
    """That were taken."""
    rows: int
    """Rows they are."""
    mean_return: float
    """Of those episodes."""
    skipped: int
    """Episodes that were read and not taken."""
    dropped_steps: int
    """Last steps that were left out, for want of a next observation."""
    env: str | None
    """Id of the environment they were recorded in, if the file tells."""

    @classmethod
    def of(cls, loaded: Loaded, step: int) -> DemonstrationsLoaded:
        """The record of what was loaded."""
        return cls(
            step=step,
            path=str(loaded.path),
            format=str(loaded.format),
            episodes=loaded.episodes,
            rows=loaded.rows,
            mean_return=sum(loaded.returns) / loaded.episodes,
            skipped=loaded.skipped,
            dropped_steps=loaded.dropped_steps,
            env=loaded.env,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFailed:
    """A GPU failed, and the run goes on without it."""

    step: int
    part: str
    """What is on the CPU from here: the "buffer", or the whole "run"."""
    reason: str
    """What CUDA said."""
    outcome: str
    """What was kept, or from where the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEnded:
    """An episode came to its end, terminated or truncated."""

    step: int
    env: int
    """Which environment."""
    episode_return: float
    """Undiscounted sum of its rewards."""
    length: int
    """Its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodesEnded:
    """Episodes that came to their end since the last record of this kind, at least one.

    In place of one record an episode where the environments live on the device.
    """

    step: int
    episodes: int
    """How many."""
    mean_return: float
    least_return: float
    largest_return: float
    mean_length: float
    least_length: int
    largest_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """The state of training at a log interval; means are over the updates since the last one."""

    step: int
    updates: int
    """Updates so far."""
    loss: float | None
    """Mean loss; None if there was no update."""
    td_error: float | None
    """Mean over rows of the error that the buffer is told: |delta|, or the divergence of C51."""
    q_mean: float | None
    """Mean value of the actions in the batches."""
    grad_norm: float | None
    """Mean length of the gradient of the values, before it is clipped."""
    actor_loss: float | None
    """Mean loss of the policy; None for agents without one, so in the next two."""
    temperature: float | None
    """What a unit of entropy is worth."""
    entropy: float | None
    """Mean entropy of the policy, in nats, of actions in [-1, 1]."""
    epsilon: float
    """Share of random actions now."""
    beta: float | None
    """Exponent of the importance weights now; None if the buffer has no priorities."""
    fill: float
    """Part of the buffer that holds rows."""
    seconds: float
    """Since the run started."""
    steps_per_second: float
    """Environment steps since the last record of this kind, by the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Returns of greedy episodes."""

    step: int
    returns: tuple[float, ...]
    mean: float
    std: float
    """Over the episodes."""
    reference: float | None
    """A published mean for this environment; None if we know of none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayMeasured:
    """What is in the buffer at the end, and what was drawn from it."""

    step: int
    priority_edges: list[float] | None
    """Edges of the bins, one more than counts; None if the buffer has no priorities."""
    priority_counts: list[int] | None
    """Rows whose stored priority lies in each bin."""
    age_counts: list[int] | None
    """Draws by the age of the row in rows: bin 0 holds age 0, bin k ages in [2^(k-1), 2^k). None if
    the buffer does not track reuse."""
    reuse_counts: list[int] | None
    """Rows, overwritten or held, by how often they have been drawn, in the same bins."""
    stats: dict[str, Any]
    """The counters of the buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The last record."""

    step: int
    updates: int
    seconds: float
    interrupted: bool
    """Whether it was stopped before all its steps were made."""
    error: str | None = None
    """What stopped it, if that was an error."""


Record = (
    RunStarted
    | RunResumed
    | DemonstrationsLoaded
    | DeviceFailed
    | EpisodeEnded
    | EpisodesEnded
    | TrainingProgress
    | Evaluated
    | ReplayMeasured
    | RunEnded
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveDue:
    """Not a record: between two steps, when the run may be saved (`Trainer.state_dict`)."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsMade:
    """Not a record: there has been none of progress for a minute, since steps take so long."""

    step: int


Moment = SaveDue | StepsMade  # between two steps


def as_json(record: Record) -> dict[str, Any]:
    """A record as an object for JSON, which has no NaN and no infinity: they become None."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(record).__name__).lower()
    fields: dict[str, Any] = _finite(asdict(record))
    return {"record": kind, **fields}


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_finite(entry) for entry in value]
        case float() if not math.isfinite(value):
            return None
    return value
