"""Settings: what is refused, what is planned, the way to JSON and back."""

import dataclasses
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from relive import Proportional, RankBased, Recent, Uniform
from relive.agents.kinds import CONFIGS, algorithm_of
from relive.errors import ConfigError, InputError
from relive.schedules import Linear
from relive.training import PRESETS, DemosConfig, ReplayConfig, TrainConfig, preset
from relive.training.presets import RECIPES
from tests.unit.training.tiny import tiny


@pytest.mark.parametrize(
    "bad",
    [
        {"total_steps": 0},
        {"seed": -1},
        {"num_envs": 0},
        {"threads": 0},
        {"learning_starts": -1},
        {"train_every": 0},
        {"updates_per_train": 0},
        {"accumulate": 0},
        {"eval_episodes": -1},
        {"log_every": 0},
    ],
    ids=str,
)
def test_a_count_below_its_least_value_is_refused_by_name(bad):
    (name, value), *_ = bad.items()
    with pytest.raises(ConfigError, match=f"{name} is at least .*; given {value}"):
        tiny(**bad)


def test_numbers_of_numpy_are_taken_as_those_of_python():
    given = {"gamma": np.float32(0.5)}, {"hidden": [np.int32(8)], "lr": np.float64(0.5)}
    config = tiny(*given, total_steps=np.int64(300))
    assert config == tiny({"gamma": 0.5}, {"hidden": (8,), "lr": 0.5}, total_steps=300)
    kinds = type(config.total_steps), type(config.replay.gamma), type(config.agent.hidden[0])
    assert kinds == (int, float, int)


def test_truth_values_of_numpy_are_taken_as_those_of_python():
    config = tiny({}, {"double": np.bool_(False)}, save_buffer=np.bool_(True))
    assert (config.agent.double, config.save_buffer) == (False, True)
    assert {type(config.agent.double), type(config.save_buffer)} == {bool}
    for no_number in (np.True_, np.timedelta64(8, "s"), np.timedelta64(1, "ns")):
        for name in ("batch_size", "gamma"):
            with pytest.raises(ConfigError, match=f"{name} is .*; given "):
                ReplayConfig(**{name: no_number})


@pytest.mark.parametrize(
    "setting", [{"alpha": 0.7}, {"beta": 0.5}, {"eps": 1e-3}, {"normalize": "buffer"}], ids=str
)
def test_settings_of_priorities_are_refused_where_there_are_none(setting):
    ReplayConfig(sampler="proportional", **setting)
    with pytest.raises(ConfigError, match=f"replay.{next(iter(setting))} .* does nothing"):
        ReplayConfig(sampler="uniform", **setting)


@pytest.mark.parametrize("batch_size", [0, 101])
def test_a_batch_that_the_buffer_can_never_fill_is_refused(batch_size):
    with pytest.raises(
        ConfigError, match=f"between 1 and replay.capacity, 100; given {batch_size}"
    ):
        ReplayConfig(capacity=100, batch_size=batch_size)


@pytest.mark.parametrize("window", ["recent", "ere"])
def test_a_window_that_is_wider_than_the_buffer_is_refused(window):
    ReplayConfig(window=window, capacity=1_000, batch_size=8, window_rows=1_000)
    with pytest.raises(ConfigError, match=r"is at most replay\.capacity, 999; given 1000"):
        ReplayConfig(window=window, capacity=999, batch_size=8, window_rows=1_000)


@pytest.mark.parametrize(
    ("recipe", "env"), [("sac", "Pendulum"), ("dqn", "CartPole"), ("rainbow", "MinAtar/Breakout")]
)
def test_an_id_without_a_version_has_the_preset_of_the_newest(recipe, env):
    assert preset(recipe, env) == dataclasses.replace(preset(recipe, f"{env}-v1"), env=env)


def test_fewer_batches_ahead_than_none_are_refused():
    with pytest.raises(ConfigError, match=r"replay\.prefetch is at least 0; given -1"):
        ReplayConfig(prefetch=-1)


def test_cuda_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="has no CUDA; use cpu"):
        tiny(device="cuda")


@pytest.mark.parametrize(
    ("envs", "given", "log", "save"),
    [
        (1, {}, 500, 25_000),
        (7, {}, 500, 25_000),
        (64, {}, 4_096, 64_000),
        (4_096, {}, 262_144, 4_096_000),
        (64, {"log_every": 9, "save_every": 0}, 9, 0),
    ],
)
def test_many_environments_are_told_of_and_saved_less_often_unless_one_says(envs, given, log, save):
    config = TrainConfig(env="CartPole-v1", num_envs=envs, **given)
    assert (config.log_interval, config.save_interval) == (log, save)
    assert not config.log_is_due(log, 2 * log - 1)
    assert config.log_is_due(log, 2 * log)
    assert config.save_is_due(0, 30_000) == (save == 25_000)


# before, after, updates due with learning_starts 100, 2 updates every 4 steps
DUE = [
    (0, 99, 0),
    (99, 100, 0),
    (100, 103, 0),
    (103, 104, 2),
    (104, 105, 0),
    (96, 108, 4),  # several environments step over the start
    (107, 116, 6),
]


@pytest.mark.parametrize(("before", "after", "due"), DUE)
def test_updates_fall_due_at_every_multiple_of_train_every(before, after, due):
    assert tiny().updates_due(before, after) == due


def test_updates_start_once_random_steps_are_over_and_a_batch_is_sure_to_be_there():
    assert tiny().updates_start == 100
    assert tiny({"batch_size": 128}).updates_start == 127  # the 128th step makes the batch whole
    assert tiny({"batch_size": 128, "n_step": 3}, num_envs=4).updates_start == 135


def test_the_plan_is_what_falls_due_in_the_whole_run():
    assert tiny().planned_updates == 100
    assert tiny(learning_starts=1_000).planned_updates == 0
    by_steps = sum(tiny(num_envs=7).updates_due(step, step + 7) for step in range(0, 294, 7))
    assert by_steps == tiny(total_steps=294).planned_updates


def test_beta_reaches_1_with_the_last_planned_update():
    assert ReplayConfig(beta=0.5).build_sampler(80) == Proportional(
        beta=Linear(0.5, 1.0, 80), normalize="batch"
    )
    assert ReplayConfig(normalize="none").build_sampler(80).normalize is None
    assert ReplayConfig(sampler="uniform").build_sampler(80) == Uniform()
    rank = ReplayConfig(sampler="rank", beta=0.5, resort_every=7, uniform_share=0.1)
    assert rank.build_sampler(80) == RankBased(
        alpha=0.6,
        beta=Linear(0.5, 1.0, 80),
        normalize="batch",
        resort_every=7,
        uniform_share=0.1,
    )


def test_windows_are_those_of_the_settings():
    assert ReplayConfig().build_window() is None
    assert ReplayConfig(window="recent", window_rows=9).build_window() == Recent(9)
    ere = ReplayConfig(window="ere", window_rows=9, eta=0.99, sweep=50)
    assert ere.build_window() == Recent(eta=0.99, c_min=9, updates=50)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": "uniform", "uniform_share": 0.5}, "uniform_share 0.5 does nothing with"),
        ({"sampler": "proportional", "resort_every": 5}, "take rank"),
        ({"sampler": "rank", "eps": 0.1}, "take proportional"),
        ({"window": "all", "eta": 0.9}, "eta 0.9 does nothing with replay.window all.*take ere"),
        ({"window": "recent", "sweep": 9}, "take ere"),
        ({"window": "all", "window_rows": 9}, "take recent or ere"),
        ({"window": "ere", "eta": 1.5}, "eta lies in"),
        ({"alpha": -1.0}, "alpha lies in"),
    ],
    ids=str,
)
def test_a_setting_that_does_nothing_or_cannot_work_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ReplayConfig(**settings)


@pytest.mark.parametrize("config", [*PRESETS.values(), tiny(out=Path("runs/a"), threads=None)])
def test_settings_survive_json(config):
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("total_steps", "300", r"total_steps is a whole number \(a Python int\); given '300'"),
        ("total_steps", None, "total_steps is a whole number"),
        ("seed", "auto", "seed is a whole number .*; given 'auto'"),
        ("train_every", 4.5, r"train_every is a whole number .*; given 4\.5"),
    ],
)
def test_settings_of_another_kind_are_refused(name, value, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig.from_json(dict(tiny().to_json(), **{name: value}))


def test_whole_numbers_that_an_earlier_version_wrote_with_a_point_are_read():
    plain = tiny({}, {"target_period": 50}, save_every=500, log_every=100).to_json()
    then = dict(plain, save_every=500.0, log_every=100.0)
    then["agent"] = dict(plain["agent"], target_period=50.0, lr=1.0)
    then["replay"] = dict(plain["replay"], batch_size=8.0)
    config = TrainConfig.from_json(then)
    assert json.dumps([config.save_every, config.log_every]) == "[500, 100]"
    assert json.dumps([config.agent.target_period, config.agent.lr]) == "[50, 1.0]"
    assert json.dumps(config.replay.batch_size) == "8"


@pytest.mark.parametrize("part", ["replay", "demos", "agent"])
@pytest.mark.parametrize("wrong", [[1], 3, "ab", None], ids=str)
def test_settings_of_a_part_that_are_none_are_refused(part, wrong):
    with pytest.raises(InputError, match="not the settings of a run"):
        TrainConfig.from_json(dict(tiny().to_json(), **{part: wrong}))


def test_settings_of_another_version_are_refused():
    plain = tiny().to_json()
    with pytest.raises(InputError, match=r"not the settings of a run: .*colour"):
        TrainConfig.from_json(dict(plain, colour="red"))
    with pytest.raises(InputError, match=r"not the settings of a run: .*algorithm ppo"):
        TrainConfig.from_json(dict(plain, algorithm="ppo"))
    with pytest.raises(InputError, match=r"not the settings of a run: .*double"):
        TrainConfig.from_json(dict(plain, algorithm="sac"))  # settings of another agent
    del plain["replay"]
    with pytest.raises(InputError, match=r"not the settings of a run: .*replay"):
        TrainConfig.from_json(plain)


def test_an_environment_without_a_preset_gets_the_defaults():
    assert preset("dqn", "Acrobot-v0") == TrainConfig(env="Acrobot-v0")
    for algorithm, config in CONFIGS.items():
        found = preset(algorithm, "Nowhere-v0")
        assert (found.algorithm, found.env, found.agent) == (algorithm, "Nowhere-v0", config())


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_has_defaults_and_presets_of_one_agent(recipe):
    agent = {"rainbow": "c51", "rlpd": "sac"}.get(recipe, recipe)
    assert preset(recipe, "Nowhere-v0").algorithm == agent
    assert preset(recipe, "Nowhere-v0").env == "Nowhere-v0"
    assert preset(recipe, "Nowhere-v0").name == (None if agent == recipe else recipe)
    for (word, env), found in PRESETS.items():
        if word == recipe:
            assert (found.algorithm, found.env) == (agent, env)
            assert preset(recipe, env) is found


def test_rainbow_is_all_six_parts_together():
    found = preset("rainbow", "Nowhere-v0")
    agent = found.agent
    assert (agent.double, agent.dueling, agent.noisy_sigma, agent.atoms) == (True, True, 0.5, 51)
    assert (found.replay.sampler, found.replay.n_step) == ("proportional", 3)
    assert [agent.epsilon(100)(step) for step in (0, 50)] == [0.0, 0.0]  # the noise explores


@pytest.mark.parametrize("sampler", ["uniform", "proportional", "rank"])
@pytest.mark.parametrize("window", ["all", "recent", "ere"])
def test_another_way_to_draw_leaves_behind_what_it_does_not_have(sampler, window):
    before = ReplayConfig(
        sampler="proportional", alpha=0.5, eps=1e-3, window="ere", eta=0.99, batch_size=32
    )
    found = before.drawing(sampler, window)
    assert (found.sampler, found.window, found.batch_size) == (sampler, window, 32)
    assert found.alpha == (0.6 if sampler == "uniform" else 0.5)
    assert found.eps == (1e-3 if sampler == "proportional" else 1e-6)
    assert found.eta == (0.99 if window == "ere" else 0.996)
    assert before.drawing(None, None) == before


@pytest.mark.parametrize("accumulate", [1, 4])
def test_sweeps_and_sorts_are_counted_in_updates_however_many_batches_they_take(accumulate):
    ere = ReplayConfig(sampler="uniform", window="ere", sweep=40).build_window(accumulate)
    rank = ReplayConfig(sampler="rank", resort_every=40).build_sampler(100, accumulate)
    assert ere.updates == rank.resort_every == 40 * accumulate
    assert rank.beta.steps == 100 * accumulate


# -- what a field does not declare -------------------------------------------------------------

WRONG_KINDS = [
    (ReplayConfig, "sampler", "per", "no replay.sampler 'per'; there are: uniform, proportional, "),
    (ReplayConfig, "sampler", "proport", "did you mean 'proportional'?"),
    (ReplayConfig, "sampler", Uniform(), "replay.sampler is 'uniform', 'proportional' or 'rank'; "),
    (ReplayConfig, "window", "recen", "did you mean 'recent'? There are: all, recent, ere"),
    (ReplayConfig, "normalize", None, "replay.normalize is 'buffer', 'batch' or 'none'; given"),
    (ReplayConfig, "capacity", 1e5, "replay.capacity is a whole number (a Python int); given"),
    (ReplayConfig, "gamma", "0.9", "replay.gamma is a number; given '0.9'"),
    (ReplayConfig, "alpha", True, "replay.alpha is a number; given True"),
    (DemosConfig, "path", 3, "demos.path is a path or None; given 3"),
    (DemosConfig, "format", "minary", "no demos.format 'minary'; did you mean 'minari'?"),
    (DemosConfig, "successful_only", "yes", "demos.successful_only is True or False; given 'yes'"),
    (tiny, "capture", "yes", "there is no capture 'yes'; there are: auto, on, off"),
    (tiny, "compile", True, "compile is 'inductor', 'aot_eager', 'eager' or None; given True"),
    (tiny, "threads", "all", "threads is a whole number (a Python int), 'auto' or None; given"),
    (tiny, "total_steps", True, "total_steps is a whole number (a Python int); given True"),
    (tiny, "save_buffer", 1, "save_buffer is True or False; given 1"),
    (tiny, "name", 7, "name is text or None; given 7"),
    (tiny, "out", 7, "out is a path or None; given 7"),
    (
        partial(TrainConfig, env="CartPole-v1"),
        "replay",
        {"n_step": 3},
        "replay is ReplayConfig(...); given {'n_step': 3}",
    ),
    (
        partial(TrainConfig, env="CartPole-v1"),
        "agent",
        {"lr": 1},
        "C51Config(...), DDPGConfig(...), TD3Config(...) or SACConfig(...); given {'lr': 1}",
    ),
    (CONFIGS["dqn"], "double", "no", "agent.double is True or False; given 'no'"),
    (CONFIGS["dqn"], "hidden", 256, "agent.hidden is whole numbers in a tuple; given 256"),
    (CONFIGS["dqn"], "hidden", (256, 2.5), "agent.hidden is whole numbers in a tuple; given"),
    (CONFIGS["dqn"], "weight_on", "td", "there is no agent.weight_on 'td'; "),
    (CONFIGS["c51"], "v_min", None, "agent.v_min is a number; given None"),
    (CONFIGS["ddpg"], "lr", "1e-3", "agent.lr is a number; given '1e-3'"),
    (CONFIGS["td3"], "row_error", "mena", "did you mean 'mean'?"),
    (CONFIGS["sac"], "target_critics", 1.0, "agent.target_critics is a whole number (a Python "),
]


@pytest.mark.parametrize(
    ("kind", "name", "given", "message"), WRONG_KINDS, ids=[str(row[1:3]) for row in WRONG_KINDS]
)
def test_a_value_that_a_field_does_not_declare_is_refused(kind, name, given, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        kind(**{name: given})


def test_a_path_may_be_text_and_a_tuple_a_list():
    config = tiny(out="runs/a", agent={"hidden": [8, 8]})
    assert (config.out, config.agent.hidden) == (Path("runs/a"), (8, 8))
    assert DemosConfig(path="demos").path == Path("demos")


def test_settings_of_no_agent_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"one of DQNConfig\(\.\.\.\), C51.*; given \{\}"):
        algorithm_of({})
