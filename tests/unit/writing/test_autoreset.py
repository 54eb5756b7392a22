"""Vector environments that reset by themselves, in each of Gymnasium's three ways."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from relive import ConfigError, Field, InputError, ReplayBuffer
from relive.writing.autoreset import mode_of

FIELDS = {"obs": Field(), "action": Field((), torch.int64)}
MODES = ["disabled", "next_step", "same_step"]


class Countdown(gym.Env):
    """Observation t = 0, 1, 2, ... within an episode of `length` steps; reward t + 1."""

    observation_space = gym.spaces.Box(-1, 1e6, (), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length, truncates):
        self.length, self.truncates = length, truncates

    def reset(self, *, seed=None, options=None):  # noqa: ARG002 - Gymnasium's signature
        super().reset(seed=seed)
        self.t = 0
        return np.float32(0), {}

    def step(self, action):  # noqa: ARG002 - Gymnasium's signature
        self.t += 1
        ended = self.t == self.length
        return (
            np.float32(self.t),
            float(self.t),
            ended and not self.truncates,
            ended and self.truncates,
            {},
        )


def _run(mode, n_step, steps=60, final=lambda final_obs: final_obs):
    lengths = [(3, False), (5, True), (7, False)]
    envs = gym.vector.SyncVectorEnv(
        [lambda length=length, cut=cut: Countdown(length, cut) for length, cut in lengths],
        autoreset_mode=gym.vector.AutoresetMode(mode.replace("_", " ").title().replace(" ", "")),
    )
    buffer = ReplayBuffer.for_env(envs, 1000, n_step=n_step, gamma=0.5)
    obs, _ = envs.reset(seed=0)
    for _ in range(steps):
        action = np.zeros(3, np.int64)
        next_obs, reward, terminated, truncated, infos = envs.step(action)
        extra = {"final_obs": final(infos.get("final_obs"))} if mode == "same_step" else {}
        buffer.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            **extra,
        )
        if mode == "disabled" and (ended := terminated | truncated).any():
            next_obs, _ = envs.reset(options={"reset_mask": ended})
        obs = next_obs
    envs.close()
    buffer.check()
    return buffer


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_every_stored_transition_is_one_the_environments_made(mode, n_step):
    buffer = _run(mode, n_step)
    rows = buffer.rows(buffer.live_ids())
    lanes = buffer._state.rows[: len(buffer), :4].view(torch.int32)[:, 0]
    for lane, (length, cut) in enumerate([(3, False), (5, True), (7, False)]):
        mine = (lanes == lane).nonzero().view(-1)
        assert len(mine) > 30
        for i in mine.tolist():
            start = int(rows.obs[i])
            count = min(n_step, length - start)
            assert count >= 1  # never a step out of the final observation
            expected = sum(0.5**k * (start + k + 1) for k in range(count))
            ended = start + count == length
            assert rows.reward[i] == expected
            assert rows.next_obs[i] == start + count  # at an end: the final observation
            assert bool(rows.terminated[i]) == (ended and not cut)
            assert bool(rows.truncated[i]) == (ended and cut)
            assert rows.discount[i] == (0.0 if ended and not cut else 0.5**count)


def test_fake_reset_steps_are_dropped_and_counted():
    buffer = _run("next_step", 1, steps=60)
    # an episode of length L takes L + 1 steps of the vector environment
    dropped = 60 // 4 + 60 // 6 + 60 // 8
    assert buffer.stats()["dropped_reset_rows"] == dropped
    assert len(buffer) == 3 * 60 - dropped


def test_dense_final_observations_give_the_same_rows_as_gymnasiums_object_array():
    def dense(final_obs):
        if final_obs is None:
            return None
        return np.array([-7.0 if obs is None else obs for obs in final_obs], np.float32)

    sparse = _run("same_step", 3)
    for convert in (
        dense,
        lambda final_obs: None if (d := dense(final_obs)) is None else torch.tensor(d),
    ):
        other = _run("same_step", 3, final=convert)
        assert torch.equal(other._state.rows, sparse._state.rows)


def test_dict_observations_have_their_final_ones_replaced_too():
    fields = {"obs": {"a": Field(), "b": Field((2,))}, "action": Field()}
    buffer = ReplayBuffer(10, fields, num_envs=2, autoreset="same_step")
    obs = {"a": np.zeros(2, np.float32), "b": np.zeros((2, 2), np.float32)}
    final = np.array([None, {"a": np.float32(9), "b": np.float32([8, 7])}], dtype=object)
    step = {"action": np.zeros(2), "reward": np.zeros(2), "obs": obs, "next_obs": obs}
    ended = np.array([False, True])
    buffer.add(**step, terminated=ended, truncated=~ended & False, final_obs=final)
    rows = buffer.rows([0, 1])
    assert rows.next_obs["a"].tolist() == [0.0, 9.0]
    assert rows.next_obs["b"].tolist() == [[0.0, 0.0], [8.0, 7.0]]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.bfloat16])
def test_final_observations_of_any_dtype_are_stored(dtype):
    fields = {"obs": Field((2,), dtype), "action": Field()}
    buffer = ReplayBuffer(10, fields, num_envs=2, autoreset="same_step")
    zeros = np.zeros((2, 2), np.uint8)
    final = np.array([None, np.array([3, 4], np.uint8)], dtype=object)
    buffer.add(
        obs=zeros,
        action=[0.0, 0.0],
        reward=[0.0, 0.0],
        next_obs=zeros,
        terminated=[False, True],
        truncated=[False, False],
        final_obs=final,
    )
    assert buffer.rows([0, 1]).next_obs.tolist() == [[0, 0], [3, 4]]


@pytest.mark.parametrize(
    ("final_obs", "message"),
    [
        (None, "final_obs is missing"),
        (np.array([None, None], dtype=object), r"final_obs is None for lanes \[1\]"),
        (np.array([1.0], np.float32), "expected a row for each environment"),
        (np.array([[1.0], [2.0]], np.float32), r"given shape \(1, 1\), expected \(1,\)"),
        (np.array([None, "nine"], dtype=object), "expected torch.float32"),
    ],
)
def test_a_final_observation_that_is_missing_or_wrong_is_refused(final_obs, message):
    buffer = ReplayBuffer(10, FIELDS, num_envs=2, autoreset="same_step")
    with pytest.raises(InputError, match=message):
        buffer.add(
            obs=np.zeros(2, np.float32),
            action=[0, 0],
            reward=[0.0, 0.0],
            next_obs=np.zeros(2, np.float32),
            terminated=[False, True],
            truncated=[False, False],
            final_obs=final_obs,
        )
    assert len(buffer) == 0


def test_several_environments_must_say_how_they_reset():
    with pytest.raises(ConfigError, match=r"autoreset= disabled \| next_step \| same_step"):
        ReplayBuffer(10, FIELDS, num_envs=2)
    with pytest.raises(ConfigError, match="autoreset is one of"):
        ReplayBuffer(10, FIELDS, num_envs=2, autoreset="always")


def test_the_mode_is_read_from_the_environment():
    for mode in MODES:
        envs = gym.make_vec(
            "CartPole-v1",
            num_envs=2,
            vectorization_mode="sync",
            vector_kwargs={
                "autoreset_mode": gym.vector.AutoresetMode(
                    mode.replace("_", " ").title().replace(" ", "")
                )
            },
        )
        assert mode_of(envs) == mode
        envs.close()
    assert mode_of(gym.make("CartPole-v1")) == "disabled"


def test_a_single_environment_that_resets_itself_is_known_by_its_wrapper():
    env = gym.wrappers.TransformReward(gym.wrappers.Autoreset(gym.make("CartPole-v1")), abs)
    assert mode_of(env) == "next_step"
    buffer = ReplayBuffer.for_env(env, 100)
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    ended = []
    for _ in range(100):
        action = env.action_space.sample()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(
            obs=obs, action=action, reward=reward, next_obs=next_obs,
            terminated=terminated, truncated=truncated,
        )  # fmt: skip
        obs = next_obs
        ended.append(terminated or truncated)
    resets = sum(ended[:-1])
    assert resets > 2
    assert buffer.stats()["dropped_reset_rows"] == resets
    assert len(buffer) == 100 - resets


def test_an_environment_that_does_not_say_its_mode_is_refused():
    class Silent:
        num_envs = 2
        metadata = None

    with pytest.raises(ConfigError, match="does not say how it resets"):
        mode_of(Silent())


def test_after_end_episode_the_next_step_is_a_real_one():
    buffer = ReplayBuffer(10, FIELDS, num_envs=2, autoreset="next_step")
    step = {"obs": [0.0, 0.0], "action": [0, 0], "reward": [0.0, 0.0], "next_obs": [0.0, 0.0]}
    step = {
        name: np.asarray(value, np.float32 if name != "action" else np.int64)
        for name, value in step.items()
    }
    buffer.add(**step, terminated=[True, False], truncated=[False, False])
    buffer.end_episode()  # the caller resets all of them
    buffer.add(**step, terminated=[False, False], truncated=[False, False])
    assert len(buffer) == 4
    assert buffer.stats()["dropped_reset_rows"] == 0


def test_copies_of_a_single_environment_have_to_say_how_they_reset():
    env = gym.make("CartPole-v1")
    with pytest.raises(ConfigError, match="say how the 3 environments reset: autoreset="):
        ReplayBuffer.for_env(env, 100, num_envs=3)
    assert ReplayBuffer.for_env(env, 100, num_envs=3, autoreset="next_step").num_envs == 3


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_an_environment_that_says_how_it_resets_is_not_contradicted(mode):
    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=gym.vector.AutoresetMode[mode]
    )
    for given in ("disabled", "next_step", "same_step"):
        if given == mode.lower():
            assert ReplayBuffer.for_env(envs, 100, autoreset=given).num_envs == 2
        else:
            with pytest.raises(ConfigError, match=f"resets by '{mode.lower()}'.* leave it out"):
                ReplayBuffer.for_env(envs, 100, autoreset=given)
    envs.close()
