"""The machinery around a task: seams, time limits, seeds, what is refused, what is saved."""

import sys

import pytest
import torch

import relive
from relive.envs import TORCH_ENVS, make_torch_env, num_actions
from relive.errors import (
    ConfigError,
    InputError,
    MissingExtraError,
    NotReadyError,
    UnsupportedError,
)
from relive.ops.philox.reference import philox

CARTPOLE, PENDULUM, ACROBOT, CAR = TORCH_ENVS
OUTSIDE = {  # states from which any step terminates
    CARTPOLE: [2.5, 0.0, 0.0, 0.0],
    ACROBOT: [3.1, 0.0, 0.0, 0.0],
    CAR: [0.44, 0.06],
}


def some_actions(env, seed=0):
    generator = torch.Generator().manual_seed(seed)
    field = env.fields["action"]
    shape = (env.num_envs, *field.shape)
    if field.dtype == torch.int64:
        return torch.randint(2, shape, generator=generator)
    return torch.rand(shape, generator=generator) * 2 - 1


def put(env, lane, state=None, elapsed=None):
    """Changes one environment's state, or how far its episode is."""
    saved = env.state_dict()
    if state is not None:
        saved["state"][:, lane] = torch.tensor(state, dtype=env.dtype)
    if elapsed is not None:
        saved["elapsed"][lane] = elapsed
    env.load_state_dict(saved)


def in_start_box(env_id, states):
    low, high = (
        torch.tensor(b)[:, None]
        for b in (TORCH_ENVS[env_id].start_low, TORCH_ENVS[env_id].start_high)
    )
    return ((low <= states) & (states <= high)).all(0)


@pytest.mark.parametrize("env_id", TORCH_ENVS)
@pytest.mark.parametrize("num_envs", [1, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_dtypes_for_one_copy_and_for_thousands(env_id, num_envs, dtype):
    env = make_torch_env(env_id, num_envs, dtype=dtype)
    obs, info = env.reset(seed=1)
    shape = (num_envs, *env.single_observation_space.shape)
    assert (obs.shape, obs.dtype, info) == (shape, torch.float32, {})
    obs, reward, terminated, truncated, info = env.step(some_actions(env))
    assert (obs.shape, obs.dtype) == (shape, torch.float32)
    assert (reward.shape, reward.dtype) == ((num_envs,), dtype)
    for flag in (terminated, truncated, info["_final_obs"]):
        assert (flag.shape, flag.dtype) == ((num_envs,), torch.bool)
    assert (info["final_obs"].shape, info["final_obs"].dtype) == (shape, torch.float32)
    assert all(tensor.is_contiguous() for tensor in (obs, reward, info["final_obs"]))
    env.close()


@pytest.mark.parametrize("env_id", OUTSIDE)
def test_where_an_episode_ends_the_last_observation_is_kept_and_a_fresh_one_returned(env_id):
    env = make_torch_env(env_id, 3, seed=4)
    env.reset()
    put(env, 1, OUTSIDE[env_id], elapsed=7)
    before, actions = env.state_dict(), some_actions(env)
    obs, _, terminated, truncated, info = env.step(actions)
    after = env.state_dict()
    assert terminated.tolist() == info["_final_obs"].tolist() == [False, True, False]
    assert not truncated.any()
    fresh = torch.zeros(3, dtype=torch.bool)
    task = TORCH_ENVS[env_id]
    reached, _, _ = task.advance(before["state"], actions.view(3), fresh)
    assert torch.equal(info["final_obs"], task.observe(reached))
    assert torch.equal(obs, task.observe(after["state"]))
    assert in_start_box(env_id, after["state"])[1]
    assert not in_start_box(env_id, reached)[1]
    assert torch.equal(obs[[0, 2]], info["final_obs"][[0, 2]])
    assert after["elapsed"].tolist() == [1, 0, 1]
    assert after["episode"].tolist() == [0, 1, 0]


@pytest.mark.parametrize("env_id", TORCH_ENVS)
def test_an_episode_is_truncated_at_its_limit_and_not_a_step_before(env_id):
    limit = {CARTPOLE: 500, PENDULUM: 200, ACROBOT: 500, CAR: 999}[env_id]
    env = make_torch_env(env_id, 2)
    env.reset()
    put(env, 0, elapsed=limit - 2)
    for truncated_now in (False, True, False):
        _, _, terminated, truncated, info = env.step(some_actions(env))
        assert truncated.tolist() == [truncated_now, False]
        assert not terminated.any()
        assert torch.equal(info["_final_obs"], truncated)
    assert env.state_dict()["elapsed"].tolist() == [1, 3]


@pytest.mark.parametrize("env_id", OUTSIDE)
def test_both_flags_are_set_as_in_gymnasium_and_the_buffer_counts_it_as_terminated(env_id):
    import gymnasium
    import numpy as np

    theirs = gymnasium.make(env_id)
    theirs.reset(seed=0)
    theirs.unwrapped.state = np.array(OUTSIDE[env_id], dtype=np.float32)
    wrapper = theirs
    while not isinstance(wrapper, gymnasium.wrappers.TimeLimit):
        wrapper = wrapper.env
    limit = theirs.spec.max_episode_steps
    wrapper._elapsed_steps = limit - 1
    env = make_torch_env(env_id)
    obs, _ = env.reset()
    put(env, 0, OUTSIDE[env_id], elapsed=limit - 1)
    actions = some_actions(env)
    _, _, *flags, _ = theirs.step(actions.numpy()[0])
    next_obs, reward, terminated, truncated, info = env.step(actions)
    assert [terminated.item(), truncated.item()] == flags == [True, True]

    buffer = relive.ReplayBuffer.for_env(env, 16)
    buffer.add(
        obs=obs,
        action=actions,
        reward=reward,
        next_obs=next_obs,
        terminated=terminated,
        truncated=truncated,
        final_obs=info["final_obs"],
    )
    row = buffer.rows(buffer.live_ids())
    assert row.terminated.item()
    assert row.discount.item() == 0
    assert torch.equal(row.next_obs, info["final_obs"])
    theirs.close()


@pytest.mark.parametrize("env_id", TORCH_ENVS)
def test_a_replay_buffer_reads_all_it_needs_from_it(env_id):
    env = make_torch_env(env_id, 3)
    assert relive.fields_of(env) == env.fields
    buffer = relive.ReplayBuffer.for_env(env, 60, n_step=2)
    obs, _ = env.reset()
    put(env, 2, elapsed=TORCH_ENVS[env_id].time_limit - 2)
    for _ in range(4):
        actions = some_actions(env)
        next_obs, reward, terminated, truncated, info = env.step(actions)
        buffer.add(
            obs=obs,
            action=actions,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            final_obs=info["final_obs"],
        )
        obs = next_obs
    assert len(buffer) == 3 + 3 + 2 + 1  # the third episode was cut after two steps
    assert buffer.rows(buffer.live_ids()).truncated.sum() == 2


def test_it_says_how_many_actions_there_are():
    assert [num_actions(make_torch_env(env_id)) for env_id in (CARTPOLE, ACROBOT)] == [2, 3]


def test_without_gymnasium_the_fields_are_enough(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    env = make_torch_env(PENDULUM, 2)
    buffer = relive.ReplayBuffer.for_env(env, 16, fields=env.fields)
    assert buffer.capacity == 16
    for space in ("single_observation_space", "single_action_space"):
        with pytest.raises(MissingExtraError, match=r"relive\[gym\]"):
            getattr(env, space)


# Randomness


def run(env, steps=30):
    obs, _ = env.reset()
    put(env, 0, elapsed=TORCH_ENVS[env.env_id].time_limit - 5)
    seen = [obs]
    for t in range(steps):
        obs, reward, *_, info = env.step(some_actions(env, seed=t))
        seen += [obs, reward.unsqueeze(1), info["final_obs"]]
    return torch.cat([value.flatten() for value in seen])


@pytest.mark.parametrize("env_id", TORCH_ENVS)
def test_one_seed_gives_one_run_and_another_seed_another(env_id):
    first, again, other = (run(make_torch_env(env_id, 5, seed=seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_global_generator_is_neither_used_nor_moved():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = run(make_torch_env(CARTPOLE, 5))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(run(make_torch_env(CARTPOLE, 5)), first)


def test_a_reset_goes_on_with_the_stream_and_a_seeded_one_starts_it():
    env = make_torch_env(CARTPOLE, 4, seed=9)
    first, second = env.reset()[0], env.reset()[0]
    assert not torch.isclose(first, second).any()
    assert torch.equal(env.reset(seed=9)[0], first)
    assert torch.equal(env.reset()[0], second)


def test_where_an_episode_starts_depends_on_seed_copy_and_number_only():
    small, large = (make_torch_env(PENDULUM, n, seed=2, dtype=torch.float64) for n in (3, 50))
    small.reset()
    large.reset()
    put(large, 1, elapsed=199)  # ends on its own, the others are reset
    large.step(some_actions(large))
    small.reset()
    assert torch.equal(large.state_dict()["state"][:, 1], small.state_dict()["state"][:, 1])


def test_a_start_is_philox_of_seed_episode_and_copy():
    env = make_torch_env(CARTPOLE, 3, seed=-7, dtype=torch.float64)
    for episode in range(2):
        env.reset()
        words = [philox(-7, counter=episode, stream=copy) for copy in range(3)]
        expected = -0.05 + 0.1 * (torch.tensor(words).T >> 8).double() / 2**24
        assert torch.allclose(env.state_dict()["state"], expected, rtol=0, atol=1e-15)


def test_float32_and_float64_start_at_the_same_points():
    single, double = (make_torch_env(ACROBOT, 99, dtype=d) for d in (torch.float32, torch.float64))
    assert torch.allclose(single.reset()[0], double.reset()[0], rtol=0, atol=1e-7)


# Memory


def test_state_stays_where_it_is_and_results_are_never_changed_afterwards():
    env = make_torch_env(CAR, 4)
    obs, _ = env.reset()
    where = [tensor.data_ptr() for tensor in env._parts().values()]
    results = [obs]
    for _ in range(3):
        obs, reward, terminated, truncated, info = env.step(some_actions(env))
        results += [obs, reward, terminated, truncated, *info.values()]
    copies = [tensor.clone() for tensor in results]
    env.step(some_actions(env))
    env.reset(seed=3)
    assert all(map(torch.equal, results, copies))
    assert [tensor.data_ptr() for tensor in env._parts().values()] == where


def test_actions_are_left_as_they_are_and_no_gradient_flows():
    env = make_torch_env(PENDULUM, 2)
    env.reset()
    actions = torch.full((2, 1), 5.0, requires_grad=True)
    obs, reward, *_ = env.step(actions)
    assert not obs.requires_grad
    assert not reward.requires_grad
    assert actions.tolist() == [[5.0], [5.0]]


@pytest.mark.parametrize("env_id", TORCH_ENVS)
def test_what_was_saved_goes_on_exactly(env_id):
    env = make_torch_env(env_id, 5, seed=8)
    env.reset()
    put(env, 3, elapsed=TORCH_ENVS[env_id].time_limit - 12)
    for t in range(10):
        env.step(some_actions(env, seed=t))
    saved, resumed = env.state_dict(), make_torch_env(env_id, 5)
    resumed.load_state_dict(saved)
    for t in range(10, 20):
        first, second = (e.step(some_actions(env, seed=t)) for e in (env, resumed))
        assert all(map(torch.equal, first[:4], second[:4]))
    assert torch.equal(env.reset()[0], resumed.reset()[0])


# What is refused


def test_an_unknown_id_gets_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        make_torch_env("CartPole-v7")
    assert all(name in str(caught.value) for name in ["CartPole-v7", *TORCH_ENVS])


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"num_envs": 0}, ConfigError, "num_envs is a whole number >= 1; given 0"),
        ({"num_envs": True}, ConfigError, "given True"),
        ({"num_envs": 2.0}, ConfigError, "given 2.0"),
        ({"dtype": torch.float16}, ConfigError, "float32 or torch.float64; given torch.float16"),
        ({"seed": 2**63}, ConfigError, "64-bit"),
        ({"seed": 1.0}, ConfigError, "64-bit"),
        ({"device": "tpu"}, UnsupportedError, "given 'tpu'"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, error, says):
    with pytest.raises(error, match=says):
        make_torch_env(CARTPOLE, **settings)


@pytest.mark.parametrize(
    ("env_id", "actions", "says"),
    [
        (CARTPOLE, torch.zeros(2, dtype=torch.int64), r"expected \[3\] torch.int64; given \[2\]"),
        (CARTPOLE, torch.zeros(3, 1, dtype=torch.int64), r"given \[3, 1\]"),
        (CARTPOLE, torch.zeros(3), "given .* torch.float32"),
        (CARTPOLE, torch.zeros(3, dtype=torch.int64, device="meta"), "given on meta"),
        (CARTPOLE, [0, 1, 0], "given list, of which torch.as_tensor makes one"),
        (PENDULUM, torch.zeros(3), r"expected \[3, 1\] torch.float32; given \[3\]"),
        (PENDULUM, torch.zeros(3, 1, dtype=torch.float64), "given .* torch.float64"),
    ],
)
def test_actions_of_another_form_are_refused_before_anything_changes(env_id, actions, says):
    env = make_torch_env(env_id, 3)
    env.reset()
    before = env.state_dict()
    with pytest.raises(InputError, match=says):
        env.step(actions)
    after = env.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in ("state", "elapsed", "episode"))


def test_a_step_before_the_first_reset_is_refused():
    env = make_torch_env(CARTPOLE)
    with pytest.raises(NotReadyError, match=r"call reset\(\)"):
        env.step(some_actions(env))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"state": torch.zeros(2, 3)}, InputError),
        ({"state": torch.zeros(2, 2, dtype=torch.float64)}, InputError),
        ({"velocity": torch.zeros(2)}, InputError),
        ({"elapsed": torch.zeros(2)}, InputError),
        ({"elapsed": 3}, InputError),
        ({"seed": None}, ConfigError),
    ],
)
def test_a_saved_state_of_another_form_is_refused_before_anything_changes(change, error):
    env = make_torch_env(PENDULUM, 2)
    env.reset()
    saved = env.state_dict()
    with pytest.raises(error):
        env.load_state_dict({**saved, "episode": torch.tensor([5, 5]), **change})
    assert torch.equal(env.state_dict()["episode"], saved["episode"])
    env.step(some_actions(env))
