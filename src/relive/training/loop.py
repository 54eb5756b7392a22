"""The training loop: a generator of records.

    for record in train(config):
        print(record)

It writes no file and prints nothing: whoever iterates does. `run` is what `relive train` calls.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

import numpy as np

from relive.schedules import Linear
from relive.training.evaluate import evaluate, evaluation_seeds
from relive.training.measure import Episodes, MetricMeans, priority_histogram
from relive.training.parts import Parts, build
from relive.training.presets import REFERENCES
from relive.training.records import (
    Evaluated,
    Record,
    ReplayMeasured,
    RunEnded,
    RunStarted,
    TrainingProgress,
)
from relive.training.runtime import cpu_settings, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relive.training.config import TrainConfig


def train(config: TrainConfig) -> Iterator[Record]:
    """Trains and evaluates, yielding what happens as it happens; see `Trainer.records`."""
    return Trainer(config, build(config)).records()


@final
class Trainer:
    """One run: steps the environments, fills the buffer, feeds the agent.

    Args:
        config: Settings.
        parts: From `build(config)`; they hold the trained agent afterwards.
    """

    def __init__(self, config: TrainConfig, parts: Parts) -> None:
        agent = config.agent
        exploring_steps = max(1, round(agent.epsilon_fraction * config.total_steps))
        self.config = config
        self._env, self._env_seeds = parts.env, parts.env_seeds
        self._buffer, self._agent = parts.buffer, parts.agent
        self._epsilon = Linear(agent.epsilon_start, agent.epsilon_end, exploring_steps)
        self._episodes = Episodes(config.num_envs)
        self._means = MetricMeans()
        self._batch = parts.buffer.empty_batch(config.replay.batch_size)
        self._step = 0
        self._start = time.perf_counter()
        self._logged = (0, self._start)

    @property
    def epsilon(self) -> float:
        """Share of random actions now: all of them until learning starts."""
        return 1.0 if self._step < self.config.learning_starts else self._epsilon(self._step)

    def records(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Record]:
        """Runs to the end, once.

        With one seed, one machine and one number of threads the records are the same every time,
        but for the clock.

        Args:
            stop: Asked before every step. Once it says True, or on Ctrl-C, the run ends in good
                order: what is known is still yielded, evaluation is left out.

        Yields:
            `RunStarted`; `EpisodeEnded` and `TrainingProgress` as they come; `ReplayMeasured`;
            `Evaluated`; `RunEnded`.
        """
        config = self.config
        with cpu_settings(config.threads):
            yield RunStarted(step=0, config=config.to_json(), versions=versions())
            try:
                yield from self._train(stop)
                interrupted = self._step < config.total_steps
            except KeyboardInterrupt:
                interrupted = True
            finally:
                self._env.close()
            yield self._replay_measured()
            if config.eval_episodes and not interrupted:
                yield self._evaluated()
            yield RunEnded(
                step=self._step,
                updates=self._agent.updates,
                seconds=time.perf_counter() - self._start,
                interrupted=interrupted,
            )

    def _train(self, stop: Callable[[], bool]) -> Iterator[Record]:
        """Steps the environments to the end of the run, learning as it goes."""
        config, env = self.config, self._env
        obs, _ = env.reset(seed=self._env_seeds)
        while self._step < config.total_steps and not stop():
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
            obs, before, self._step = next_obs, self._step, self._step + config.num_envs
            yield from self._episodes.add(reward, terminated | truncated, self._step)
            if updates := config.updates_due(before, self._step):
                self._learn(updates)
            if self._step // config.log_every > before // config.log_every:
                yield self._progress()

    def _learn(self, updates: int) -> None:
        """Draws a batch, learns from it and tells the buffer how wrong it was, `updates` times."""
        buffer, agent, batch_size = self._buffer, self._agent, self.config.replay.batch_size
        if not buffer.ready(batch_size):
            return
        for _ in range(updates):
            batch = buffer.sample(batch_size, out=self._batch)
            result = agent.update(batch)
            if buffer.prioritized:
                buffer.update_priorities(batch.ids, result.td_error)
            self._means.add(result.metrics)

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
            epsilon=self.epsilon,
            beta=self._buffer.stats()["beta"] if self._buffer.prioritized else None,
            fill=len(self._buffer) / self._buffer.capacity,
            seconds=now - self._start,
            steps_per_second=(self._step - last_step) / (now - last_time),
        )

    def _replay_measured(self) -> ReplayMeasured:
        stats = dict(self._buffer.stats())
        age_counts, reuse_counts = stats.pop("age_counts"), stats.pop("reuse_counts")
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

    def _evaluated(self) -> Evaluated:
        seeds = evaluation_seeds(self.config.eval_episodes)
        returns = evaluate(self._agent, self.config.env, seeds)
        return Evaluated(
            step=self._step,
            returns=returns,
            mean=float(np.mean(returns)),
            std=float(np.std(returns)),
            reference=REFERENCES.get(self.config.env),
        )
