"""Hindsight: what is written, what is refused, and how it goes on."""

import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from relive import (
    ConfigError,
    Field,
    Hindsight,
    InputError,
    Proportional,
    ReplayBuffer,
    TrajectoryStore,
    fields_of,
)
from tests.equivalence.states import assert_same_state
from tests.unit.unchanged import refused

GOAL = Field((1,))
FIELDS = {
    "obs": {"observation": Field((1,)), "achieved_goal": GOAL, "desired_goal": GOAL},
    "action": Field((), torch.int64),
}


def distance(achieved, desired):
    return -np.abs(achieved - desired)[:, 0]


def reached(achieved, desired):
    return (achieved == desired)[:, 0]


def at(place, goal=9.0):
    """What is seen at a place on a line."""
    return {"observation": [place], "achieved_goal": [place], "desired_goal": [goal]}


def step(place, **others):
    """One to the right."""
    return {
        "obs": at(place),
        "action": int(place),
        "reward": place - 8.0,
        "next_obs": at(place + 1),
        "terminated": False,
        "truncated": False,
        **others,
    }


def new(
    *, goals=1, strategy="final", reward=distance, terminated=reached, fields=FIELDS, **settings
):
    buffer = ReplayBuffer(100, fields, **{"gamma": 0.5, **settings})
    return Hindsight(buffer, reward, terminated=terminated, goals=goals, strategy=strategy)


def walk(hindsight, places=(0.0, 1.0, 2.0), **others):
    for place in places:
        hindsight.add(**step(place, truncated=place == places[-1], **others))


# one to the right, three times, with the goal 3: place, goal, return, discount, next place, ends
REWRITTEN = {
    1: [(0, -2.0, 0.5, 1, False), (1, -1.0, 0.5, 2, False), (2, 0.0, 0.0, 3, True)],
    2: [(0, -2.5, 0.25, 2, False), (1, -1.0, 0.0, 3, True), (2, 0.0, 0.0, 3, True)],
    5: [(0, -2.5, 0.0, 3, True), (1, -1.0, 0.0, 3, True), (2, 0.0, 0.0, 3, True)],
}


@pytest.mark.parametrize("n_step", REWRITTEN)
def test_an_episode_is_written_once_more_with_the_goal_that_it_reached(n_step):
    hindsight = new(n_step=n_step)
    walk(hindsight)
    rows = hindsight.buffer.rows([3, 4, 5])
    assert (
        rows.obs["desired_goal"].tolist() == rows.next_obs["desired_goal"].tolist() == [[3.0]] * 3
    )
    found = zip(
        rows.action.tolist(),
        rows.reward.tolist(),
        rows.discount.tolist(),
        rows.next_obs["achieved_goal"][:, 0].tolist(),
        rows.terminated.tolist(),
        strict=True,
    )
    assert list(found) == REWRITTEN[n_step]
    assert rows.obs["observation"].tolist() == [[0.0], [1.0], [2.0]]
    assert hindsight.episodes == 1


@pytest.mark.parametrize("n_step", [1, 2, 3])
def test_under_the_goal_it_was_after_an_episode_is_what_the_buffer_made_of_it(n_step):
    def as_it_was(achieved, desired):  # the goal of the episode is 9
        return achieved[:, 0] - 9.0

    hindsight = new(n_step=n_step, reward=as_it_was, terminated=None, gamma=0.9)
    walk(hindsight, tuple(np.arange(11) * 0.75))
    rows = hindsight.buffer.all()
    own, again = (slice(0, 11), slice(11, 22))
    for name in ("action", "reward", "discount", "terminated", "truncated"):
        assert torch.equal(rows[name][own], rows[name][again]), name
    for name in ("observation", "achieved_goal"):
        assert torch.equal(rows.obs[name][own], rows.obs[name][again])
        assert torch.equal(rows.next_obs[name][own], rows.next_obs[name][again])


def test_steps_may_have_a_leading_axis_or_none_and_arrays_may_be_used_again():
    bare, led = new(), new()
    walk(bare)
    kept = None
    for place in (0.0, 1.0, 2.0):
        given = step(place, truncated=place == 2.0)
        for name in ("obs", "next_obs"):
            given[name] = {key: np.array([value]) for key, value in given[name].items()}
        flags = {name: np.array([given[name]]) for name in ("reward", "terminated", "truncated")}
        given |= {"action": np.array([given["action"]]), **flags}
        led.add(**given)
        if kept is not None:
            kept["achieved_goal"][:] = 77.0
        kept = given["next_obs"]
    assert_same_state(bare.buffer, led.buffer)


def test_rows_of_hindsight_are_new_rows_with_priorities_of_their_own():
    hindsight = new(sampler=Proportional(alpha=1.0, eps=0.0, beta=1.0))
    walk(hindsight)
    hindsight.buffer.update_priorities([0, 1, 2], [0.0, 0.0, 0.0])
    batch = hindsight.buffer.sample(64)
    assert set(batch.ids.tolist()) == {3, 4, 5}


def test_own_fields_of_any_dtype_and_stored_images_are_those_of_the_step():
    obs = {**FIELDS["obs"], "image": Field((2,), store=torch.uint8)}
    fields = {**FIELDS, "obs": obs, "own": Field((), torch.bfloat16)}
    hindsight = new(fields=fields, goals=2, strategy="episode", n_step=2)
    for place in (0.0, 1.0, 2.0):
        given = step(place, truncated=place == 2.0, own=place / 4)
        image = [np.full(2, place, np.uint8), np.full(2, (place + 1) / 255, np.float32)]
        for name, stored in zip(("obs", "next_obs"), image, strict=True):
            given[name] = {**given[name], "image": stored}
        hindsight.add(**given)
    rows = hindsight.buffer.rows(range(3, 9))
    place = rows.obs["observation"][:, 0]
    assert place.tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert torch.equal(rows.own, (place / 4).bfloat16())
    assert torch.equal(rows.obs["image"], (place / 255)[:, None].expand(-1, 2))
    after = rows.next_obs["observation"]
    assert torch.equal(rows.next_obs["image"], (after / 255).expand(-1, 2))


def test_an_episode_that_is_closed_by_hand_gets_its_hindsight():
    hindsight = new(terminated=None)
    for place in (0.0, 1.0):
        hindsight.add(**step(place))
    hindsight.end_episode()
    assert hindsight.buffer.rows([2, 3]).truncated.tolist() == [False, True]
    hindsight.end_episode()
    assert (len(hindsight.buffer), hindsight.episodes) == (4, 1)


def test_a_store_that_the_buffer_tees_into_gets_the_steps_alone(tmp_path):
    hindsight = new(n_step=2)
    with TrajectoryStore(tmp_path / "store", FIELDS) as store:
        hindsight.buffer.tee(store)
        walk(hindsight)
        hindsight.buffer.tee(None)
        assert len(store) == 1
        assert len(store.episode(0)) == 3


CASES = {
    "no goals": ({"fields": {"obs": GOAL, "action": GOAL}}, "no obs.achieved_goal and no obs.des"),
    "goals of another shape": (
        {"fields": {**FIELDS, "obs": {**FIELDS["obs"], "desired_goal": Field((2,))}}},
        "fields of one shape and dtype",
    ),
    "goals in fewer bits": (
        {
            "fields": {
                "obs": dict.fromkeys(FIELDS["obs"], Field((1,), store=torch.uint8)),
                "action": GOAL,
            }
        },
        "without store=",
    ),
    "no function": ({"reward": 3.0}, "reward is a function of achieved and desired goals; given 3"),
    "none at all": ({"reward": None}, "reward is a function"),
    "ends that are none": ({"terminated": True}, "terminated is a function"),
    "no goals wanted": ({"goals": 0}, "goals is a whole number >= 1; given 0"),
    "another strategy": ({"strategy": "random"}, "one of future, final, episode; given 'random'"),
    "many last steps": ({"goals": 4}, "one final goal; given goals=4: take goals=1"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_work_is_refused_with_what_to_do(case):
    settings, words = CASES[case]
    with pytest.raises(ConfigError, match=re.escape(words)):
        new(**settings)


def test_what_is_no_buffer_is_refused():
    with pytest.raises(ConfigError, match="writes to a ReplayBuffer; given"):
        Hindsight([], distance)


def test_windows_that_wait_beside_frames_kept_once_are_not_cut():
    fields = {
        "obs": {**FIELDS["obs"], "image": Field((4, 2), torch.uint8, stack=4)},
        "action": GOAL,
    }
    assert new(fields=fields)
    with pytest.raises(ConfigError, match=r"needs n_step=1"):
        new(fields=fields, n_step=2)


ANSWERS = {
    "a number": (lambda a, d: 1.0, r"gave float64 of shape \(\)"),  # noqa: ARG005
    "a column": (lambda a, d: a - d, r"gave float32 of shape \((.), 1\) for goals of .*\1, 1\)"),
    "words": (lambda a, d: ["far"] * len(a), "gave <U3 of shape"),  # noqa: ARG005
    "ragged": (lambda a, d: [[1], [1, 2]], "gave no array"),  # noqa: ARG005
}


@pytest.mark.parametrize("case", ANSWERS)
@pytest.mark.parametrize("judge", ["reward", "terminated"])
def test_a_function_that_gives_something_else_is_told_so_and_nothing_is_written(judge, case):
    wrong, words = ANSWERS[case]
    hindsight = new(**{judge: wrong})
    hindsight.add(**step(0.0))
    hindsight.add(**step(1.0))
    before = str(hindsight.state_dict())
    for end in (lambda: hindsight.add(**step(2.0, truncated=True)), hindsight.end_episode):
        with refused(hindsight.buffer, InputError, rf"{judge}\(achieved, desired\) {words}"):
            end()
        assert str(hindsight.state_dict()) == before


def test_rewards_that_are_no_truth_values_do_not_end_episodes():
    hindsight = new(terminated=distance)
    hindsight.add(**step(0.0))
    with refused(hindsight.buffer, InputError, r"expected truth values \(bool\), one for each"):
        hindsight.add(**step(1.0, truncated=True))


def test_where_a_function_raises_nothing_has_changed_and_the_step_can_be_given_again():
    broken = True

    def reward(achieved, desired):
        if broken:
            raise ZeroDivisionError("not yet")
        return distance(achieved, desired)

    hindsight = new(reward=reward)
    hindsight.add(**step(0.0))
    with refused(hindsight.buffer, ZeroDivisionError, "not yet"):
        hindsight.add(**step(1.0, truncated=True))
    broken = False
    hindsight.add(**step(1.0, truncated=True))
    assert hindsight.buffer.rows([2, 3]).obs["desired_goal"].tolist() == [[2.0], [2.0]]


WRONG_STEPS = {
    "a missing end": ({"truncated": None}, "truncated"),
    "an unknown field": ({"rewrad": 1.0}, "unknown: ['rewrad']; did you mean 'reward'?"),
    "a shape": ({"action": [1, 2]}, "action: given shape (2,), expected ()"),
    "a goal too few": ({"obs": {"observation": [1.0]}}, "expected a mapping with the keys"),
    "final observations": ({"final_obs": at(3.0)}, "belongs to autoreset='same_step'"),
}


@pytest.mark.parametrize("case", WRONG_STEPS)
def test_a_step_that_the_buffer_would_refuse_is_refused_and_nothing_has_changed(case):
    others, words = WRONG_STEPS[case]
    hindsight = new()
    hindsight.add(**step(0.0))
    before = hindsight.state_dict()
    with refused(hindsight.buffer, InputError, re.escape(words)):
        hindsight.add(**step(1.0, **others))
    assert str(hindsight.state_dict()) == str(before)


def test_it_goes_on_from_a_note_of_a_saved_buffer(tmp_path):
    whole, first = (
        new(n_step=2, goals=2, strategy="future"),
        new(n_step=2, goals=2, strategy="future"),
    )
    for hindsight in (whole, first):
        walk(hindsight)
        walk(hindsight, (5.0, 6.0, 7.0)[:2])
        hindsight.add(**step(0.0))
    first.buffer.save(tmp_path / "kept", note=first.state_dict())
    buffer = ReplayBuffer.load(tmp_path / "kept")
    second = Hindsight(buffer, distance, terminated=reached, goals=2)
    second.load_state_dict(ReplayBuffer.saved_note(tmp_path / "kept"))
    for hindsight in (whole, second):
        walk(hindsight, (1.0, 2.0))
    assert_same_state(whole.buffer, buffer)
    assert whole.episodes == second.episodes == 3


STATES = {
    "nothing": None,
    "another state": {"weights": 1},
    "more environments": {"episodes": 0, "reset_due": [False] * 2, "waiting": [None] * 2},
    "other steps": {"episodes": 0, "reset_due": [False], "waiting": [{"reward": np.zeros(3)}]},
}


@pytest.mark.parametrize("case", STATES)
def test_a_state_of_something_else_is_refused(case):
    hindsight = new()
    hindsight.add(**step(0.0))
    before = str(hindsight.state_dict())
    with pytest.raises(InputError, match="state is no state_dict"):
        hindsight.load_state_dict(STATES[case])
    assert str(hindsight.state_dict()) == before


class Line(gym.Env):
    """Walks on a line; its ends are told of one pair of goals, as those of Gymnasium-Robotics."""

    observation_space = Dict(dict.fromkeys(FIELDS["obs"], Box(-99, 99, (1,), np.float32)))
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self._at = 0.0
        return self._seen(), {}

    def step(self, action):
        self._at += action
        return self._seen(), -1.0, self._at == 2, False, {}

    def _seen(self):
        places = {"observation": self._at, "achieved_goal": self._at, "desired_goal": 9.0}
        return {key: np.array([place], np.float32) for key, place in places.items()}

    def compute_reward(self, achieved, desired, info):
        assert info == {}
        return distance(achieved, desired)

    def compute_terminated(self, achieved, desired, info):
        assert achieved.shape == desired.shape == (1,)
        assert info == {}
        return bool(abs(achieved - desired) < 0.5)


@pytest.mark.parametrize("copies", [None, 2])
def test_an_environment_with_goals_says_what_they_are_worth(copies):
    env = Line() if copies is None else gym.vector.SyncVectorEnv([Line] * copies)
    buffer = ReplayBuffer.for_env(env, 100)
    hindsight = Hindsight.for_env(buffer, env, goals=1, strategy="final")
    obs, _ = env.reset(seed=0)
    for _ in range(2):
        action = 1 if copies is None else np.ones(copies, int)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        hindsight.add(obs=obs, action=action, reward=reward, next_obs=next_obs,
                      terminated=terminated, truncated=truncated)  # fmt: skip
        obs = next_obs
    rows = buffer.rows(range(2 * (copies or 1), 4 * (copies or 1)))
    assert rows.reward.tolist() == [-1.0, 0.0] * (copies or 1)
    assert rows.terminated.tolist() == [False, True] * (copies or 1)


@pytest.mark.parametrize("env", [gym.make("CartPole-v1"), object()])
def test_an_environment_without_goals_is_told_what_to_pass(env):
    buffer = ReplayBuffer(10, FIELDS)
    with pytest.raises(ConfigError, match=r"no compute_reward.*pass Hindsight\(buffer, reward\)"):
        Hindsight.for_env(buffer, env)


def test_fields_of_a_goal_environment_have_goals():
    assert list(fields_of(Line())["obs"]) == sorted(FIELDS["obs"])
