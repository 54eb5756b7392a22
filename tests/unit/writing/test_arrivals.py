"""What the host knows of rows on a GPU without asking: exact where it sees the flags."""

import numpy as np
import pytest

from relive import Field, ReplayBuffer
from relive.ops import words as w
from relive.writing.arrivals import Arrivals

CALLS = 120
SETTINGS = [
    (num_envs, n_step, autoreset)
    for num_envs in (1, 3)
    for n_step in (1, 3)
    for autoreset in ("disabled", "next_step")
]


class Life:
    """A buffer on the CPU, and what the host would know of it: with flags, without, and mixed."""

    def __init__(self, num_envs, n_step, autoreset, seed):
        self.random = np.random.default_rng(seed)
        self.buffer = ReplayBuffer(
            40,
            {"obs": Field(), "action": Field()},
            num_envs=num_envs,
            n_step=n_step,
            autoreset=autoreset,
        )
        self.envs = num_envs
        state = self.buffer._state
        self.sighted, self.blind, self.mixed = (Arrivals(state) for _ in range(3))
        self.all = [self.sighted, self.blind, self.mixed]

    def ends(self, *shape):
        return self.random.random(shape) < self.random.choice([0.05, 0.6])

    def step(self, *shape):
        zeros, ended = np.zeros(shape, np.float32), self.ends(*shape)
        values = {"obs": zeros, "action": zeros, "reward": zeros, "next_obs": zeros}
        return ended, {**values, "terminated": ended & (zeros == 0), "truncated": ended & False}

    def add(self):
        ended, values = self.step(self.envs)
        self.buffer.add(**values)
        sometimes = ended if self.random.random() < 0.5 else None
        for known, flags in zip(self.all, (ended, None, sometimes), strict=True):
            known.add(flags)

    def extend(self):
        times = int(self.random.integers(1, 9))
        env = self.random.choice([None, *range(self.envs)])
        lanes = range(self.envs) if env is None else range(env, env + 1)
        ended, values = self.step(times, len(lanes))
        if env is not None:
            values = {name: value[:, 0] for name, value in values.items()}
        self.buffer.extend(**values, env=env)
        sometimes = ended if self.random.random() < 0.5 else None
        for known, flags in zip(self.all, (ended, None, sometimes), strict=True):
            known.extend(times, lanes, flags, close=True)

    def ready_made(self):
        _, values = self.step(4)
        self.buffer.extend(**values, discount=values["reward"])
        for known in self.all:
            known.add_rows(4)

    def end_episode(self):
        env = int(self.random.integers(self.envs))
        self.buffer.end_episode(env)
        for known in self.all:
            known.flush(range(env, env + 1))

    def clear(self):
        self.buffer.clear()
        for known in self.all:
            known.clear()

    def any_call(self):
        calls = [self.add] * 12 + [self.extend, self.ready_made, self.end_episode, self.clear]
        calls[self.random.integers(len(calls))]()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("num_envs", "n_step", "autoreset"), SETTINGS)
def test_bounds_hold_after_any_calls_and_are_exact_where_flags_are_seen(
    num_envs, n_step, autoreset, seed
):
    life = Life(num_envs, n_step, autoreset, seed)
    for _ in range(CALLS):
        life.any_call()
        held, next_id = len(life.buffer), life.buffer._state.word(w.NEXT_ID)
        assert life.sighted.rows == held
        for known in (life.blind, life.mixed):
            assert known.rows <= held
            assert known.next_id >= next_id
        assert Arrivals(life.buffer._state).rows == held


def test_without_flags_a_vector_environment_counts_half_of_its_steps_and_no_waiting_ones():
    life = Life(2, 3, "next_step", 0)
    for _ in range(10):
        life.blind.add(None)
    assert life.blind.rows == 2 * (10 // 2 - 2)


def test_pinned_rows_count_and_stay_when_the_ring_is_full():
    life = Life(1, 1, "disabled", 0)
    while len(life.buffer) < 5:
        life.add()
    life.buffer.pin_demonstrations(len(life.buffer), reserve=3)
    known = Arrivals(life.buffer._state)
    assert known.rows == 5
    for _ in range(60):
        known.add(np.zeros(1, bool))
    assert known.rows == 5 + 40 - 8
    known.clear()
    assert known.rows == 0
    for _ in range(60):
        known.add(np.zeros(1, bool))
    assert known.rows == 40
