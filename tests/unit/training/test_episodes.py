"""Sums over episodes on the device."""

import numpy as np
import torch

from relive.training.episodes import DeviceEpisodes
from relive.training.measure import Episodes
from relive.training.records import EpisodesEnded
from tests.triton.waits import no_waits

CPU = torch.device("cpu")


def test_episodes_that_ended_are_summed_up_between_two_looks():
    episodes = DeviceEpisodes(2, CPU)
    reward = torch.tensor([1.0, 10.0])
    for ended in [(False, False), (True, False), (False, True), (True, False)]:
        episodes.add(reward, torch.tensor(ended))
    assert episodes.take(8) == EpisodesEnded(
        step=8,
        episodes=3,
        mean_return=34 / 3,  # 2, 30 and 2
        least_return=2.0,
        largest_return=30.0,
        mean_length=7 / 3,
        least_length=2,
        largest_length=3,
    )
    assert episodes.take(10) is None
    episodes.add(reward, torch.tensor([False, True]))
    again = episodes.take(12)
    assert (again.episodes, again.mean_return, again.largest_length) == (1, 20.0, 2)
    assert episodes.ended == 4


def test_they_are_those_that_are_told_one_by_one():
    rng = np.random.default_rng(0)
    ours, theirs, told = DeviceEpisodes(5, CPU), Episodes(5), []
    for step in range(200):
        reward, ended = rng.normal(size=5).astype(np.float32), rng.random(5) < 0.1
        ours.add(torch.from_numpy(reward), torch.from_numpy(ended))
        told += theirs.add(reward, ended, step)
    summary = ours.take(200)
    returns = [one.episode_return for one in told]
    assert summary.episodes == len(told) == theirs.ended
    assert np.isclose(summary.mean_return, np.mean(returns), rtol=1e-12)
    assert (summary.least_return, summary.largest_return) == (min(returns), max(returns))


def test_a_step_waits_for_nothing_and_a_saved_one_goes_on():
    episodes, other = DeviceEpisodes(3, CPU), DeviceEpisodes(3, CPU)
    reward, ended = torch.ones(3), torch.tensor([True, False, False])
    with no_waits():
        episodes.add(reward, ended)
    other.load_state_dict(episodes.state_dict())
    for one in (episodes, other):
        one.add(reward, ~ended)
    assert episodes.take(6) == other.take(6)
