"""Whole steps on the device: called, played back from graphs, watched for waits."""

import dataclasses

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from relive.agents.kinds import CONFIGS
from relive.nn.learning_rate import LearningRate
from relive.training import ReplayConfig, TrainConfig, Trainer, build
from relive.training import loop as training_loop
from relive.training.records import EpisodesEnded, ReplayMeasured, TrainingProgress
from relive.training.rollout import DeviceRollout, rollout_of
from tests.triton.waits import no_waits
from tests.unit.training.recorded import Lent, Listed, graphs_on_the_cpu
from tests.unit.training.test_updates import AGENTS, DRAWN, Pretended, state_of

BATCH, ENVS = 8, 4
NUMBERED = ("dqn", "c51")
EVERY = pytest.mark.parametrize("algorithm", CONFIGS)
CLOCK = {"seconds", "steps_per_second"}


def settings(algorithm, drawn="proportional", **changes):
    replay = ReplayConfig(batch_size=BATCH, capacity=100, **DRAWN[drawn])
    env = "torch/CartPole-v1" if algorithm in NUMBERED else "torch/Pendulum-v1"
    return TrainConfig(
        **{
            "env": env,
            "num_envs": ENVS,
            "total_steps": 50 * ENVS,
            "learning_starts": 20,
            "train_every": 2,
            "log_every": 10 * ENVS,
            "eval_episodes": 0,
            "device": "cpu",
            "replay": replay,
            "agent": CONFIGS[algorithm](hidden=(16,), **AGENTS[algorithm]),
            **changes,
        }
    )


def made(config, monkeypatch, *, captured):
    """A trainer that holds the CPU for a GPU, or does not; its step size is on the device."""
    parts = build(config)
    agent, buffer = parts.agent, parts.buffer
    rate = LearningRate(config.agent.lr, config.agent.lr_end, config.planned_updates, "cpu")
    rate.move("cpu")
    agent.learning_rate = rate
    parts = parts._replace(buffer=Lent(buffer, BATCH))
    with monkeypatch.context() as patch:
        patch.setattr(Pretended, "reason", None if captured else "not asked for")
        patch.setattr(training_loop, "Updates", Pretended)
        trainer = Trainer(config, parts)
    trainer._updates.reason = None if captured else "not asked for"
    return trainer, agent, buffer


def unseen(add):
    """What a buffer on the CPU does by itself, and one on a GPU does not, no mode sees."""

    def hidden(**step):
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            add(**step)

    return hidden


def numbers(records):
    """Of records, all but what depends on the clock."""
    wanted = (EpisodesEnded, TrainingProgress, ReplayMeasured)
    plain = [dataclasses.asdict(record) for record in records if isinstance(record, wanted)]
    plain[-1]["stats"].pop("sorts")  # a buffer on the CPU sorts by itself, too
    return [{name: value for name, value in one.items() if name not in CLOCK} for one in plain]


@pytest.mark.parametrize("per_graph", [1, 2])
@pytest.mark.parametrize("drawn", DRAWN)
@EVERY
def test_a_run_that_is_played_back_is_the_run_that_is_called(
    algorithm, drawn, per_graph, monkeypatch
):
    config = settings(algorithm, drawn, updates_per_graph=per_graph)
    called, *expected = made(config, monkeypatch, captured=False)
    played, *found = made(config, monkeypatch, captured=True)
    with graphs_on_the_cpu(monkeypatch) as graphs:
        ours, theirs = numbers(played.records()), numbers(called.records())
    assert played._updates.not_captured is None
    assert sum(graph.replays for graph in graphs) >= 30
    assert [one.keys() for one in ours] == [one.keys() for one in theirs]
    assert ours == theirs
    ours, theirs = (state_of(*of, trainer._means) for of, trainer in
                    ((found, played), (expected, called)))  # fmt: skip
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_graphs_are_those_of_a_step_with_its_first_updates_and_of_the_rest(monkeypatch):
    config = settings("dqn", train_every=1, agent=CONFIGS["dqn"](hidden=(16,), target_period=8))
    trainer, *_ = made(config, monkeypatch, captured=True)
    with graphs_on_the_cpu(monkeypatch) as graphs:
        list(trainer.records())
    # a step before the first update; with an update; more of those; one that moves the target
    assert len(graphs) == 4
    keys = set(trainer._updates._graphs._graphs)
    assert keys == {(True, ()), (True, (False,)), (False, (False,)), (False, (True,))}


@pytest.mark.parametrize("drawn", DRAWN)
@EVERY
def test_equal_steps_launch_equal_operations_with_equal_numbers(algorithm, drawn, monkeypatch):
    # while epsilon, the step size, the number of rows, beta and the window change
    config = settings(
        algorithm, drawn, total_steps=150 * ENVS, replay=ReplayConfig(
            batch_size=BATCH, capacity=400, **DRAWN[drawn]
        ),
    )  # fmt: skip
    trainer, agent, buffer = made(config, monkeypatch, captured=False)
    rollout, updates = trainer._rollout, trainer._updates
    trainer._buffer.add = unseen(buffer.add)
    rollout.begin()
    for _ in range(5):
        rollout.step()
    met, seen, sizes = set(), {}, set()
    for step in range(100):
        rollout.explore(1.0 - step / 100)
        due = agent.due(agent.updates + 1)
        with Listed() as listed:
            updates.make(1, rollout.step)
        sizes.add(len(buffer))
        if due not in met or step < 2:  # the first ones make the sums of metrics, and memory
            met.add(due)
        else:
            assert seen.setdefault(due, listed.calls) == listed.calls, step
    assert len(sizes) > 90


@EVERY
def test_a_step_waits_for_nothing(algorithm, monkeypatch):
    trainer, *_ = made(settings(algorithm), monkeypatch, captured=False)
    rollout, agent = trainer._rollout, trainer._agent
    rollout.begin()
    for _ in range(3):
        rollout.step()
    trainer._updates.make(1)
    lent = trainer._buffer
    lent.add = unseen(lent.buffer.add)
    batches = [next(lent) for _ in range(2)]
    with no_waits():
        for share in (0.5, 0.25):
            rollout.explore(share)
            rollout.step()
            trainer._means.add(agent.learn(batches, due=True).metrics)


@pytest.mark.filterwarnings("ignore:Dynamo does not know", "ignore:The .grad attribute")
@EVERY
def test_compiled_losses_give_the_same_run(algorithm, monkeypatch):
    config = settings(algorithm, total_steps=20 * ENVS)
    expected = numbers(made(config, monkeypatch, captured=False)[0].records())
    compiled = dataclasses.replace(config, compile="aot_eager")
    called, *_ = made(compiled, monkeypatch, captured=False)
    assert numbers(called.records()) == expected


@pytest.mark.filterwarnings("ignore:Dynamo does not know", "ignore:The .grad attribute")
def test_compiled_updates_are_captured_whatever_was_compiled_before_them(monkeypatch):
    for algorithm in ("dqn", "td3", "sac"):  # other shapes in the same functions
        config = settings(algorithm, total_steps=20 * ENVS)
        expected = numbers(made(config, monkeypatch, captured=False)[0].records())
        compiled = dataclasses.replace(config, compile="aot_eager")
        played, *_ = made(compiled, monkeypatch, captured=True)
        with graphs_on_the_cpu(monkeypatch) as graphs:
            assert numbers(played.records()) == expected
        assert played._updates.not_captured is None
        assert sum(graph.replays for graph in graphs) >= 10


def test_equal_seeds_give_equal_runs_and_others_do_not():
    runs = [numbers(Trainer(c, build(c)).records()) for c in map(seeded, (1, 1, 2))]
    assert runs[0] == runs[1] != runs[2]


def seeded(seed):
    return settings("dqn", seed=seed)


@EVERY
def test_random_actions_are_as_many_as_the_word_says(algorithm):
    replay = ReplayConfig(capacity=2000)
    config = settings(algorithm, num_envs=2000, replay=replay)
    parts = build(config)
    obs, _ = parts.env.reset(seed=0)
    agent = parts.agent
    if algorithm == "sac":
        torch.nn.init.zeros_(agent.actor.head.weight)
        agent.actor.head.bias.data[1] = -20.0  # of the log of the deviation: next to none
    elif algorithm not in NUMBERED:
        agent.config = dataclasses.replace(agent.config, exploration_noise=0.0)
    greedy = torch.from_numpy(agent.act_greedy(obs.numpy()))
    for share in (0.0, 0.5, 1.0):
        action = agent.explore(obs, torch.tensor(share))
        assert action.dtype == greedy.dtype
        assert action.shape == greedy.shape
        if action.dtype == torch.int64:
            share /= 2  # half of the random ones are the greedy ones
            differ = action != greedy
        else:
            differ = ((action - greedy).abs() > 1e-6).view(-1)
            assert action.abs().max() <= 2
        # 5 standard errors of 2000 draws
        assert abs(differ.float().mean().item() - share) <= 5 * (share * (1 - share) / 2000) ** 0.5


@EVERY
def test_exploring_draws_from_a_stream_of_its_own(algorithm):
    parts, others = (build(settings(algorithm)) for _ in range(2))
    obs, _ = parts.env.reset(seed=0)
    before = torch.get_rng_state()
    first, second = (parts.agent.explore(obs, 1.0) for _ in range(2))
    assert not torch.equal(first, second) or first.dtype == torch.int64
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(others.agent.explore(obs, 1.0), first)
    seen = obs.numpy()
    expected = build(settings(algorithm)).agent.act(seen, 1.0)
    assert parts.agent.act(seen, 1.0).tolist() == expected.tolist()


def test_environments_of_tensor_code_are_where_the_agent_is():
    parts = build(settings("td3"))
    assert parts.env.device == parts.agent.device
    assert isinstance(rollout_of(parts), DeviceRollout)
    assert isinstance(rollout_of(build(settings("td3", env="Pendulum-v1"))).episodes, int)
