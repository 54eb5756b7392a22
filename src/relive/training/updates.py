"""Updates of an agent from a buffer: one function, called or played back from a CUDA graph."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from relive.errors import ConfigError, UnsupportedError
from relive.sampling import RankBased
from relive.training.capture import Graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from relive.agents.agent import Agent
    from relive.buffer import ReplayBuffer
    from relive.gpu.means import MetricMeans
    from relive.sampling.prefetch import Prefetch
    from relive.training.config import TrainConfig
    from relive.training.parts import Parts

NEVER = 2**62  # updates
MOST_BURSTS = 12  # graphs of several updates; bursts of other kinds are made one by one


class Updates:
    """Draws batches, learns from them, tells the buffer how wrong it was.

    Where buffer and networks are on one GPU this is captured (`config.capture`), several updates in
    one graph if asked (`config.updates_per_graph`). The graphs differ only in which of their
    updates do more than the others (`Agent.due`): a target network that moves every 500 updates
    makes one more graph, a policy that moves every second update another. There is one for each
    place where that comes in a burst, up to a dozen; other bursts are replays of single updates.

    Args:
        config: Settings.
        buffer: Gives the batches.
        agent: Learns.
        batches: Those of the buffer, for the agent's device.
        means: Is given the metrics of every update.

    Attributes:
        not_captured: Why updates are not captured; None if they are, or will be.
    """

    def __init__(
        self,
        config: TrainConfig,
        buffer: ReplayBuffer,
        agent: Agent,
        batches: Prefetch,
        means: MetricMeans,
    ) -> None:
        self._config, self._buffer, self._agent = config, buffer, agent
        self._batches, self._means = batches, means
        self._graphs = Graphs(agent.generators, not_now=lambda: buffer.is_saving)
        sampler = buffer.sampler
        # of a buffer: calls of update_priorities, of which an update makes one a batch
        every = sampler.resort_every if isinstance(sampler, RankBased) else None
        self._sort_every = NEVER if every is None else max(1, every // config.accumulate)
        self.not_captured = self._why_not()

    def make(self, updates: int, first: Callable[[], object] | None = None) -> None:
        """Makes so many updates; on a GPU the host waits for nothing.

        Args:
            updates: May be 0.
            first: Work of the device that comes before them, in one graph with the first of them;
                always the same.
        """
        most = self._config.updates_per_graph
        while updates or first is not None:
            count = min(updates, most, self._until_sort())
            if count > 1 and not self._has_graph(count, first):
                count = 1
            self._make(count, first)
            updates, first = updates - count, None

    def _has_graph(self, count: int, before: Callable[[], object] | None) -> bool:
        """Whether so many updates have a graph, or will."""
        graphs = self._graphs
        return len(graphs) < MOST_BURSTS or (before is not None, self._due(count)) in graphs

    def _due(self, count: int) -> tuple[bool, ...]:
        """Which of the next updates do more than others."""
        first = self._agent.updates + 1
        return tuple(self._agent.due(update) for update in range(first, first + count))

    def _make(self, count: int, before: Callable[[], object] | None) -> None:
        if self.not_captured is None:
            self.not_captured = self._why_not()  # a buffer whose GPU failed is on the CPU
        due, begun = self._due(count), before is not None
        parts = {*due, "before"} if begun else due
        self._run((begun, due), lambda: self._work(before, due), parts)
        self._agent.updates += count
        if not count or self._sorts_itself or self._until_sort() < self._sort_every:
            return
        self._run("sort", self._buffer.resort)  # a buffer does not see what is replayed

    def _run(
        self, key: Hashable, work: Callable[[], object], parts: Iterable[Hashable] = ()
    ) -> None:
        """Does work as a graph, as long as that can be; see `Graphs.run`."""
        if self.not_captured is None:
            try:
                self._graphs.run(key, work, parts)
            except UnsupportedError as error:
                if self._config.capture == "on":
                    raise
                self.not_captured = str(error)
                warnings.warn(f"{error}; it goes on without", RuntimeWarning, stacklevel=4)
            else:
                return
        work()

    @property
    def _sorts_itself(self) -> bool:
        return self._sort_every == NEVER or self.not_captured is not None

    def _until_sort(self) -> int:
        """Updates until rows are sorted by rank, at least 1."""
        return self._sort_every - self._agent.updates % self._sort_every

    def _why_not(self) -> str | None:
        """As the function."""
        return why_not(self._config, self._agent.device, self._buffer.device)

    def _work(self, before: Callable[[], object] | None, due: tuple[bool, ...]) -> None:
        """What is the same whether it is captured or not."""
        if before is not None:
            before()
        batch_size = self._config.replay.batch_size
        for of_update in due:
            batches = [next(self._batches) for _ in range(self._config.accumulate)]
            result = self._agent.learn(batches, of_update)
            if self._buffer.prioritized:
                errors = torch.split(result.td_error, batch_size)
                for batch, of_batch in zip(batches, errors, strict=True):
                    self._buffer.update_priorities(batch.ids, of_batch)
            self._means.add(result.metrics)


def why_not(config: TrainConfig, networks: torch.device, buffer: torch.device) -> str | None:
    """Why updates cannot be captured where these are, as far as settings tell; None if they can."""
    if config.capture == "off":
        return "capture is off"
    if networks.type != "cuda":
        return f"the networks are on the {networks.type.upper()}"
    if buffer != networks:
        return f"the buffer is on {buffer}, the networks are on {networks}"
    if config.replay.prefetch:
        return "batches are drawn ahead (replay.prefetch), which goes through the host"
    return None


def require_capture(config: TrainConfig, parts: Parts) -> None:
    """Refuse `capture` "on" where nothing can be captured.

    Raises:
        ConfigError: Says why.
    """
    why = why_not(config, parts.agent.device, parts.buffer.device)
    if config.capture == "on" and why:
        raise ConfigError(f"capture on: {why}")
