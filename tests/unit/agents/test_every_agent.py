"""What holds for each of the five agents."""

import copy
import pickle
import re
from collections import UserDict
from contextlib import nullcontext

import gymnasium
import numpy as np
import pytest
import torch

from relive import Field, Proportional, fields_of
from relive.agents import ActionScale
from relive.errors import ConfigError, InputError, shown
from relive.storage.notes import flatten
from tests.triton.waits import no_waits
from tests.unit.agents.batches import values
from tests.unit.agents.kinds import BOX, CONTINUOUS, KINDS, NUM_ACTIONS, make, rows_for

SEEN = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
every = pytest.mark.parametrize("kind", KINDS)
continuous = pytest.mark.parametrize("kind", CONTINUOUS)


@every
def test_an_agent_is_shown_in_a_line(kind):
    agent = make(kind, {"pos": Field((2,)), "vel": Field()})
    acts = "action [2]" if kind in CONTINUOUS else "3 actions"
    assert repr(agent) == f"{kind.upper()}(obs pos, vel, {acts}, cpu, 0 updates)"
    assert repr(make(kind)) == f"{kind.upper()}(obs [4], {acts}, cpu, 0 updates)"


# -- acting ------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_actions_are_those_of_the_environment(kind, epsilon):
    agent = make(kind)
    for action in (agent.act(SEEN, epsilon), agent.act_greedy(SEEN)):
        if kind in CONTINUOUS:
            assert (action.shape, action.dtype) == ((8, 2), np.float32)
            assert (action >= BOX[0]).all()
            assert (action <= BOX[1]).all()
        else:
            assert (action.shape, action.dtype) == ((8,), np.int64)
            assert set(action.tolist()) <= set(range(NUM_ACTIONS))


@every
def test_greedy_actions_are_the_same_every_time_and_draw_nothing(kind):
    agent, twin = make(kind), make(kind)
    assert agent.act_greedy(SEEN).tolist() == agent.act_greedy(SEEN).tolist()
    assert agent.act(SEEN, 0.5).tolist() == twin.act(SEEN, 0.5).tolist()


@every
def test_without_a_word_on_it_no_action_is_uniformly_random(kind):
    assert make(kind).act(SEEN).tolist() == make(kind).act(SEEN, 0.0).tolist()


@continuous
def test_random_actions_fill_the_box(kind):
    action = make(kind).act(np.zeros((20_000, 4), np.float32), epsilon=1.0)
    # a uniform mean of 20,000: 5 standard errors of 4 / sqrt(12 * 20,000) and 10 / sqrt(...)
    assert abs(action[:, 0].mean()) < 0.041
    assert abs(action[:, 1].mean() - 5.0) < 0.103
    assert action.min(0) == pytest.approx(BOX[0], abs=0.01)
    assert action.max(0) == pytest.approx(BOX[1], abs=0.01)


@continuous
def test_exploring_actions_are_near_the_greedy_ones_and_differ_from_step_to_step(kind):
    agent = make(kind)
    first, second = agent.act(SEEN, 0.0), agent.act(SEEN, 0.0)
    assert not np.equal(first, second).any()
    assert not np.equal(first, agent.act_greedy(SEEN)).any()


@every
def test_observations_of_double_precision_and_dicts_are_welcome(kind):
    assert len(make(kind).act_greedy(SEEN.astype(np.float64))) == 8
    obs = {"pos": Field((3,)), "inner": {"eye": Field((10, 10, 1), torch.uint8)}}
    agent, buffer = make(kind, obs), rows_for(kind, obs=obs)
    assert agent.update(buffer.sample(16)).td_error.shape == (16,)
    seen = values(obs, 2, torch.Generator().manual_seed(0))
    as_numpy = {"pos": seen["pos"].numpy(), "inner": {"eye": seen["inner"]["eye"].numpy()}}
    assert len(agent.act(as_numpy, 0.0)) == 2


WRONG = [
    (
        np.zeros(4, np.float32),
        r"obs: given shape \(4,\), expected an array \[E, 4\], E environments",
    ),
    (np.zeros((2, 3), np.float32), r"obs: given shape \(2, 3\), expected an array \[E, 4\]"),
    ([[0.0] * 4], r"obs: given \[\[0.0, .*, expected an array \[E, 4\]"),
]


@every
@pytest.mark.parametrize(("seen", "told"), WRONG)
def test_observations_of_another_shape_are_refused(kind, seen, told):
    for act in (make(kind).act_greedy, lambda obs: make(kind).act(obs, 0.0)):
        with pytest.raises(InputError, match=told):
            act(seen)


@every
def test_dicts_that_lack_an_entry_are_refused_and_others_may_have_more(kind):
    agent = make(kind, {"pos": Field((3,)), "vel": Field((2,))})
    pos, vel = np.zeros((1, 3), np.float32), np.zeros((1, 2), np.float32)
    with pytest.raises(InputError, match=r"obs: given \{'pos': .*, expected a dict of pos, vel"):
        agent.act_greedy({"pos": pos})
    with pytest.raises(InputError, match=r"obs\.vel: given shape \(1, 3\), expected .* \[E, 2\]"):
        agent.act_greedy({"pos": pos, "vel": pos})
    assert len(agent.act_greedy({"time": pos, "vel": vel, "pos": pos})) == 1


# -- learning ----------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("sampler", [None, Proportional()], ids=["uniform", "proportional"])
def test_an_update_gives_one_error_a_row_and_the_same_metrics_each_time(kind, sampler):
    buffer = rows_for(kind, **({"sampler": sampler} if sampler else {}))
    agent = make(kind)
    results = [agent.update(buffer.sample(16)) for _ in range(3)]
    for result in results:
        assert result.td_error.shape == (16,)
        assert (result.td_error >= 0).all()
        assert not result.td_error.requires_grad
        assert all(value.shape == () and value.isfinite() for value in result.metrics.values())
        assert {"loss", "td_error", "q_mean", "grad_norm"} <= set(result.metrics)
    assert len({tuple(result.metrics) for result in results}) == 1
    assert agent.updates == 3


@every
def test_batches_that_are_accumulated_are_as_good_as_one_large_batch(kind):
    buffer = rows_for(kind, sampler=Proportional())
    whole, parts = make(kind, lr=1e-3), make(kind, lr=1e-3)
    for update in range(4):
        ids = torch.arange(64).roll(update)
        weights = torch.linspace(0.1, 1.0, 64)
        large, small = buffer.rows(ids), [buffer.rows(part) for part in ids.split(16)]
        large.weights.copy_(weights)
        for batch, part in zip(small, weights.split(16), strict=True):
            batch.weights.copy_(part)
        expected, result = whole.update(large), parts.update(*small)
        assert torch.allclose(result.td_error, expected.td_error, rtol=1e-4, atol=1e-5)
        for name, value in expected.metrics.items():
            assert torch.allclose(result.metrics[name], value, rtol=1e-4, atol=1e-5), name
    assert parts.updates == 4
    for mine, other in zip(parts.policy.parameters(), whole.policy.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-5)


@every
def test_the_gradient_of_accumulated_batches_is_that_of_one_large_batch(kind):
    buffer = rows_for(kind)
    whole, parts = make(kind), make(kind)
    whole.update(buffer.rows(torch.arange(64)))
    parts.update(*(buffer.rows(part) for part in torch.arange(64).split(16)))
    vectors = [name for name in vars(whole) if name.endswith("parameters")]
    assert vectors
    for name in vectors:
        mine, other = getattr(parts, name).grad, getattr(whole, name).grad
        assert torch.allclose(mine, other, atol=1e-6), name


@every
def test_an_update_without_a_batch_is_refused(kind):
    with pytest.raises(InputError, match="at least one batch"):
        make(kind).update()


@every
def test_a_broken_observation_after_the_end_does_not_reach_the_networks(kind):
    buffer, agent = rows_for(kind), make(kind)
    batch = buffer.sample(64)
    batch.next_obs[batch.discount == 0] = float("nan")
    for _ in range(2):
        result = agent.update(batch)
    assert result.td_error.isfinite().all()
    assert all(bool(parameter.isfinite().all()) for parameter in agent.policy.parameters())


@every
def test_one_seed_gives_one_course_of_training(kind):
    def course(seed):
        buffer, agent = rows_for(kind), make(kind, seed=seed)
        errors = [agent.update(buffer.sample(16)).td_error for _ in range(5)]
        return torch.stack(errors), agent.act(SEEN, epsilon=0.5)

    (errors, actions), (again, same_actions), (other, _) = course(1), course(1), course(2)
    assert torch.equal(errors, again)
    assert actions.tolist() == same_actions.tolist()
    assert not torch.equal(errors, other)


@every
def test_nothing_draws_from_the_global_generators(kind):
    torch_before, numpy_before = torch.random.get_rng_state(), global_numpy_state()
    buffer, agent = rows_for(kind), make(kind)
    for _ in range(2):
        agent.update(buffer.sample(16))
        agent.act(SEEN, epsilon=0.5)
    assert torch.equal(torch.random.get_rng_state(), torch_before)
    assert global_numpy_state() == numpy_before


def global_numpy_state():
    return np.random.get_state()[1].tolist()  # noqa: NPY002  # the one nobody should draw from


@every
@pytest.mark.parametrize("settings", [{}, {"max_grad_norm": 1.0, "lr_end": 0.0}], ids=str)
def test_an_update_waits_for_nothing(kind, settings):
    buffer, agent = rows_for(kind), make(kind, **settings)
    batches = buffer.sample(16), buffer.sample(16)
    with no_waits():
        for _ in range(2):
            agent.update(*batches)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("dqn", {"double": False, "dueling": True}),
        ("c51", {"double": True, "dueling": True, "noisy_sigma": 0.5}),
        ("sac", {"critics": 5, "target_critics": 2, "layer_norm": True, "policy_value": "mean"}),
    ],
)
def test_no_setting_makes_an_update_wait(kind, settings):
    buffer, agent = rows_for(kind), make(kind, **settings)
    batch = buffer.sample(16)
    with no_waits():
        agent.update(batch)


@every
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_update_is_the_same_where_gradients_are_switched_off(kind, mode):
    batches = [rows_for(kind).sample(16) for _ in range(4)]
    agent, twin = make(kind), make(kind)
    for number, batch in enumerate(batches):
        with mode() if number % 2 else nullcontext():
            agent.update(batch)
        twin.update(batch)
    assert agent.updates == 4
    assert all(map(torch.equal, agent.policy.parameters(), twin.policy.parameters()))


@every
def test_a_default_dtype_changes_nothing(kind):
    settings = [{}]
    if kind == "c51":
        settings.append({"noisy_sigma": 0.5, "dueling": True})
    if kind == "sac":
        settings.append({"layer_norm": True, "critics": 3, "target_critics": 2})
    buffer = rows_for(kind)
    batches = [buffer.sample(16) for _ in range(3)]
    images = {"img": Field((3, 12, 12), torch.uint8), "state": Field((2,))}
    seen = {"img": np.zeros((2, 3, 12, 12), np.uint8), "state": np.zeros((2, 2), np.float32)}
    for given in settings:
        agents = []
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            try:
                agents.append(agent := make(kind, **given))
                agent.act(SEEN, 0.5)
                agent.explore(torch.from_numpy(SEEN), 0.5)
                for batch in batches:
                    agent.update(batch)
                assert make(kind, images, **given).act_greedy(seen).dtype != np.float64
            finally:
                torch.set_default_dtype(torch.float32)
        one, other = agents
        assert all(map(torch.equal, one.policy.parameters(), other.policy.parameters()))
        assert one.act(SEEN, 0.5).tolist() == other.act(SEEN, 0.5).tolist()


# -- saving ------------------------------------------------------------------------------------


@every
def test_an_agent_goes_on_exactly_where_it_was_saved(kind):
    settings = {"noisy_sigma": 0.5} if kind == "c51" else {}
    buffer = rows_for(kind)
    batches = [buffer.sample(16) for _ in range(6)]
    agent = make(kind, planned_updates=6, lr_end=0.0, **settings)
    for batch in batches[:3]:
        agent.update(batch)
        agent.act(SEEN, 0.5)
    state = copy.deepcopy(agent.state_dict())
    flatten(state)  # what a checkpoint can keep
    other = make(kind, planned_updates=6, lr_end=0.0, seed=9, **settings)
    other.load_state_dict(state)
    for batch in batches[3:]:
        expected, result = agent.update(batch), other.update(batch)
        assert torch.equal(result.td_error, expected.td_error)
        assert {name: value.item() for name, value in result.metrics.items()} == {
            name: value.item() for name, value in expected.metrics.items()
        }
        assert other.act(SEEN, 0.5).tolist() == agent.act(SEEN, 0.5).tolist()
    assert other.updates == agent.updates == 6


COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda agent: pickle.loads(pickle.dumps(agent)),
}


@every
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_an_agent_learns_as_the_agent_does_and_apart_from_it(kind, how):
    settings = {"noisy_sigma": 0.5} if kind == "c51" else {}
    batches = [rows_for(kind).sample(16) for _ in range(4)]
    agent = make(kind, planned_updates=4, lr_end=0.0, **settings)
    agent.update(batches[0])
    other = COPIES[how](agent)
    first = agent.act_greedy(SEEN).tolist(), copy.deepcopy(list(agent.policy.parameters()))
    for batch in batches[1:]:
        other.update(batch)
    assert agent.act_greedy(SEEN).tolist() == first[0]
    assert all(map(torch.equal, agent.policy.parameters(), first[1]))
    assert not all(map(torch.equal, other.policy.parameters(), first[1]))
    for batch in batches[1:]:
        agent.update(batch)
    assert all(map(torch.equal, agent.policy.parameters(), other.policy.parameters()))
    assert agent.act(SEEN, 0.5).tolist() == other.act(SEEN, 0.5).tolist()


# -- settings ----------------------------------------------------------------------------------

SHARED = [{"lr": 1e-3}, {"lr_end": 0.0}, {"hidden": (16, 16)}, {"max_grad_norm": 1e-3}]
CHANGES = {
    "c51": [
        {"atoms": 11},
        {"v_min": -5.0},
        {"v_max": 5.0},
        {"double": True},
        {"dueling": True},
        {"noisy_sigma": 0.5},
        {"adam_eps": 1.0},
        {"tau": 0.5},
        {"target_period": 3},
    ],
    "ddpg": [{"tau": 0.5}, {"loss": "huber"}],
    "td3": [
        {"tau": 0.5},
        {"loss": "huber"},
        {"policy_delay": 3},
        {"target_noise": 1.0},
        {"target_noise_clip": 0.01},
        {"row_error": "max"},
    ],
    "sac": [
        {"tau": 0.5},
        {"loss": "huber"},
        {"policy_delay": 3},
        {"critics": 3},
        {"target_critics": 1},
        {"layer_norm": True},
        {"policy_value": "mean"},
        {"temperature": 0.1},
        {"tune_temperature": False},
        {"target_entropy": -9.0},
        {"entropy_backup": False},
        {"row_error": "max"},
    ],
}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param(kind, change, id=f"{kind} {' '.join(change)}")
        for kind, changes in CHANGES.items()
        for change in SHARED + changes
    ],
)
def test_no_setting_is_accepted_and_ignored(kind, change):
    def weights_after(**settings):
        buffer = rows_for(kind, sampler=Proportional())
        period = {"target_period": 5} if kind == "c51" else {}
        agent = make(kind, planned_updates=20, **{**period, **settings})
        for _ in range(20):
            batch = buffer.sample(32)
            buffer.update_priorities(batch.ids, agent.update(batch).td_error)
        return agent.policy.state_dict()

    plain, changed = weights_after(), weights_after(**change)
    assert plain.keys() != changed.keys() or not all(
        plain[name].shape == changed[name].shape and torch.equal(plain[name], changed[name])
        for name in plain
    )


@pytest.mark.parametrize("kind", ["ddpg", "td3"])
def test_exploration_is_as_wide_as_it_is_set(kind):
    seen = np.zeros((20_000, 4), np.float32)
    agent = make(kind, exploration_noise=0.05)
    spread = (agent.act(seen, 0.0) - agent.act_greedy(seen)).std(0)
    # halves of the box of 2 and 5; 5 standard errors of 0.5 %
    assert spread == pytest.approx([0.1, 0.25], rel=0.025)


BAD = {
    "c51": [
        *({"atoms": 1}, {"v_max": -10.0}, {"noisy_sigma": 0.0}, {"adam_eps": 0.0}),
        *({"target_period": 0}, {"epsilon_start": 1.5}, {"epsilon_end": -0.1}),
        {"epsilon_fraction": 0.0},
    ],
    "ddpg": [{"exploration_noise": -0.1}, {"loss": "l1"}],
    "td3": [
        *({"exploration_noise": -0.1}, {"loss": "l1"}, {"policy_delay": 0}),
        *({"target_noise": -1.0}, {"target_noise_clip": -1.0}, {"row_error": "min"}),
    ],
    "sac": [
        *({"loss": "l1"}, {"policy_delay": 0}, {"critics": 0}, {"target_critics": 3}),
        *({"policy_value": "max"}, {"temperature": 0.0}, {"row_error": "min"}),
    ],
}
BAD_SHARED = [{"hidden": (0,)}, {"lr": 0.0}, {"lr_end": -1.0}, {"tau": 0.0}, {"max_grad_norm": 0.0}]


@pytest.mark.parametrize(
    ("kind", "bad"),
    [(kind, bad) for kind, table in BAD.items() for bad in BAD_SHARED + table],
    ids=str,
)
def test_settings_outside_their_range_are_refused_by_name(kind, bad):
    (name, value), *_ = bad.items()
    with pytest.raises(ConfigError, match=rf"agent\.{name} .*{re.escape(repr(value))}"):
        KINDS[kind][1](**bad)


def test_a_target_entropy_that_would_do_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"None unless tune_temperature; given -1\.0"):
        KINDS["sac"][1](target_entropy=-1.0, tune_temperature=False)


def test_an_agent_without_actions_is_refused():
    with pytest.raises(ConfigError, match="at least one action"):
        KINDS["c51"][0](Field((4,)), 0)


@every
def test_random_actions_end_where_the_settings_say(kind):
    config = KINDS[kind][1]()
    schedule = config.epsilon(1000)
    end = 0.0 if kind in CONTINUOUS else 0.05
    assert schedule(200) == pytest.approx(end)
    assert schedule(0) == (0.0 if kind in CONTINUOUS else 1.0)


# -- arguments ---------------------------------------------------------------------------------


class Env:
    """Has the spaces of an environment, and is none of what an agent takes."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,))
    action_space = gymnasium.spaces.Box(-1, 1, (2,))


FORGOTTEN = fields_of(Env())
OBSERVATIONS = {
    "a shape": (4,),
    "nothing": None,
    "an environment": Env(),
    "a space": Env.observation_space,
    "no entry": {},
    "a dict of shapes": {"pos": (4,)},
    "a dict of dicts": {3: {"pos": None}},
}


@every
@pytest.mark.parametrize("obs", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_an_observation_that_is_no_field_is_refused(kind, obs):
    agent, config = KINDS[kind]
    actions = ActionScale(*BOX) if kind in CONTINUOUS else NUM_ACTIONS
    expected = rf"{agent.__name__}: obs is a Field.*, relive.fields_of\(env\)\['obs'\] say; given "
    with pytest.raises(ConfigError, match=expected + re.escape(shown(obs))):
        agent(obs, actions, config())


@every
def test_fields_of_which_the_observation_was_not_taken_are_refused(kind):
    with pytest.raises(ConfigError, match=r"fields_of\(env\)\['obs'\].*rename one of them"):
        make(kind, FORGOTTEN)
    assert make(kind, FORGOTTEN["obs"])
    assert make(kind, {**FORGOTTEN, "goal": Field((2,))})


@every
@pytest.mark.parametrize("actions", [Env.action_space, None, Env(), True, "3", 2.5, ([-1], [1])])
def test_actions_that_are_not_those_of_the_agent_are_refused(kind, actions):
    agent, _ = KINDS[kind]
    expected = (
        r"actions is an ActionScale, ActionScale.for_env\(env\) say"
        if kind in CONTINUOUS
        else r"num_actions is a whole number, relive.envs.num_actions\(env\) say"
    )
    told = rf"{agent.__name__}: {expected}; given {re.escape(shown(actions))}"
    with pytest.raises(ConfigError, match=told):
        agent(Field((4,)), actions)


@every
def test_settings_of_another_agent_are_refused(kind):
    agent, config = KINDS[kind]
    actions = ActionScale(*BOX) if kind in CONTINUOUS else NUM_ACTIONS
    others = [other() for _, other in KINDS.values() if other is not config]
    for given in (*others, {}, {"lr": 1e-3}, config):
        told = rf"{agent.__name__}: config is {config.__name__}\(...\) or None; given "
        with pytest.raises(ConfigError, match=told + re.escape(shown(given))):
            agent(Field((4,)), actions, given)


@every
def test_what_is_no_batch_is_refused(kind):
    agent, buffer = make(kind), rows_for(kind)
    batch = buffer.sample(16)
    for given in (buffer, (batch, batch), None, {"obs": SEEN}):
        told = r"an update takes Batches, update\(buffer.sample\(256\)\) say; given "
        with pytest.raises(InputError, match=told + re.escape(shown(given))):
            agent.update(batch, given)
    assert agent.updates == 0
    assert all(map(torch.equal, agent.policy.parameters(), make(kind).policy.parameters()))


@every
def test_the_state_of_another_agent_is_refused_and_nothing_has_changed(kind):
    agent, own = make(kind), make(kind).state_dict()
    states = [make(other, seed=1).state_dict() for other in KINDS if other != kind]
    for state in (*states, {}, {**own, "more": 1}, {k: v for k, v in own.items() if k != "rng"}):
        missing = [key for key in own if key not in state and key != "exploration"]
        unknown = [key for key in state if key not in own]
        told = f"no state of {kind.upper()}: "
        for what, keys in (("missing", missing), ("unknown", unknown)):
            told += f".*{what} {', '.join(keys)}" * bool(keys)
        with pytest.raises(InputError, match=told):
            agent.load_state_dict(state)
    with pytest.raises(InputError, match=r"state_dict of another .* gives a dict; given None"):
        agent.load_state_dict(None)
    assert all(map(torch.equal, agent.policy.parameters(), make(kind).policy.parameters()))
    agent.load_state_dict({k: v for k, v in own.items() if k != "exploration"})  # of old


@every
def test_a_state_is_taken_whatever_holds_it(kind):
    make(kind).load_state_dict(UserDict(make(kind).state_dict()))
