"""The loop: its records in order, its counting, its end."""

import itertools

import pytest
import torch

from relive import ReplayBuffer
from relive.envs.make import make_vector_env
from relive.training import Trainer, build, train
from relive.training.records import (
    EpisodeEnded,
    Evaluated,
    ReplayMeasured,
    RunEnded,
    RunStarted,
    TrainingProgress,
    as_json,
)
from tests.unit.training.tiny import tiny

SAMPLERS = ["uniform", "proportional"]
CLOCK = {"seconds", "steps_per_second"}


def of_kind(records, kind):
    return [record for record in records if isinstance(record, kind)]


def without_clock(records):
    return [
        {name: value for name, value in as_json(record).items() if name not in CLOCK}
        for record in records
    ]


def test_records_come_in_order():
    records = list(train(tiny()))
    kinds = [kind for kind, _ in itertools.groupby(records, type)]
    assert kinds[0] is RunStarted
    assert kinds[-3:] == [ReplayMeasured, Evaluated, RunEnded]
    assert set(kinds[1:-3]) == {EpisodeEnded, TrainingProgress}
    steps = [record.step for record in records]
    assert steps == sorted(steps)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_one_seed_gives_one_sequence_of_numbers(sampler, num_envs):
    config = tiny({"sampler": sampler, "n_step": 2}, num_envs=num_envs)
    first, again = without_clock(train(config)), without_clock(train(config))
    assert first == again


def test_batches_drawn_ahead_give_one_sequence_and_are_progress():
    config = tiny({"prefetch": 2})
    first, again = list(train(config)), list(train(config))
    assert without_clock(first) == without_clock(again)
    stats = of_kind(first, ReplayMeasured)[0].stats
    assert stats["progress"] == of_kind(first, RunEnded)[0].updates + 2


def test_another_seed_gives_another_sequence():
    assert without_clock(train(tiny(seed=1)))[1:] != without_clock(train(tiny(seed=2)))[1:]


def test_progress_is_told_at_every_interval():
    progress = of_kind(train(tiny()), TrainingProgress)
    assert [record.step for record in progress] == [100, 200, 300]
    assert [record.updates for record in progress] == [0, 50, 100]
    assert [record.loss is None for record in progress] == [True, False, False]
    assert [record.fill for record in progress] == [0.5, 1.0, 1.0]
    # a whole run of betas: from 0.4 before the first update to 1 at the last
    assert [record.beta for record in progress] == pytest.approx([0.4, 0.7, 1.0])
    assert all(record.steps_per_second > 0 for record in progress)


def test_epsilon_is_1_until_learning_starts_and_falls_with_the_steps_of_the_run():
    agent = {"epsilon_start": 0.9, "epsilon_end": 0.1, "epsilon_fraction": 0.5}
    progress = of_kind(train(tiny(agent=agent, log_every=50)), TrainingProgress)
    expected = [1.0, 0.9 - 0.8 * 100 / 150, 0.1, 0.1, 0.1, 0.1]
    assert [record.epsilon for record in progress] == pytest.approx(expected)


@pytest.mark.parametrize("num_envs", [1, 4])
def test_every_step_is_counted_in_an_episode_or_still_going_on(num_envs):
    config = tiny(num_envs=num_envs)
    parts = build(config)
    records = list(Trainer(config, parts).records())
    episodes = of_kind(records, EpisodeEnded)
    assert {episode.env for episode in episodes} == set(range(num_envs))
    assert all(episode.episode_return == episode.length for episode in episodes)  # CartPole pays 1
    assert sum(episode.length for episode in episodes) <= config.total_steps
    assert parts.buffer.stats()["added"] == config.total_steps
    assert parts.buffer.stats()["draws"] == parts.agent.updates * config.replay.batch_size


@pytest.mark.parametrize(
    ("settings", "updates"),
    [
        # 16 rows make a batch: 2 updates at steps 16, 20, ... 40
        ({}, 14),
        # the last 2 steps of each environment may still wait: 22 of 24 steps, 20, 24, ... 40
        ({"n_step": 3}, 12),
        ({"n_step": 3, "num_envs": 4}, 10),
    ],
    ids=str,
)
def test_no_update_is_planned_or_made_before_the_buffer_has_a_batch(settings, updates):
    replay = {"n_step": settings.pop("n_step", 1)}
    config = tiny(replay, {"lr_end": 0.0}, learning_starts=0, total_steps=40, **settings)
    parts = build(config)
    records = list(Trainer(config, parts).records())
    assert config.planned_updates == records[-1].updates == updates
    # so that what follows from the plan comes to its end
    assert parts.agent.learning_rate.schedule(records[-1].updates) == 0.0
    assert parts.buffer.beta == pytest.approx(1.0)


def test_a_buffer_that_does_not_track_reuse_trains_and_tells_nothing_of_it():
    config = tiny()
    env = make_vector_env(config.env)
    buffer = ReplayBuffer.for_env(env, 200)
    env.close()
    (measured,) = of_kind(Trainer(config, build(config, buffer)).records(), ReplayMeasured)
    assert (measured.age_counts, measured.reuse_counts) == (None, None)
    assert measured.stats["added"] == 300


def test_without_priorities_there_is_no_beta_and_no_histogram():
    records = list(train(tiny({"sampler": "uniform"})))
    assert all(record.beta is None for record in of_kind(records, TrainingProgress))
    (measured,) = of_kind(records, ReplayMeasured)
    assert measured.priority_edges is None
    assert measured.priority_counts is None


def test_the_replay_is_measured_at_the_end():
    (measured,) = of_kind(train(tiny()), ReplayMeasured)
    assert sum(measured.priority_counts) == measured.stats["size"] == 200
    assert len(measured.priority_edges) == len(measured.priority_counts) + 1
    assert sum(measured.age_counts) == measured.stats["draws"] == 100 * 16
    assert sum(measured.reuse_counts) == 300  # 100 rows overwritten, 200 held


def test_evaluation_is_left_out_if_no_episodes_are_asked_for():
    assert not of_kind(train(tiny(eval_episodes=0)), Evaluated)


def test_evaluation_plays_the_same_episodes_whatever_the_seed_of_training():
    config = tiny(learning_starts=300)  # the networks differ, the start states do not
    (first,), (second,) = (of_kind(train(config), Evaluated) for _ in range(2))
    assert len(first.returns) == 2
    assert first.returns == second.returns
    assert first.reference == 500.0


def test_a_stopped_run_tells_what_it_knows():
    answers = iter([False] * 150 + [True] * 2)
    config = tiny()
    trainer = Trainer(config, build(config))
    records = list(trainer.records(lambda: next(answers)))
    assert [type(record) for record in records[-2:]] == [ReplayMeasured, RunEnded]
    assert records[-1].interrupted
    assert records[-1].step == 150
    assert not of_kind(records, Evaluated)


def test_ctrl_c_inside_a_step_ends_the_run_in_good_order(monkeypatch):
    config = tiny()
    parts = build(config)
    learn = parts.agent.learn

    def interrupted_at_the_tenth_update(batches, due):
        if parts.agent.updates == 9:
            raise KeyboardInterrupt
        return learn(batches, due)

    monkeypatch.setattr(parts.agent, "learn", interrupted_at_the_tenth_update)
    *_, measured, ended = Trainer(config, parts).records()
    assert isinstance(measured, ReplayMeasured)
    assert ended.interrupted
    assert ended.updates == 9


def test_the_settings_of_the_cpu_are_given_back():
    threads = torch.get_num_threads()
    seen = [torch.get_num_threads() for _ in train(tiny(threads=2, eval_episodes=0))]
    assert set(seen) == {2}
    assert torch.get_num_threads() == threads
