"""Numbers of NumPy are taken wherever Python's are, and become them."""

import numpy as np
import pytest
import torch

from relive import (
    ConfigError,
    Field,
    InputError,
    Linear,
    Mixture,
    Proportional,
    RankBased,
    Recent,
    ReplayBuffer,
    TrajectoryStore,
    plan,
)
from relive.envs import make_torch_env


def buffer(capacity=16, **settings):
    return ReplayBuffer(capacity, {"obs": Field((2,)), "action": Field()}, **settings)


def filled(count=8, **settings):
    made = buffer(**settings)
    obs = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    numbers = np.arange(count, dtype=np.float32)
    made.extend(
        obs=obs, action=numbers, reward=numbers, next_obs=obs, terminated=np.zeros(count, bool)
    )
    return made


def state(of):
    return settings_of(of), len(of), of.stats(), of.sample(9).ids.tolist()


def settings_of(made):
    return made.state_dict()["settings"]


def after(call):
    made = filled()
    result = call(made)
    result = result.ids.tolist() if hasattr(result, "ids") else result
    return result, state(made)


MADE_OF_WHOLE = {
    "capacity": lambda n: settings_of(buffer(n(7))),
    "num_envs": lambda n: settings_of(buffer(num_envs=n(2), autoreset="disabled")),
    "n_step": lambda n: settings_of(buffer(n_step=n(3))),
    "seed": lambda n: state(filled(seed=n(5))),
    "a shape": lambda n: Field((n(3), n(4))).shape,
    "steps of a schedule": lambda n: repr(Linear(0.0, 1.0, n(9))),
    "rows of a window": lambda n: repr(Recent(n(9))),
    "a shrinking window": lambda n: repr(Recent(c_min=n(9), updates=n(3))),
    "resort_every": lambda n: repr(RankBased(resort_every=n(9))),
    "a whole number for a real one": lambda n: repr(Proportional(alpha=n(1))),
    "a plan": lambda n: plan(
        n(90), {"obs": Field(), "action": Field()}, num_envs=n(2), n_step=n(3), batch_size=n(8)
    ),
    "reseed": lambda n: after(lambda made: made.reseed(n(3))),
    "set_progress": lambda n: after(lambda made: made.set_progress(n(3))),
    "sample": lambda n: after(lambda made: made.sample(n(4))),
    "batches": lambda n: after(lambda made: next(made.batches(n(4), ahead=n(2)))),
    "sample_range": lambda n: after(lambda made: made.sample_range(n(3), n(2), n(6))),
    "end_episode": lambda n: after(lambda made: made.end_episode(n(0))),
    "pin_demonstrations": lambda n: after(
        lambda made: made.pin_demonstrations(n(8), batch_size=n(4), reserve=n(2))
    ),
    "split": lambda n: [part.tolist() for part in filled().split(0.5, seed=n(3))],
    "grown": lambda n: state(filled().grown(n(32))),
    "start_sweep": lambda n: state(swept(n(3))),
    "shares of a mixture": lambda n: Mixture([filled(), filled()], [n(1), n(3)]).shares,
    "environments as tensors": lambda n: str(tensors_env(n(2), n(3)).reset()),
}
ANY_NUMBER = {"a whole number for a real one", "shares of a mixture"}
MADE_OF_REAL = {
    "gamma": lambda x: settings_of(buffer(gamma=x(0.5))),
    "demo_fraction": lambda x: settings_of(buffer(demo_fraction=x(0.25))),
    "a schedule": lambda x: repr(Linear(x(0.5), x(1.0), 9)),
    "alpha, eps and shares": lambda x: repr(
        Proportional(alpha=x(0.5), eps=x(0.25), uniform_share=x(0.125), weight_clip=x(2.0))
    ),
    "beta": lambda x: settings_of(buffer(sampler=Proportional(beta=x(0.5)))),
    "eta": lambda x: settings_of(buffer(window=Recent(eta=x(0.5)))),
    "holdout": lambda x: [part.tolist() for part in filled().split(x(0.5), seed=1)],
    "shares of a mixture": lambda x: Mixture([filled(), filled()], [x(0.5), x(1.5)]).shares,
}


def tensors_env(num_envs, seed):
    return make_torch_env("CartPole-v1", num_envs, device="cpu", seed=seed)


def swept(updates):
    made = filled(window=Recent(eta=0.5))
    made.start_sweep(updates)
    return made


DAY = np.timedelta64(1, "D")
NO_WHOLE_NUMBERS = {
    "bool": np.bool_,
    "real": lambda n: np.float64(n + 0.5),
    "seconds": lambda n: np.timedelta64(n, "s"),  # integers, to NumPy
    "nanoseconds": lambda n: np.timedelta64(n, "ns"),
}


@pytest.mark.parametrize("name", MADE_OF_WHOLE)
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_whole_numbers_of_numpy_are_taken_as_those_of_python(name, kind):
    assert repr(MADE_OF_WHOLE[name](kind)) == repr(MADE_OF_WHOLE[name](int))


@pytest.mark.parametrize("name", MADE_OF_REAL)
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_real_numbers_of_numpy_are_taken_as_those_of_python(name, kind):
    assert repr(MADE_OF_REAL[name](kind)) == repr(MADE_OF_REAL[name](float))


@pytest.mark.parametrize("name", sorted({*MADE_OF_WHOLE} - ANY_NUMBER))
@pytest.mark.parametrize("kind", NO_WHOLE_NUMBERS.values(), ids=NO_WHOLE_NUMBERS)
def test_what_is_no_whole_number_is_refused_though_it_is_of_numpy(name, kind):
    with pytest.raises((ConfigError, InputError)):
        MADE_OF_WHOLE[name](kind)


@pytest.mark.parametrize(
    "value", [np.float32("nan"), np.float64("inf"), np.float32(1.5), np.True_, DAY]
)
def test_a_number_of_numpy_outside_of_its_range_is_refused(value):
    with pytest.raises(ConfigError, match="gamma lies in"):
        buffer(gamma=value)


def test_truth_values_of_numpy_are_taken():
    assert settings_of(buffer(track_reuse=np.True_)) == settings_of(buffer(track_reuse=True))
    assert Proportional(stratified=np.False_) == Proportional(stratified=False)


def test_a_buffer_made_with_numpy_numbers_is_saved_and_loaded(tmp_path):
    made = filled(capacity=np.int64(16), n_step=np.int32(2), gamma=np.float32(0.5))
    made.save(tmp_path / "buffer")
    again = ReplayBuffer.load(tmp_path / "buffer", capacity=np.int64(12))
    assert (again.capacity, again.n_step, again.gamma) == (12, 2, 0.5)
    assert torch.equal(again.all().reward, made.all().reward)


def test_episodes_of_a_store_are_found_by_numbers_of_numpy(tmp_path):
    fields = {"obs": Field((2,)), "action": Field()}
    obs = np.zeros((3, 2), np.float32)
    numbers = np.arange(3, dtype=np.float32)
    with TrajectoryStore(tmp_path / "store", fields) as store:
        for env in (0, np.int64(1)):
            store.append(
                obs=obs,
                action=numbers,
                reward=numbers + env,
                next_obs=obs,
                terminated=np.array([False, False, True]),
                env=env,
            )
        for number in (np.int64(1), np.int32(-1)):
            assert store.episode(number).reward.tolist() == [1.0, 2.0, 3.0]
