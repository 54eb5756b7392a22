"""Episodes and histograms on small numbers."""

import numpy as np
import pytest
import torch

from relive.training.measure import Episodes, priority_histogram
from relive.training.records import EpisodeEnded


def test_episodes_are_told_with_their_return_and_length():
    episodes = Episodes(2)
    ended = [(False, False), (True, False), (False, True), (True, True)]
    told = [
        list(episodes.add(np.array([1.0, 10.0]), np.array(pair), step=2 * (t + 1)))
        for t, pair in enumerate(ended)
    ]
    assert told == [
        [],
        [EpisodeEnded(step=4, env=0, episode_return=2.0, length=2)],
        [EpisodeEnded(step=6, env=1, episode_return=30.0, length=3)],
        [
            EpisodeEnded(step=8, env=0, episode_return=2.0, length=2),
            EpisodeEnded(step=8, env=1, episode_return=10.0, length=1),
        ],
    ]


def test_priorities_are_counted_on_a_logarithmic_scale():
    priorities = torch.tensor([0.0, 0.02, 0.5, 0.5, 5.0])
    edges, counts = priority_histogram(priorities, bins=3)
    assert edges == pytest.approx([0.01, 0.1, 1.0, 10.0])
    assert counts == [1, 2, 1]


@pytest.mark.parametrize("priorities", [[1.0, 1.0], [0.0, 0.0]], ids=["all alike", "all 0"])
def test_priorities_without_spread_have_a_histogram_too(priorities):
    edges, counts = priority_histogram(torch.tensor(priorities), bins=4)
    assert len(edges) == 5
    assert edges == sorted(set(edges))
    assert sum(counts) == sum(priority > 0 for priority in priorities)


def test_rows_that_have_no_error_yet_are_in_no_bin():
    _, counts = priority_histogram(torch.tensor([float("inf"), 1.0, 0.0, float("inf")]), bins=4)
    assert sum(counts) == 1
