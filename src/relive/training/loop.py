"""The training loop: a generator of records.

    for record in train(config):
        print(record)

It writes no file and prints nothing: whoever iterates does. `run` is what `relive train` calls.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, final

import numpy as np

from relive.envs.make import episodes_of, resume_episodes
from relive.errors import UnsupportedError
from relive.gpu.means import MetricMeans
from relive.training.choices import settled
from relive.training.evaluate import evaluate, evaluation_seeds
from relive.training.measure import Episodes, priority_histogram
from relive.training.parts import Parts, build
from relive.training.presets import REFERENCES
from relive.training.records import (
    DemonstrationsLoaded,
    DeviceFailed,
    Evaluated,
    Record,
    ReplayMeasured,
    RunEnded,
    RunResumed,
    RunStarted,
    SaveDue,
    TrainingProgress,
)
from relive.training.runtime import cpu_settings, versions
from relive.training.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relive.gpu.failures import DeviceFailure
    from relive.training.config import TrainConfig


def train(config: TrainConfig) -> Iterator[Record]:
    """Trains and evaluates, yielding what happens as it happens; see `Trainer.records`."""
    config, chosen = settled(config)
    trainer = Trainer(config, build(config), chosen)
    return (record for record in trainer.records() if not isinstance(record, SaveDue))


@final
class Trainer:
    """One run: steps the environments, fills the buffer, feeds the agent.

    Args:
        config: Settings.
        parts: From `build(config)`; they hold the trained agent afterwards.
        chosen: What was chosen for the settings, and why; told in the first record.
    """

    def __init__(
        self, config: TrainConfig, parts: Parts, chosen: dict[str, str] | None = None
    ) -> None:
        self.config, self.chosen = config, chosen or {}
        self._env, self._env_seeds = parts.env, parts.env_seeds
        self._buffer, self._agent = parts.buffer, parts.agent
        self._demos = parts.demos
        self._epsilon = config.agent.epsilon(config.total_steps)
        self._episodes = Episodes(config.num_envs)
        self._means = MetricMeans()
        self._batches = parts.buffer.batches(
            config.replay.batch_size, ahead=config.replay.prefetch, device=parts.agent.device
        )
        self._updates = Updates(config, parts.buffer, parts.agent, self._batches, self._means)
        self._obs: Any = None  # before the first reset
        self._step = 0
        self._warm_until = 0  # no update before, whatever is due
        self._resumed: RunResumed | None = None
        self._told: DeviceFailure | None = None
        self._start = time.perf_counter()
        self._logged = (0, self._start)

    @property
    def step(self) -> int:
        """Environment steps so far, all environments together."""
        return self._step

    @property
    def epsilon(self) -> float:
        """Share of random actions now: all of them until learning starts."""
        return 1.0 if self._step < self.config.learning_starts else self._epsilon(self._step)

    def state_dict(self) -> dict[str, Any]:
        """All that the run depends on from here, but for the buffer; between two steps only.

        The environments say what was done in their episodes; see `relive.envs.replayable`.
        """
        return {
            "step": self._step,
            "logged": self._logged[0],
            "seconds": time.perf_counter() - self._start,
            "progress": self._buffer.stats(wait=True)["progress"],
            "episodes": self._episodes.state_dict(),
            "means": self._means.state_dict(),
            "agent": self._agent.state_dict(),
            "batches": self._batches.state_dict(),
            "envs": episodes_of(self._env),
            "obs": self._obs,
            "versions": versions(),
        }

    def load_state_dict(self, state: dict[str, Any], *, buffer_kept: bool = True) -> None:
        """Goes on where `state_dict` was asked for; the buffer must be as it was then.

        Args:
            state: Of a trainer with the same settings.
            buffer_kept: False if the buffer is empty: then it is filled for `updates_start`
                steps, with the policy as it is, before the next update.

        Raises:
            UnsupportedError: An environment did not come back to where it was.
        """
        self._obs = resume_episodes(self._env, state["envs"])
        if not _equal(self._obs, state["obs"]):
            raise UnsupportedError(
                f"{self.config.env} cannot be resumed: the same seed and actions led it elsewhere, "
                "so it draws chance from outside, or remembers earlier episodes"
            )
        self._step, self._start = state["step"], time.perf_counter() - state["seconds"]
        self._logged = (state["logged"], time.perf_counter())
        self._episodes.load_state_dict(state["episodes"])
        self._means.load_state_dict(state["means"], self._agent.device)
        self._agent.load_state_dict(state["agent"])
        if buffer_kept and "batches" in state:  # earlier versions drew none ahead
            self._batches.load_state_dict(state["batches"])
        before, now = state["versions"], versions()
        changed = {
            name: f"{before.get(name)} before, {now[name]} now"
            for name in now
            if before.get(name) != now[name]
        }
        if not buffer_kept:
            self._warm_until = self._step + self.config.updates_start
            self._buffer.set_progress(state["progress"])
            changed["buffer"] = f"not saved; filled anew until step {self._warm_until}"
        self._resumed = RunResumed(
            step=self._step,
            config=self.config.to_json(),
            versions=now,
            episodes=self._episodes.ended,
            changed=changed,
        )

    def records(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Record | SaveDue]:
        """Runs to the end, once.

        With one seed, one machine and one number of threads the records are the same every time,
        but for the clock.

        Args:
            stop: Asked before every step. Once it says True, or on Ctrl-C, the run ends in good
                order: what is known is still yielded, evaluation is left out.

        Yields:
            `RunStarted` (or `RunResumed`); `DemonstrationsLoaded` where there are any;
            `EpisodeEnded`, `TrainingProgress` and `DeviceFailed` as they come; `ReplayMeasured`;
            `Evaluated`; `RunEnded`. `SaveDue` whenever a save is due, also when the last step has
            been made.
        """
        config = self.config
        with cpu_settings(1 if config.threads == "auto" else config.threads):
            yield self._resumed or RunStarted(
                step=0, config=config.to_json(), versions=versions(), chosen=self.chosen
            )
            if self._demos is not None:
                yield DemonstrationsLoaded.of(self._demos, self._step)
            yield from self._failure()
            try:
                yield from self._train(stop)
                yield SaveDue(step=self._step)
                interrupted = self._step < config.total_steps
            except KeyboardInterrupt:
                interrupted = True
            finally:
                self._env.close()
            yield self._replay_measured()
            if config.eval_episodes and not interrupted:
                evaluated = self._evaluated(stop)
                interrupted = evaluated is None
                if evaluated is not None:
                    yield evaluated
            yield RunEnded(
                step=self._step,
                updates=self._agent.updates,
                seconds=time.perf_counter() - self._start,
                interrupted=interrupted,
            )

    def _train(self, stop: Callable[[], bool]) -> Iterator[Record | SaveDue]:
        """Steps the environments to the end of the run, learning as it goes."""
        config, env = self.config, self._env
        if self._obs is None:
            self._obs, _ = env.reset(seed=self._env_seeds)
        while self._step < config.total_steps and not stop():
            obs = self._obs
            action = self._agent.act(obs, self.epsilon)
            next_obs, reward, terminated, truncated, info = env.step(action)
            self._buffer.add(
                obs=obs,
                action=action,
                reward=reward,
                next_obs=next_obs,
                terminated=terminated,
                truncated=truncated,
                final_obs=info.get("final_obs"),
            )
            self._obs, before, self._step = next_obs, self._step, self._step + config.num_envs
            yield from self._episodes.add(reward, terminated | truncated, self._step)
            updates = config.updates_due(before, self._step)
            may_learn = updates and self._step > self._warm_until
            if may_learn and self._buffer.ready(config.replay.batch_size):
                self._updates.make(updates)
            yield from self._failure()
            if self._step // config.log_every > before // config.log_every:
                yield self._progress()
            if config.save_is_due(before, self._step):
                yield SaveDue(step=self._step)

    def _failure(self) -> Iterator[DeviceFailed]:
        """That the buffer has left its GPU, once."""
        failure = self._buffer.failure
        if failure is not self._told and failure is not None:
            self._told = failure
            yield DeviceFailed(
                step=self._step, part="buffer", reason=failure.reason, outcome=failure.kept
            )

    def _progress(self) -> TrainingProgress:
        means, now = self._means.take(), time.perf_counter()
        (last_step, last_time), self._logged = self._logged, (self._step, now)
        return TrainingProgress(
            step=self._step,
            updates=self._agent.updates,
            loss=means.get("loss"),
            td_error=means.get("td_error"),
            q_mean=means.get("q_mean"),
            grad_norm=means.get("grad_norm"),
            actor_loss=means.get("actor_loss"),
            temperature=means.get("temperature"),
            entropy=means.get("entropy"),
            epsilon=self.epsilon,
            beta=self._buffer.beta,
            fill=len(self._buffer) / self._buffer.capacity,
            seconds=now - self._start,
            steps_per_second=(self._step - last_step) / (now - last_time),
        )

    def _replay_measured(self) -> ReplayMeasured:
        stats = dict(self._buffer.stats(wait=True))
        age_counts, reuse_counts = (stats.pop(f"{name}_counts", None) for name in ("age", "reuse"))
        edges, counts = None, None
        if self._buffer.prioritized and len(self._buffer):
            priorities = self._buffer.priorities(self._buffer.live_ids())
            edges, counts = priority_histogram(priorities)
        return ReplayMeasured(
            step=self._step,
            priority_edges=edges,
            priority_counts=counts,
            age_counts=age_counts,
            reuse_counts=reuse_counts,
            stats=stats,
        )

    def _evaluated(self, stop: Callable[[], bool]) -> Evaluated | None:
        """Greedy episodes; None if they were not all played."""
        seeds = evaluation_seeds(self.config.eval_episodes)
        try:
            returns = evaluate(self._agent, self.config.env, seeds, stop)
        except KeyboardInterrupt:
            return None
        if len(returns) < len(seeds):
            return None
        return Evaluated(
            step=self._step,
            returns=returns,
            mean=float(np.mean(returns)),
            std=float(np.std(returns)),
            reference=REFERENCES.get(self.config.env),
        )


def _equal(obs: Any, other: Any) -> bool:
    """Whether observations are the same numbers; NaN equals NaN."""
    if isinstance(obs, dict):
        return obs.keys() == other.keys() and all(_equal(obs[k], other[k]) for k in obs)
    return np.array_equal(obs, other, equal_nan=np.issubdtype(np.asarray(obs).dtype, np.inexact))
