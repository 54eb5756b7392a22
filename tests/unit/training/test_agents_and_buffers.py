"""Five agents, every kind of buffer: a swap of one changes nothing in the other."""

import numpy as np
import pytest

from relive import Proportional, RankBased, Recent, ReplayBuffer, Uniform
from relive.agents import C51Config, DDPGConfig, DQNConfig, SACConfig, TD3Config
from relive.agents.kinds import AGENTS, CONFIGS, algorithm_of
from relive.envs import make_vector_env
from relive.errors import ConfigError
from relive.training import ReplayConfig, TrainConfig, Trainer, build, load_policy, save_policy
from relive.training.algorithms import CONTINUOUS, actions_of
from relive.training.records import Evaluated, RunEnded, TrainingProgress
from relive.training.run import resume, run
from tests.unit.training.test_resume import Interrupt, assert_same_run

AGENT = {
    "dqn": DQNConfig(hidden=(8,)),
    "c51": C51Config(hidden=(8,)),
    "ddpg": DDPGConfig(hidden=(8,)),
    "td3": TD3Config(hidden=(8,)),
    "sac": SACConfig(hidden=(8,)),
}
every = pytest.mark.parametrize("algorithm", AGENT)


def env_of(algorithm):
    return "Pendulum-v1" if algorithm in CONTINUOUS else "CartPole-v1"


def tiny(algorithm, replay=None, **settings):
    """40 steps, the first 10 of them without an update."""
    return TrainConfig(
        env=env_of(algorithm),
        agent=AGENT[algorithm],
        **{
            "device": "cpu",
            "total_steps": 40,
            "learning_starts": 10,
            "train_every": 2,
            "eval_episodes": 0,
            "log_every": 20,
            "replay": ReplayConfig(**{"capacity": 100, "batch_size": 8, **(replay or {})}),
            **settings,
        },
    )


BUFFERS = {
    "uniform": {"sampler": Uniform()},
    "proportional": {"sampler": Proportional()},
    "rank": {"sampler": RankBased(resort_every=4)},
    "ERE": {"window": Recent(eta=0.99, c_min=10, updates=5)},
    "proportional ERE": {
        "sampler": Proportional(),
        "window": Recent(eta=0.99, c_min=10, updates=5),
    },
    "demonstrations": {"sampler": Proportional(demo_bonus=0.1), "demonstrations": 12},
    "uniform demonstrations": {"demonstrations": 12},
    "3 steps": {"n_step": 3},
    "4 environments, 2 steps, proportional": {
        "num_envs": 4,
        "n_step": 2,
        "sampler": Proportional(),
    },
}


def filled(env, demonstrations, **settings):
    """A buffer for the environment, with random rows pinned in it."""
    buffer = ReplayBuffer.for_env(env, 100, seed=3, track_reuse=True, **settings)
    if demonstrations:
        rng = np.random.default_rng(0)
        space = env.single_action_space
        space.seed(0)
        shape = (demonstrations, *env.single_observation_space.shape)
        buffer.extend(
            obs=rng.normal(size=shape).astype(np.float32),
            action=np.array([space.sample() for _ in range(demonstrations)]),
            reward=rng.normal(size=demonstrations).astype(np.float32),
            next_obs=rng.normal(size=shape).astype(np.float32),
            terminated=np.zeros(demonstrations, bool),
            truncated=np.zeros(demonstrations, bool),
        )
        buffer.pin_demonstrations(demonstrations)
    return buffer


@every
@pytest.mark.parametrize("kind", BUFFERS)
def test_every_agent_learns_from_every_kind_of_buffer(algorithm, kind):
    settings = dict(BUFFERS[kind])
    num_envs, demonstrations = settings.pop("num_envs", 1), settings.pop("demonstrations", 0)
    config = tiny(algorithm, num_envs=num_envs)
    env = make_vector_env(config.env, num_envs)
    buffer = filled(env, demonstrations, **settings)
    env.close()
    parts = build(config, buffer)
    records = list(Trainer(config, parts).records())
    assert isinstance(records[-1], RunEnded)
    assert parts.agent.updates == 15
    assert buffer.stats()["draws"] == 15 * 8
    progress = [record for record in records if isinstance(record, TrainingProgress)]
    assert np.isfinite([progress[-1].loss, progress[-1].td_error, progress[-1].q_mean]).all()
    if buffer.prioritized:
        assert buffer.stats()["bad_priorities"] == 0
        assert len(buffer.priorities(buffer.live_ids()).unique()) > 1


@every
def test_learning_starts_counts_online_rows_only(algorithm):
    config = tiny(algorithm, total_steps=11, train_every=1)
    env = make_vector_env(config.env)
    buffer = filled(env, 30)
    env.close()
    parts = build(config, buffer)
    seen = []
    learn = parts.agent.learn
    parts.agent.learn = lambda *given: (seen.append(len(buffer)), learn(*given))[1]
    for _ in Trainer(config, parts).records():
        pass
    assert seen == [30 + 11]


@every
def test_accumulated_batches_make_one_update_and_each_is_told_its_errors(algorithm):
    config = tiny(algorithm, {"sampler": "proportional"}, accumulate=3)
    parts = build(config)
    told = []
    tell = parts.buffer.update_priorities
    parts.buffer.update_priorities = lambda ids, errors: (told.append(len(ids)), tell(ids, errors))
    *_, ended = Trainer(config, parts).records()
    assert ended.updates == config.planned_updates == 15
    assert told == [8] * 45
    assert parts.buffer.stats()["progress"] == 45
    assert parts.buffer.beta == pytest.approx(1.0, abs=0.02)  # 45 batches were planned


@every
def test_a_policy_is_saved_loaded_and_evaluated_as_it_was(algorithm, tmp_path):
    config = tiny(algorithm, eval_episodes=2, out=tmp_path / "run")
    result = run(config)
    assert isinstance(result.evaluated, Evaluated)
    loaded = load_policy(result.out)
    assert algorithm_of(loaded.config) == algorithm
    parts = build(config)
    seen = (
        np.random.default_rng(0)
        .normal(size=(4, *parts.env.single_observation_space.shape))
        .astype(np.float32)
    )
    save_policy(parts.agent, tmp_path / "again.safetensors")
    again = load_policy(tmp_path / "again.safetensors")
    assert again.act_greedy(seen).tolist() == parts.agent.act_greedy(seen).tolist()
    assert (again.obs, again.actions) == (parts.agent.obs, parts.agent.actions)
    assert again.config == config.agent


@every
def test_a_run_that_was_stopped_ends_as_one_that_was_not(algorithm, tmp_path):
    settings = {"replay": {"sampler": "proportional", "n_step": 2}, "num_envs": 2}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(tiny(algorithm, **settings, out=whole))
    run(tiny(algorithm, **settings, out=broken), [Interrupt(20)])
    resume(broken)
    assert_same_run(whole, broken)


def test_the_tables_have_an_entry_for_each():
    assert list(AGENTS) == list(CONFIGS) == list(AGENT)
    for algorithm, config in AGENT.items():
        assert algorithm_of(config) == algorithm
        assert TrainConfig(env="x", agent=config).algorithm == algorithm


@every
def test_an_environment_with_other_actions_is_refused_with_the_agents_that_may(algorithm):
    other = "CartPole-v1" if algorithm in CONTINUOUS else "Pendulum-v1"
    may = "dqn, c51" if algorithm in CONTINUOUS else "ddpg, td3, sac"
    with pytest.raises(ConfigError, match=f"{algorithm} cannot act there: .*: {may}"):
        build(TrainConfig(env=other, agent=AGENT[algorithm], device="cpu"))
    env = make_vector_env(env_of(algorithm))
    assert actions_of(env, algorithm) is not None
    env.close()
