"""The training loop: a generator of records.

    for record in train(config):
        print(record)

It writes no file and prints nothing: whoever iterates does. `run` is what `relive train` calls.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, final

import numpy as np

from relive.gpu.failures import in_a_line, is_of_gpu
from relive.gpu.means import MetricMeans
from relive.training.choices import settled
from relive.training.evaluate import evaluate, evaluation_seeds
from relive.training.measure import priority_histogram
from relive.training.parts import Parts, build
from relive.training.presets import REFERENCES
from relive.training.records import (
    DemonstrationsLoaded,
    DeviceFailed,
    Evaluated,
    Moment,
    Record,
    ReplayMeasured,
    RunEnded,
    RunResumed,
    RunStarted,
    SaveDue,
    StepsMade,
    TrainingProgress,
)
from relive.training.rollout import rollout_of
from relive.training.runtime import cpu_settings, versions
from relive.training.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from relive.gpu.failures import DeviceFailure
    from relive.training.config import TrainConfig
    from relive.training.records import EpisodesEnded

QUIET_SECONDS = 60.0  # after which a run says that it goes on
ENDLESS = (
    "no episode has ended in {step} steps; greedy episodes are played to their end, so if the "
    "environment never ends one (gymnasium.wrappers.TimeLimit does), say --eval-episodes 0"
)
FRAMES_RUN_OUT = (
    "{size} of {capacity} rows are held at step {step}, others were dropped to keep frames of "
    "newer ones; are observations stacks of {stack} frames along their first axis, the oldest "
    "first, each going on from the last? If not, leave --replay.stack out"
)


def train(config: TrainConfig) -> Iterator[Record]:
    """Trains and evaluates, yielding what happens as it happens; see `Trainer.records`."""
    config, chosen = settled(config)
    trainer = Trainer(config, build(config), chosen)
    return (record for record in trainer.records() if not isinstance(record, Moment))


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
        self._rollout = rollout_of(parts)
        self._buffer, self._agent = parts.buffer, parts.agent
        self._demos = parts.demos
        self._epsilon = config.agent.epsilon(config.total_steps)
        self._means = MetricMeans()
        self._batches = parts.buffer.batches(
            config.replay.batch_size, ahead=config.replay.prefetch, device=parts.agent.device
        )
        self._updates = Updates(config, parts.buffer, parts.agent, self._batches, self._means)
        self._step = 0
        self._warm_until = 0  # no update before, whatever is due
        self._evaluation_due = False  # of the steps made, not of those to come
        self._resumed: RunResumed | None = None
        self._told: DeviceFailure | None = None
        self._frames_told = False
        self._start = time.perf_counter()
        self._logged = (0, self._start)
        self._quiet_since = self._start

    @property
    def step(self) -> int:
        """Environment steps so far, all environments together."""
        return self._step

    @property
    def epsilon(self) -> float:
        """Share of random actions now: all of them until learning starts."""
        return 1.0 if self._step < self.config.learning_starts else self._epsilon(self._step)

    def state_dict(self) -> dict[str, Any]:
        """All that the run depends on from here, but for the buffer; between two steps only."""
        return {
            "step": self._step,
            "total_steps": self.config.total_steps,
            "logged": self._logged[0],
            "seconds": time.perf_counter() - self._start,
            "progress": self._buffer.stats(wait=True)["progress"],
            "means": self._means.state_dict(),
            "agent": self._agent.state_dict(),
            "batches": self._batches.state_dict(),
            "evaluation_due": self._evaluation_due,
            **self._rollout.state_dict(),
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
        self._rollout.load_state_dict(state)
        self._step, self._start = state["step"], time.perf_counter() - state["seconds"]
        self._logged = (state["logged"], time.perf_counter())
        self._evaluation_due = state.get("evaluation_due", False)  # not in earlier versions
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
        total = state.get("total_steps", self.config.total_steps)  # not in earlier versions
        if self.config.total_steps != total:
            changed["total_steps"] = f"{total:,} before, {self.config.total_steps:,} now"
            if self._step >= total:  # the evaluation at the end of the shorter run is taken back
                last = self._step - self.config.num_envs
                self._evaluation_due = self.config.eval_is_due(last, self._step)
        if not buffer_kept:
            self._warm_until = self._step + self.config.updates_start
            self._buffer.set_progress(state["progress"])
            changed["buffer"] = f"not saved; filled anew until step {self._warm_until}"
        self._resumed = RunResumed(
            step=self._step,
            config=self.config.to_json(),
            versions=now,
            episodes=self._rollout.episodes,
            last_returns=tuple(self._rollout.last_returns),
            changed=changed,
        )

    def records(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Record | Moment]:
        """Runs to the end, once.

        With one seed, one machine and one number of threads the records are the same every time,
        but for the clock.

        Args:
            stop: Asked before every step. Once it says True, or on Ctrl-C, the run ends in good
                order: what is known is still yielded, evaluation is left out.

        Yields:
            `RunStarted` (or `RunResumed`); `DemonstrationsLoaded` where there are any;
            `EpisodeEnded`, `TrainingProgress`, `Evaluated` and `DeviceFailed` as they come;
            `ReplayMeasured`; `Evaluated`; `RunEnded`. `StepsMade` after every minute without
            `TrainingProgress`. `SaveDue` whenever a save is due, also when
            the last step has been made. Before an error that is not of a GPU is raised: `SaveDue`,
            if it came out of an environment and the run can go on from the step before it, and
            `RunEnded`.
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
                if not interrupted and self._step > self._logged[0]:
                    yield from self._progress()
            except KeyboardInterrupt:
                interrupted = True
            except Exception as error:
                if not is_of_gpu(error):  # then the run goes on without it
                    # between two steps, or after the last one that was made
                    if self._evaluation_due or self._rollout.take_back():
                        yield SaveDue(step=self._step)
                    yield self._ended(interrupted=True, error=in_a_line(error))
                raise
            finally:
                self._rollout.close()
            yield self._replay_measured()
            if config.eval_episodes and not interrupted:
                evaluated = self._evaluated(stop)
                interrupted = evaluated is None
                if evaluated is not None:
                    yield evaluated
            yield self._ended(interrupted=interrupted)

    def _ended(self, *, interrupted: bool, error: str | None = None) -> RunEnded:
        return RunEnded(
            step=self._step,
            updates=self._agent.updates,
            seconds=time.perf_counter() - self._start,
            interrupted=interrupted,
            error=error,
        )

    def _train(self, stop: Callable[[], bool]) -> Iterator[Record | Moment]:
        """Steps the environments to the end of the run, learning as it goes."""
        config, rollout = self.config, self._rollout
        rollout.begin()
        if not (yield from self._evaluate_if_due(stop)):
            return
        while self._step < config.total_steps and not stop():
            before = self._step
            rollout.explore(self.epsilon)
            # step and updates in one piece, unless rows are missing: the host counts no replays
            in_one = rollout.on_device and self._buffer.ready(config.replay.batch_size)
            if not in_one:
                rollout.step()
            self._step += config.num_envs
            yield from rollout.ended(self._step)
            updates = config.updates_due(before, self._step)
            if self._step <= self._warm_until:
                updates = 0
            if in_one:
                self._updates.make(updates, rollout.step)
            elif updates and self._buffer.ready(config.replay.batch_size):
                self._updates.make(updates)
            yield from self._failure()
            yield from self._news(before)
            self._evaluation_due = config.eval_is_due(before, self._step)
            if not (yield from self._evaluate_if_due(stop)):
                return
            if config.save_is_due(before, self._step):
                yield SaveDue(step=self._step)

    def _evaluate_if_due(self, stop: Callable[[], bool]) -> Generator[Evaluated, None, bool]:
        """Evaluation on the way; whether it was played to its end. If not, it is still due."""
        if self._evaluation_due:
            start = time.perf_counter()
            if (evaluated := self._evaluated(stop)) is None:
                return False
            self._evaluation_due = False
            yield evaluated
            step, then = self._logged
            self._logged = step, then + time.perf_counter() - start  # no time of training
        return True

    def _failure(self) -> Iterator[DeviceFailed]:
        """That the buffer has left its GPU, once."""
        failure = self._buffer.failure
        if failure is not self._told and failure is not None:
            self._told = failure
            yield DeviceFailed(
                step=self._step, part="buffer", reason=failure.reason, outcome=failure.kept
            )

    def _news(self, before: int) -> Iterator[EpisodesEnded | TrainingProgress | StepsMade]:
        """Progress where it is due; where it has not been for long, how far the run is."""
        if self.config.log_is_due(before, self._step):
            yield from self._progress()
        elif time.perf_counter() - self._quiet_since >= QUIET_SECONDS:
            self._quiet_since = time.perf_counter()
            yield StepsMade(step=self._step)

    def _look_at_frames(self) -> None:
        """Warn, once, where stacks that are none take all the room."""
        stack = self.config.replay.stack
        if not stack or self._frames_told:
            return
        stats = self._buffer.stats(wait=True)
        if stats["evicted_rows"] and 2 * stats["size"] < stats["capacity"]:
            self._frames_told = True
            words = FRAMES_RUN_OUT.format(step=self._step, stack=stack, **stats)
            warnings.warn(words, RuntimeWarning, stacklevel=4)

    def _progress(self) -> Iterator[EpisodesEnded | TrainingProgress]:
        self._look_at_frames()
        if (ended := self._rollout.summary(self._step)) is not None:
            yield ended
        means, now = self._means.take(), time.perf_counter()
        (last_step, last_time), self._logged = self._logged, (self._step, now)
        self._quiet_since = now
        yield TrainingProgress(
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
        if self._rollout.may_never_end:
            warnings.warn(ENDLESS.format(step=self._step), RuntimeWarning, stacklevel=4)
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
