"""Updates that are called, and the same played back from a graph."""

import dataclasses
import gc

import pytest
import torch
from torch.autograd.graph import get_gradient_edge

from relive.agents.kinds import CONFIGS
from relive.errors import ConfigError, UnsupportedError
from relive.gpu.capture import NotNowError
from relive.gpu.means import MetricMeans
from relive.nn import flat
from relive.nn.learning_rate import LearningRate
from relive.training import ReplayConfig, TrainConfig, build
from relive.training.capture import MOST, WARM_UP, Graphs
from relive.training.updates import Updates, require_capture
from tests.unit.training.recorded import Lent, Listed, Recorder, graphs_on_the_cpu

ENVS = {"dqn": "CartPole-v1", "c51": "CartPole-v1"}
BATCH = 8
ROWS = 300
AGENTS = {
    "dqn": {"target_period": 3, "lr_end": 0.0},
    "c51": {"target_period": 3, "noisy_sigma": 0.5, "double": True, "atoms": 7, "lr_end": 0.0},
    "ddpg": {"lr_end": 0.0},
    "td3": {"policy_delay": 3, "lr_end": 1e-4},
    "sac": {"policy_delay": 2, "critics": 3, "target_critics": 2, "lr_end": 0.0},
}
DRAWN = {
    "uniform": {"sampler": "uniform"},
    "proportional": {"sampler": "proportional"},
    "rank": {"sampler": "rank", "resort_every": 4},
    "ERE": {"sampler": "proportional", "window": "ere", "window_rows": 20, "sweep": 7},
}


class Pretended(Updates):  # type: ignore[misc]
    """Updates that hold the CPU for a GPU."""

    reason = None

    def _why_not(self):
        return self.reason


def settings(algorithm, drawn, **changes):
    replay = ReplayConfig(batch_size=BATCH, capacity=ROWS, **DRAWN[drawn])
    agent = CONFIGS[algorithm](hidden=(16,), **AGENTS[algorithm])
    env = ENVS.get(algorithm, "Pendulum-v1")
    return TrainConfig(env=env, replay=replay, agent=agent, device="cpu", **changes)


def made(config, captured):
    """Updates of a new agent from a buffer with rows; as if on a GPU, its step size included."""
    parts = build(config)
    parts.env.close()
    buffer, agent = parts.buffer, parts.agent
    buffer.extend(**buffer_rows(agent))
    rate = LearningRate(config.agent.lr, config.agent.lr_end, 20, "cpu")
    rate.move("cpu")
    agent.learning_rate = rate
    lent = Lent(buffer, BATCH)
    means = MetricMeans()
    updates = Pretended(config, lent, agent, lent, means)
    updates.not_captured = updates.reason = None if captured else "not asked for"
    return updates, agent, buffer, means


def buffer_rows(agent, seed=1):
    """Half of what a buffer holds."""
    generator = torch.Generator().manual_seed(seed)
    rows = ROWS // 2
    obs = torch.randn(rows, *agent.obs.shape, generator=generator)
    if isinstance(agent.actions, int):
        action = torch.randint(agent.actions, (rows,), generator=generator)
    else:
        action = torch.rand(rows, agent.actions.size, generator=generator)
    ended = torch.rand(rows, generator=generator) < 0.1
    return {
        "obs": obs,
        "action": action,
        "reward": torch.randn(rows, generator=generator),
        "next_obs": obs.roll(-1, 0),
        "terminated": ended,
        "truncated": torch.zeros_like(ended),
    }


def state_of(agent, buffer, means):
    """All that later updates depend on, as one list of tensors."""
    found = []

    def gather(value):
        if isinstance(value, dict):
            for entry in value.values():
                gather(entry)
        elif isinstance(value, torch.Tensor):
            found.append(value.clone())

    gather(agent.state_dict())
    gather(means.state_dict())
    found.append(buffer.sample(16, train=False).ids)
    if buffer.prioritized:
        found.append(buffer.priorities(buffer.live_ids()))
    return found


@pytest.mark.parametrize("per_graph", [1, 3])
@pytest.mark.parametrize("drawn", DRAWN)
@pytest.mark.parametrize("algorithm", CONFIGS)
def test_what_is_played_back_is_what_would_have_been_called(
    algorithm, drawn, per_graph, monkeypatch
):
    config = settings(algorithm, drawn, updates_per_graph=per_graph)
    called, *expected = made(config, captured=False)
    played, *found = made(config, captured=True)
    with graphs_on_the_cpu(monkeypatch) as graphs:
        for burst in (1, 2, 4, 12, 1, 1, 5, 20):
            called.make(burst)
            played.make(burst)
    assert sum(graph.replays for graph in graphs) >= 5  # not all were called
    assert found[0].updates == expected[0].updates == 46
    for ours, theirs in zip(state_of(*found), state_of(*expected), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("drawn", DRAWN)
@pytest.mark.parametrize("algorithm", CONFIGS)
def test_equal_updates_launch_equal_operations_with_equal_numbers(algorithm, drawn):
    # as a graph would have to: sizes, beta, windows and step sizes change meanwhile
    updates, agent, buffer, _ = made(settings(algorithm, drawn), captured=False)
    met, seen = set(), {}
    for update in range(100):
        due = agent.due(agent.updates + 1)
        with Listed() as listed:
            updates.make(1)
        if due not in met or update < 1:
            met.add(due)  # the first of each kind make the sums of metrics, and memory
        else:
            assert seen.setdefault(due, listed.calls) == listed.calls, update
        if update == 50 and len(buffer) < buffer.capacity:
            buffer.extend(**buffer_rows(agent))
    assert met == seen.keys() == {agent.due(update) for update in range(1, 100)}


def test_graphs_differ_in_what_is_due_only(monkeypatch):
    config = settings("dqn", "proportional")
    updates, *_ = made(config, captured=True)
    with graphs_on_the_cpu(monkeypatch) as graphs:
        updates.make(60)
    assert len(graphs) == 2  # the target network moves, or it does not
    assert sum(graph.replays for graph in graphs) == 60 - 2 * WARM_UP


def test_bursts_of_ever_other_kinds_are_made_of_graphs_of_one_update(monkeypatch):
    # the target network moves at another place of nearly every burst
    agent = CONFIGS["dqn"](hidden=(16,), target_period=33)
    config = dataclasses.replace(settings("dqn", "proportional"), agent=agent, updates_per_graph=32)
    called, *expected = made(config, captured=False)
    played, *found = made(config, captured=True)
    calls, learn = [], found[0].learn
    found[0].learn = lambda *given: calls.append(given) or learn(*given)
    with graphs_on_the_cpu(monkeypatch) as graphs:
        for _ in range(40):
            called.make(32)
            played.make(32)
        before = len(calls)
        for _ in range(40):
            called.make(32)
            played.make(32)
    assert len(calls) == before
    assert len(graphs) <= MOST
    for ours, theirs in zip(state_of(*found), state_of(*expected), strict=True):
        assert torch.equal(ours, theirs)


def test_generators_of_the_agent_are_known_to_every_graph(monkeypatch):
    updates, agent, *_ = made(settings("sac", "uniform"), captured=True)
    with graphs_on_the_cpu(monkeypatch) as graphs:
        updates.make(12)
    assert graphs
    assert all(graph.generators == agent.generators for graph in graphs)


def test_a_step_that_asks_the_device_is_not_captured_and_goes_on_with_a_warning(monkeypatch):
    config = settings("dqn", "uniform")
    called, *expected = made(config, captured=False)
    updates, agent, buffer, means = made(config, captured=True)
    learn = agent.learn

    def asking(batches, due):
        result = learn(batches, due)
        result.td_error.max().item()
        return result

    agent.learn = asking
    with graphs_on_the_cpu(monkeypatch), pytest.warns(RuntimeWarning, match="_local_scalar_dense"):
        updates.make(10)
    called.make(10)
    assert "_local_scalar_dense" in updates.not_captured
    for ours, theirs in zip(state_of(agent, buffer, means), state_of(*expected), strict=True):
        assert torch.equal(ours, theirs)


def test_a_sort_that_cannot_be_captured_goes_on_with_a_warning(monkeypatch):
    config = settings("dqn", "rank")
    called, *expected = made(config, captured=False)
    updates, agent, buffer, means = made(config, captured=True)
    resort = Lent.resort

    def without_memory(lent):
        if Recorder.current is not None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        resort(lent)

    monkeypatch.setattr(Lent, "resort", without_memory)
    with graphs_on_the_cpu(monkeypatch), pytest.warns(RuntimeWarning, match="out of memory"):
        updates.make(30)
    called.make(30)
    assert "out of memory" in updates.not_captured
    for ours, theirs in zip(state_of(agent, buffer, means), state_of(*expected), strict=True):
        assert torch.equal(ours, theirs)


def test_with_capture_on_a_step_that_cannot_be_captured_is_an_error(monkeypatch):
    updates, agent, *_ = made(settings("dqn", "uniform", capture="on"), captured=True)
    learn = agent.learn
    agent.learn = lambda batches, due: (learn(batches, due), batches[0].reward.sum().item())[0]
    with graphs_on_the_cpu(monkeypatch), pytest.raises(UnsupportedError, match="cannot be captur"):
        updates.make(10)


def test_on_the_cpu_nothing_is_captured_and_capture_on_is_refused_with_the_reason():
    config = settings("dqn", "uniform")
    parts = build(config)
    batches = parts.buffer.batches(BATCH)
    updates = Updates(config, parts.buffer, parts.agent, batches, MetricMeans())
    assert updates.not_captured == "the networks are on the CPU"
    config = dataclasses.replace(config, capture="on")
    with pytest.raises(ConfigError, match="capture on: the networks are on the CPU"):
        require_capture(config, parts)
    parts.env.close()


def test_a_buffer_that_left_its_gpu_is_learned_from_without_graphs(monkeypatch):
    config = settings("dqn", "proportional")
    called, *expected = made(config, captured=False)
    updates, *found = made(config, captured=True)
    with graphs_on_the_cpu(monkeypatch) as graphs:
        updates.make(5)
        updates.reason = "the buffer is on cpu, the networks are on cuda:0"
        replays = [graph.replays for graph in graphs]
        updates.make(5)
    assert [graph.replays for graph in graphs] == replays
    called.make(10)
    for ours, theirs in zip(state_of(*found), state_of(*expected), strict=True):
        assert torch.equal(ours, theirs)


def test_work_that_cannot_be_captured_just_now_is_captured_later(monkeypatch):
    counted, graphs, saving = torch.zeros(()), Graphs(), [True]

    def work():
        if saving and Recorder.current is not None:
            raise NotNowError("a save is under way")
        counted.add_(1)

    with graphs_on_the_cpu(monkeypatch):
        for _ in range(5):
            graphs.run("work", work)
        assert (len(graphs), counted.item()) == (0, 5)
        saving.clear()
        for _ in range(5):
            graphs.run("work", work)
    assert (len(graphs), counted.item()) == (1, 10)


def test_no_more_graphs_are_kept_than_asked_for(monkeypatch):
    counted = torch.zeros(3)
    graphs = Graphs(most=2)
    with graphs_on_the_cpu(monkeypatch) as captured:
        for _ in range(10):
            for key in range(3):
                graphs.run(key, lambda key=key: counted[key].add_(1))
    assert len(graphs) == len(captured) == 2
    assert counted.tolist() == [10.0, 10.0, 10.0]


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_nothing_of_the_way_back_outlives_an_update(algorithm, monkeypatch):
    """What takes the gradient of a parameter is of the stream on which it was made.

    One that an earlier update has left would draw that update's stream into a capture.
    """
    updates, agent, *_ = made(settings(algorithm, "uniform"), captured=False)
    for name in ("actor_backprop", "critic_backprop"):
        if (backprop := getattr(agent, name, None)) is not None:
            backprop.by_hand = False
    gradient, marked = flat.gradient, []

    def marking(outputs, inputs, slopes):
        for parameter in inputs:
            get_gradient_edge(parameter).node.metadata["is_marked"] = True
        marked.extend(inputs)
        assert all(map(is_marked, marked[-len(inputs) :]))
        return gradient(outputs, inputs, slopes)

    def is_marked(parameter):
        return "is_marked" in get_gradient_edge(parameter).node.metadata

    monkeypatch.setattr(flat, "gradient", marking)
    gc.disable()
    try:
        updates.make(6)
        assert marked
        assert not any(map(is_marked, marked))
    finally:
        gc.enable()
