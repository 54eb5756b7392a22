"""The tensor environments against Gymnasium's, step for step.

With a float64 state the same operations are done in the same order and precision, so that only the
last bits of a sine or cosine can differ (those of NumPy and of torch are both right to about one
unit in the last place). TOLERANCE is a few thousand such units, for what a rounding grows to until
the states are set equal again: over 50 steps at most a hundredfold, in a falling pole. It cannot
hide a wrong formula: a constant that is wrong by a millionth fails, which is tested here for every
constant, and a float32 operation where a float64 one belongs is 10^5 times too inexact to pass.

The one exception is Pendulum's reward: NumPy squares the float32 torque by its power function,
which may be off by one float32 unit in the last place of 0.001 u² <= 0.004.
"""

import importlib

import gymnasium
import numpy as np
import pytest
import torch

from relive.envs import TORCH_ENVS, make_torch_env, make_vector_env

CARTPOLE, PENDULUM, ACROBOT, CAR = TORCH_ENVS
TOLERANCE = 1e-12  # relative, and absolute below 1
REWARD_TOLERANCE = {PENDULUM: 0.004 * 2**-23}
SAME_FLOAT32 = 1.2e-7  # one unit in the last place: float64 numbers that close can be rounded apart
RESYNC = 50


def close(given, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(given, expected, rtol=tolerance, atol=TOLERANCE)


def close_rewards(env_id, given, expected):
    np.testing.assert_allclose(given, expected, rtol=0, atol=REWARD_TOLERANCE.get(env_id, 1e-12))


# Whole episodes, through resets and time limits.


def states_of(vector):
    return torch.tensor(np.array([env.unwrapped.state for env in vector.envs], dtype=np.float64)).T


def adopt(env, states, lanes):
    """Gives the environment Gymnasium's states in some lanes."""
    saved = env.state_dict()
    env.load_state_dict(
        {**saved, "state": torch.where(torch.as_tensor(lanes), states, saved["state"])}
    )


def policy(env_id, states, rng):
    """Actions for four lanes: random in the first two, with a purpose in the others."""
    if env_id == CARTPOLE:
        x, v, angle, omega = states.numpy()
        balance = angle + 0.3 * omega + 0.05 * v + 0.02 * x > 0
        return np.where([1, 1, 0, 0], rng.integers(2, size=4), balance)
    if env_id == ACROBOT:  # lane 2 pumps and swings up, lane 3 hangs still until the time is up
        pump = 1 + np.sign(states[3].numpy()).astype(int)
        return np.where([1, 1, 0, 0], rng.integers(3, size=4), np.where([0, 0, 1, 0], pump, 1))
    beyond = rng.uniform(-1.5, 1.5, size=4) * (2 if env_id == PENDULUM else 1)
    pump = np.sign(states[1].numpy() + 1e-9) * [1, 1, 1.3, 0.7]
    return np.where([1, 1, 0, 0], beyond, pump).astype(np.float32)[:, None]


@pytest.mark.parametrize("env_id", TORCH_ENVS)
def test_whole_episodes_are_gymnasiums_through_resets_and_time_limits(env_id):
    limit = TORCH_ENVS[env_id].time_limit
    vector, env = make_vector_env(env_id, 4), make_torch_env(env_id, 4, dtype=torch.float64)
    assert vector.envs[0].spec.max_episode_steps == limit
    vector.reset(seed=[1, 2, 3, 4])
    env.reset(seed=5)
    rng, lanes, seen = np.random.default_rng(6), np.full(4, True), np.zeros(2, dtype=int)
    for t in range(2 * limit + 10):
        states = states_of(vector)
        adopt(env, states, lanes)
        close(env.state_dict()["state"], states)
        actions = policy(env_id, states, rng)
        obs, reward, terminated, truncated, info = vector.step(actions)
        ours = env.step(torch.as_tensor(actions))
        assert ours[2].tolist() == terminated.tolist(), t
        assert ours[3].tolist() == truncated.tolist(), t
        ended = terminated | truncated
        assert ours[4]["_final_obs"].tolist() == info.get("_final_obs", np.zeros(4)).tolist()
        close_rewards(env_id, ours[1], reward)
        reached = np.array([info["final_obs"][i] if ended[i] else obs[i] for i in range(4)])
        close(ours[4]["final_obs"], reached, SAME_FLOAT32)
        close(ours[0][~ended], obs[~ended], SAME_FLOAT32)
        seen += [terminated.sum(), truncated.sum()]
        lanes = ended | (t % RESYNC == 0)
    assert seen[1] >= 2, "no episode reached the time limit"
    assert (seen[0] >= 2) == (env_id != PENDULUM), "no episode terminated"
    vector.close()


# Single steps, from states that episodes seldom visit: beyond bounds, at thresholds.

BOX = {  # of the random states
    CARTPOLE: [3, 5, 0.3, 5],
    PENDULUM: [20, 8],
    ACROBOT: [np.pi, np.pi, 14, 30],
    CAR: [1.3, 0.075],
}


def single_steps(env_id):
    """States [n, S] and actions [n, ...], the same every time."""
    rng = np.random.default_rng(7)
    states = rng.uniform(-1, 1, size=(600, len(BOX[env_id]))) * BOX[env_id]
    if env_id in (CARTPOLE, ACROBOT):
        actions = rng.integers(TORCH_ENVS[env_id].num_actions, size=600)
    else:
        actions = rng.uniform(-3, 3, size=(600, 1)).astype(np.float32)
    beside = np.array([1 - 4e-7, 1 + 4e-7, -1 + 4e-7, -1 - 4e-7])
    if env_id == CARTPOLE:  # the step does not move what has no velocity
        states[:8] = 0
        states[:4, 0], states[4:8, 2] = 2.4 * beside, np.radians(12) * beside
    if env_id == CAR:
        actions[:4] = [[1], [-1], [0], [1.0000001]]  # at the bounds, and just beyond
        states[4:8] = [[0.4499996, 0.0], [0.4500004, 0.0], [0.4499, 0.0], [0.4501, 0.0]]
        slope = 0.0025 * np.cos(3 * states[4:8, 0])
        actions[4:8, 0] = slope / 0.0015  # rests: the velocity stays about 0
        actions[6:8, 0] += [0.05, -0.05]
        states[8:10], actions[8:10] = [[-1.15, -0.06], [-1.1999999, 0]], [[-1], [-0.5]]
        states = states.astype(np.float32).astype(np.float64)
    return states, actions


def gymnasium_steps(env_id, states, actions):
    env = gymnasium.make(env_id).unwrapped
    env.reset(seed=0)
    after = []
    for state, action in zip(states, actions, strict=True):
        env.state = state.astype(np.float32) if env_id == CAR else state.copy()
        env.steps_beyond_terminated = None
        obs, reward, terminated, _, _ = env.step(action)
        after.append((np.array(env.state, dtype=np.float64), obs, reward, terminated))
    env.close()
    return [np.array(column) for column in zip(*after, strict=True)]


def torch_steps(env_id, states, actions, dtype=torch.float64):
    task = TORCH_ENVS[env_id]
    action = torch.as_tensor(actions).view(len(states))
    fresh = torch.zeros(len(states), dtype=torch.bool)
    state, reward, terminated = task.advance(torch.as_tensor(states).T.to(dtype), action, fresh)
    return [state.T, task.observe(state), reward, terminated]


def compare(env_id, given, expected):
    close(given[0], expected[0])
    close(given[1], expected[1], SAME_FLOAT32)
    close_rewards(env_id, given[2], expected[2])
    assert given[3].tolist() == expected[3].tolist()


@pytest.mark.parametrize("env_id", TORCH_ENVS)
def test_single_steps_from_anywhere_are_gymnasiums(env_id):
    steps = single_steps(env_id)
    expected = gymnasium_steps(env_id, *steps)
    compare(env_id, torch_steps(env_id, *steps), expected)
    assert (0 < expected[3].sum() < 600) == (env_id != PENDULUM)


@pytest.mark.parametrize("env_id", TORCH_ENVS)
def test_a_float32_state_is_right_to_float32_rounding(env_id):
    states, actions = single_steps(env_id)
    states = states.astype(np.float32).astype(np.float64)
    exact, given = (torch_steps(env_id, states, actions, d) for d in (torch.float64, torch.float32))
    assert [column.dtype for column in given[:3]] == [torch.float32] * 3
    difference = (given[0].double() - exact[0]).abs()
    if env_id == ACROBOT:  # a rounding decides whether an angle is about π or about −π
        difference[:, :2] = torch.minimum(difference[:, :2], (2 * np.pi - difference[:, :2]).abs())
    relative = difference / exact[0].abs().amax(0).clamp(min=1)
    assert relative.median() < 2**-23
    # Four evaluations at up to 30 rad/s, each with the errors of the one before, lose some digits.
    assert relative.max() < (500 if env_id == ACROBOT else 20) * 2**-23
    assert (given[3] != exact[3]).sum() <= 4  # thresholds that float32 cannot tell apart


# The proof that the tolerance is tight enough.

MODULES = {CARTPOLE: "cartpole", PENDULUM: "pendulum", ACROBOT: "acrobot", CAR: "mountain_car"}
USED = {
    CARTPOLE: "GRAVITY POLE_MASS TOTAL_MASS HALF_LENGTH POLE_MOMENT FORCE DT MAX_X MAX_ANGLE",
    PENDULUM: "GRAVITY DT MAX_TORQUE MAX_VELOCITY",
    ACROBOT: "DT MAX_VELOCITY_1 MAX_VELOCITY_2 COUPLING D_1 D_2 WEIGHT_1 WEIGHT_2",
    CAR: "POWER GRAVITY MAX_VELOCITY MIN_X MAX_X GOAL_X",
}


@pytest.mark.parametrize(
    ("env_id", "constant"),
    [(env_id, constant) for env_id, names in USED.items() for constant in names.split()],
)
def test_a_constant_that_is_off_by_a_millionth_is_noticed(monkeypatch, env_id, constant):
    module = importlib.import_module(f"relive.envs.torch_native.{MODULES[env_id]}")
    steps = single_steps(env_id)
    expected = gymnasium_steps(env_id, *steps)
    for wrong in (1 - 1e-6, 1 + 1e-6):
        with monkeypatch.context() as patch:
            patch.setattr(module, constant, getattr(module, constant) * wrong)
            given = torch_steps(env_id, *steps)
        with pytest.raises(AssertionError):
            compare(env_id, given, expected)


@pytest.mark.parametrize("env_id", TORCH_ENVS)
def test_spaces_are_gymnasiums(env_id):
    env, theirs = make_torch_env(env_id), gymnasium.make(env_id)
    assert env.single_observation_space == theirs.observation_space
    assert env.single_action_space == theirs.action_space
    theirs.close()
