"""Environments by id, and what is said when there is none."""

import sys
import types

import gymnasium
import numpy as np
import pytest

from relive.agents import ActionScale
from relive.envs import action_scale, make_env, make_vector_env, num_actions
from relive.errors import ConfigError, MissingExtraError


@pytest.mark.parametrize(
    ("given", "close"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v7", "CartPole-v1"),
        ("Acrobat-v1", "Acrobot-v1"),
    ],
)
@pytest.mark.parametrize("make", [make_env, make_vector_env])
def test_a_misspelt_id_gets_one_line_with_its_neighbours(make, given, close):
    with pytest.raises(ConfigError) as caught:
        make(given)
    line = str(caught.value)
    assert given in line
    assert close in line
    assert "\n" not in line


def test_environments_of_a_package_that_is_missing_name_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "minatar.gym", None)
    monkeypatch.setattr(gymnasium, "registry", dict(gymnasium.registry))
    for name in [name for name in gymnasium.registry if name.startswith("MinAtar/")]:
        del gymnasium.registry[name]
    with pytest.raises(ConfigError, match="MinAtar/Breakout-v1 needs a package: pip install minat"):
        make_env("MinAtar/Breakout-v1")


def test_environments_of_a_package_are_found_without_an_import(monkeypatch):
    pretended = types.ModuleType("minatar.gym")
    calls = []
    pretended.register_envs = lambda: calls.append("registered")
    monkeypatch.setitem(sys.modules, "minatar", types.ModuleType("minatar"))  # or the real one
    monkeypatch.setitem(sys.modules, "minatar.gym", pretended)
    monkeypatch.setattr(gymnasium, "registry", {})
    with pytest.raises(ConfigError, match="there is no environment"):  # it registered none
        make_env("MinAtar/Nothing-v1")  # nor did the real one, if it was imported before
    assert calls == ["registered"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            None,
            "ends with ModuleNotFoundError: No module named 'own_envs'; run it in the folder of ",
        ),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("1 +", "ends with SyntaxError"),
        ("raise ValueError('by design')", "ends with ValueError: by design"),
    ],
)
def test_a_module_of_environments_that_cannot_be_imported_says_why(
    tmp_path, monkeypatch, text, why
):
    monkeypatch.syspath_prepend(tmp_path)
    if text is not None:
        (tmp_path / "own_envs.py").write_text(text)
    with pytest.raises(ConfigError, match=f"own_envs:Own-v0 cannot be made: .*{why}"):
        make_env("own_envs:Own-v0")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("own_envs_7:Dic-v0", "did you mean own_envs_7:Dict-v0\\?$"),
        ("own_envs_7:arm-v0", "did you mean own_envs_7:Arm-v0\\?$"),
        ("own_envs_7:Zzzzzz", "own_envs_7 registers Arm-v0, Broken-v0, Dict-v0$"),
        (
            "Zzzzzz-v0",
            "pprint_registry.. lists all. .* needs its module in front: --env module:Zzzzzz-v0$",
        ),
        (
            "CartPol-v1",
            "did you mean CartPole-v1 .* needs its module in front: --env module:CartPol-v1$",
        ),
        ("cartpole", "did you mean CartPole-v1 or CartPole-v0"),
        ("own_envs_7.py:Arm-v0", "is no module; did you mean own_envs_7:Arm-v0\\?$"),
        ("some/own_envs_7.py:Arm-v0", "is no module; did you mean some.own_envs_7:Arm-v0\\?$"),
        ("../own_envs_7:Arm-v0", "'../own_envs_7' is a path, .*, and write own_envs_7:Arm-v0$"),
        (
            "/some/own-envs/own_envs_7.py:Arm-v0",
            "is a path, and a module is named: run it in .*, and write own_envs_7:Arm-v0$",
        ),
        ("../own-envs:Arm-v0", "'../own-envs' is no module$"),
        ("torch/LunarLander-v3", "LunarLander-v3 is Gymnasium's, if .*: leave out torch/$"),
        ("own_envs_7:Broken-v0", "own_envs_7:Broken-v0 cannot be made: there is no driver$"),
    ],
)
def test_an_id_of_a_module_of_ones_own_is_found_among_those_it_registers(
    tmp_path, monkeypatch, given, said
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_envs_7.py").write_text(
        "import gymnasium\n"
        "class Arm: pass\n"
        "def broken(): raise ImportError('there is no driver')\n"
        "gymnasium.register('Broken-v0', broken)\n"
        "gymnasium.register('Arm-v0', Arm)\n"
        "gymnasium.register('Dict-v0', 'own_envs_7.inner:Dict')\n"
    )
    known = set(gymnasium.registry)
    try:
        with pytest.raises(ConfigError, match=said):
            make_env(given)
    finally:
        sys.modules.pop("own_envs_7", None)
        for name in set(gymnasium.registry) - known:
            del gymnasium.registry[name]


def test_an_id_like_no_other_gets_the_way_to_the_list():
    with pytest.raises(ConfigError, match="pprint_registry"):
        make_env("zzzz")


def test_a_known_id_that_cannot_be_made_says_why(monkeypatch):
    def needs_more():
        raise gymnasium.error.DependencyNotInstalled("install\nthat")

    spec = gymnasium.envs.registration.EnvSpec("Needy-v0", entry_point=needs_more)
    monkeypatch.setitem(gymnasium.registry, "Needy-v0", spec)
    with pytest.raises(ConfigError, match="Needy-v0 cannot be made: install that"):
        make_env("Needy-v0")


def test_an_ended_copy_starts_again_in_the_same_step():
    env = make_vector_env("CartPole-v1", 2)
    env.reset(seed=[1, 2])
    ended = np.zeros(2, dtype=bool)
    while not ended.any():
        obs, _, terminated, truncated, info = env.step(np.ones(2, dtype=np.int64))
        ended = terminated | truncated
    copy = int(np.flatnonzero(ended)[0])
    assert abs(obs[copy]).max() <= 0.05  # where CartPole starts
    assert abs(info["final_obs"][copy][2]) > 0.2  # radians at which it ends
    env.close()


def test_the_number_of_actions_of_one_environment_and_of_several():
    for env in (make_env("Acrobot-v1"), make_vector_env("Acrobot-v1", 3)):
        assert num_actions(env) == 3
        env.close()


@pytest.mark.parametrize(
    "space",
    [gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(3, start=1)],
    ids=["continuous", "starting at 1"],
)
def test_actions_that_are_no_plain_numbers_are_refused(space):
    env = make_env("CartPole-v1")
    env.action_space = space
    with pytest.raises(ConfigError, match="expected Discrete"):
        num_actions(env)
    env.close()


def test_the_bounds_of_continuous_actions_of_one_environment_and_of_several():
    for env in (make_env("Pendulum-v1"), make_vector_env("Pendulum-v1", 3)):
        assert action_scale(env) == ActionScale([-2.0], [2.0])
        env.close()


@pytest.mark.parametrize(
    "space",
    [gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(0, 9, (2,), int)],
    ids=["numbered", "whole numbers"],
)
def test_actions_that_are_no_box_of_floats_are_refused(space):
    env = make_env("CartPole-v1")
    env.action_space = space
    with pytest.raises(ConfigError, match="expected Box"):
        action_scale(env)
    env.close()


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtraError, match=r"relive\[gym\]"):
        make_env("CartPole-v1")
