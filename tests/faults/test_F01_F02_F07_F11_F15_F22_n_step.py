"""n-step windows: the seam of the ring, ends of episodes, several environments, the tail."""

from __future__ import annotations

import numpy as np
import pytest

from tests.faults.tagged import drawn, held, prioritized, row, rows, uniform, write


def test_F01_a_window_never_runs_over_the_write_cursor_of_a_full_ring(kernels: str) -> None:
    buffer = write(uniform(5, kernels, n_step=3), range(8))
    windows = {1: 6, 2: 12, 3: 24, 4: 48, 5: 96}
    assert held(buffer) == {t: (R, 0.125, t + 2.5, False) for t, R in windows.items()}
    assert set(drawn(buffer, 5000)) == set(windows)


def test_F01_the_newest_steps_wait_until_more_is_written_or_the_episode_is_ended(
    kernels: str,
) -> None:
    buffer = write(uniform(5, kernels, n_step=3), range(8))
    buffer.end_episode()
    assert held(buffer) == {
        3: (24, 0.125, 5.5, False),
        4: (48, 0.125, 6.5, False),
        5: (96, 0.125, 7.5, False),
        6: (128, 0.25, 7.5, False),
        7: (128, 0.5, 7.5, False),
    }


def test_F02_no_reward_from_after_the_terminal_step_is_in_a_return(kernels: str) -> None:
    buffer = write(uniform(8, kernels, n_step=3), range(6), terminated={2})
    assert held(buffer) == {
        0: (3, 0, 2.5, True),
        1: (4, 0, 2.5, True),
        2: (4, 0, 2.5, True),
        3: (24, 0.125, 5.5, False),
    }


def test_F02_a_truncated_window_is_as_short_and_still_bootstraps(kernels: str) -> None:
    buffer = write(uniform(8, kernels, n_step=3), range(6), truncated={2})
    assert held(buffer) == {
        0: (3, 0.125, 2.5, False),
        1: (4, 0.25, 2.5, False),
        2: (4, 0.5, 2.5, False),
        3: (24, 0.125, 5.5, False),
    }


@pytest.mark.parametrize("terminal", [None, 1])
def test_F07_windows_of_several_environments_do_not_mix(kernels: str, terminal: int | None) -> None:
    buffer = uniform(20, kernels, n_step=2, num_envs=2, autoreset="disabled")
    for t in range(4):
        buffer.add(
            obs=[t, 100 + t],
            action=[0, 1],
            reward=[2.0**t, 100 * 2.0**t],
            next_obs=[t + 0.5, 100.5 + t],
            terminated=[t == terminal, False],
            truncated=[False, False],
        )
    found = {start: R for start, (R, *_) in held(buffer).items()}
    assert {t: found[t] for t in (100, 101, 102)} == {100: 200, 101: 400, 102: 800}
    first = {start: value for start, value in held(buffer).items() if start < 100}
    if terminal is None:
        assert {t: R for t, (R, *_) in first.items()} == {0: 2, 1: 4, 2: 8}
    else:
        assert first == {0: (2, 0, 1.5, True), 1: (2, 0, 1.5, True), 2: (8, 0.25, 3.5, False)}


EPISODES = {  # n, length: returns, how many steps each is made of
    (3, 8): ([3, 6, 12, 24, 48, 96, 128, 128], [3, 3, 3, 3, 3, 3, 2, 1]),
    (5, 1): ([1], [1]),
    (5, 2): ([2, 2], [2, 1]),
    (5, 5): ([5, 8, 12, 16, 16], [5, 4, 3, 2, 1]),
    (1, 3): ([1, 2, 4], [1, 1, 1]),
}


@pytest.mark.parametrize("n_and_length", EPISODES)
@pytest.mark.parametrize("how", ["terminated", "truncated", "end_episode", "extend"])
def test_F11_the_end_of_an_episode_gives_each_start_once_and_no_more(
    kernels: str, n_and_length: tuple[int, int], how: str
) -> None:
    (n, length), (returns, sizes) = n_and_length, EPISODES[n_and_length]
    buffer = uniform(20, kernels, n_step=n)
    if how == "extend":
        buffer.extend(**rows(range(length)))
    else:
        write(buffer, range(length), **({} if how == "end_episode" else {how: {length - 1}}))
    if how == "end_episode":
        buffer.end_episode()
    expected = {}
    for t, (R, k) in enumerate(zip(returns, sizes, strict=True)):
        terminated = how == "terminated" and t + k == length
        expected[t] = (R, 0 if terminated else 0.5**k, t + k - 0.5, terminated)
    assert held(buffer) == expected
    buffer.end_episode()  # nothing is left to be written
    assert held(buffer) == expected


@pytest.mark.parametrize("n_step", [1, 2, 3, 5])
@pytest.mark.parametrize("how", ["truncated", "end_episode", "extend"])
def test_F11_every_window_that_reaches_a_truncated_end_says_so(
    kernels: str, n_step: int, how: str
) -> None:
    buffer = uniform(20, kernels, n_step=n_step)
    if how == "extend":
        buffer.extend(**rows(range(8)))
    else:
        write(buffer, range(8), truncated={7} if how == "truncated" else ())
        buffer.end_episode()
    truncated = buffer.rows(buffer.live_ids()).truncated.tolist()
    assert truncated == [t + n_step >= 8 for t in range(8)]


def test_F15_the_first_window_comes_with_the_nth_step(kernels: str) -> None:
    buffer = uniform(10, kernels, n_step=3)
    write(buffer, [0, 1])
    assert len(buffer) == 0
    assert not buffer.ready(1)
    write(buffer, [2])
    assert held(buffer) == {0: (3, 0.125, 2.5, False)}
    write(buffer, [3])
    assert held(buffer) == {0: (3, 0.125, 2.5, False), 1: (6, 0.125, 3.5, False)}


@pytest.mark.parametrize("make", [uniform, prioritized])
def test_F22_every_start_of_an_episode_is_drawn(kernels: str, make: object) -> None:
    buffer = write(make(8, kernels, n_step=3), range(8), terminated={7})
    counts = drawn(buffer, 10_000)
    assert set(counts) == set(range(8))
    assert all(1250 - 133 <= count <= 1250 + 133 for count in counts.values())


@pytest.mark.parametrize("make", [uniform, prioritized])
def test_F22_every_full_window_of_an_open_episode_is_drawn(kernels: str, make: object) -> None:
    counts = drawn(write(make(8, kernels, n_step=3), range(8)), 10_000)
    assert set(counts) == set(range(6))
    assert all(1667 - 149 <= count <= 1667 + 149 for count in counts.values())


def test_F22_the_first_and_last_row_of_a_full_uniform_ring_are_drawn(kernels: str) -> None:
    counts = drawn(write(uniform(8, kernels), range(8)), 10_000)
    assert set(counts) == set(range(8))
    assert all(1250 - 133 <= count <= 1250 + 133 for count in counts.values())


def test_F22_a_nan_in_the_last_step_of_an_episode_is_seen(kernels: str) -> None:
    buffer = write(uniform(8, kernels, n_step=3), range(7))
    buffer.add(**{**row(7, terminated=True), "obs": np.nan})
    assert np.isnan(buffer.sample(200).obs.numpy()).any()
