"""Which agents are named for the actions of an environment."""

from types import SimpleNamespace

import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from relive.errors import ConfigError
from relive.training.algorithms import actions_of

WRAP = "no agent takes such actions: gymnasium.wrappers.TransformAction makes them"


@pytest.mark.parametrize(
    ("algorithm", "space", "said"),
    [
        ("sac", Discrete(3), "for numbered actions: dqn, c51, rainbow$"),
        ("dqn", Box(-1, 1, (2,)), "for continuous actions: ddpg, td3, sac, rlpd$"),
        ("dqn", Discrete(3, start=1), WRAP),
        ("sac", Discrete(3, start=1), WRAP),
        ("sac", MultiDiscrete([2, 3]), WRAP),
        ("td3", MultiBinary(4), WRAP),
        ("sac", Box(0, 9, (2,), int), WRAP),
        ("ddpg", Box(-float("inf"), float("inf"), (2,)), WRAP),
    ],
    ids=str,
)
def test_agents_are_named_that_take_the_actions_or_the_way_to_others(algorithm, space, said):
    with pytest.raises(ConfigError, match=f"{algorithm} cannot act there: .*; {said}"):
        actions_of(SimpleNamespace(action_space=space), algorithm)
