"""A policy as a file."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from relive import Field
from relive.agents import DQN, DQNConfig
from relive.errors import InputError
from relive.training import load_policy, save_policy
from tests.unit.agents.batches import values


@pytest.mark.parametrize(
    "obs",
    [
        pytest.param(Field((4,)), id="vector"),
        pytest.param(Field((10, 10, 2), torch.bool), id="image"),
        pytest.param({"a": Field((2,)), "b": {"c": Field((3,))}}, id="nested dict"),
    ],
)
@pytest.mark.parametrize("dueling", [False, True])
def test_a_policy_acts_after_loading_as_before_saving(tmp_path, obs, dueling):
    agent = DQN(obs, 5, DQNConfig(hidden=(8,), dueling=dueling), seed=3)
    save_policy(agent, tmp_path / "policy.safetensors")
    loaded = load_policy(tmp_path)
    seen = _as_numpy(values(obs, 32, torch.Generator().manual_seed(0)))
    assert loaded.act_greedy(seen).tolist() == agent.act_greedy(seen).tolist()
    assert (loaded.obs, loaded.num_actions, loaded.config) == (obs, 5, agent.config)


def test_saving_again_replaces_the_file(tmp_path):
    path = tmp_path / "policy.safetensors"
    for actions in (2, 3):
        save_policy(DQN(Field((4,)), actions, DQNConfig(hidden=(8,))), path)
    assert load_policy(path).num_actions == 3
    assert [file.name for file in tmp_path.iterdir()] == ["policy.safetensors"]


def test_what_holds_no_policy_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no policy at"):
        load_policy(tmp_path)
    (tmp_path / "policy.safetensors").write_text("hello")
    with pytest.raises(InputError, match="not a safetensors file"):
        load_policy(tmp_path)
    save_file({"w": torch.zeros(1)}, tmp_path / "policy.safetensors")
    with pytest.raises(InputError, match="expected format relive-policy-1, found None"):
        load_policy(tmp_path)


def _as_numpy(obs):
    if isinstance(obs, dict):
        return {name: _as_numpy(entry) for name, entry in obs.items()}
    return np.asarray(obs)
