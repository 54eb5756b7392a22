"""A policy as a file."""

import os
import stat
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from relive import Field
from relive.agents import DQN, DQNConfig, load_policy, save_policy
from relive.errors import InputError
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


def test_equal_policies_are_equal_files(tmp_path):
    files = set()
    for number in range(8):  # eight orders of five words are never the same by chance
        agent = DQN(Field((4,)), 2, DQNConfig(hidden=(8,)), seed=3)
        save_policy(agent, tmp_path / f"{number}.safetensors")
        files.add((tmp_path / f"{number}.safetensors").read_bytes())
    assert len(files) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_policy_has_the_mode_of_any_new_file(tmp_path, umask, mode):
    path = tmp_path / "policy.safetensors"
    agent = DQN(Field((4,)), 2, DQNConfig(hidden=(8,)))
    before = os.umask(umask)
    try:
        for _ in range(2):  # also where there was one
            save_policy(agent, path)
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


def test_a_policy_of_the_best_evaluation_is_missing_where_there_was_none(tmp_path):
    save_policy(DQN(Field((4,)), 2, DQNConfig(hidden=(8,))), tmp_path / "policy.safetensors")
    with pytest.raises(InputError, match=r"no policy at .*best.safetensors; .* --eval-every only"):
        load_policy(tmp_path / "best.safetensors")


def test_what_holds_no_policy_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no policy at"):
        load_policy(tmp_path)
    (tmp_path / "policy.safetensors").write_text("hello")
    with pytest.raises(InputError, match="not a safetensors file"):
        load_policy(tmp_path)
    save_file({"w": torch.zeros(1)}, tmp_path / "policy.safetensors")
    with pytest.raises(InputError, match="expected format relive-policy-1, found None"):
        load_policy(tmp_path)


def test_a_damaged_policy_is_refused_with_a_word_on_what_is_wrong(tmp_path):
    path = tmp_path / "policy.safetensors"
    agent = DQN(Field((4,)), 2, DQNConfig(hidden=(8,)))
    save_policy(agent, path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
    for changed in ({"agent": "{}"}, {"algorithm": "ppo"}, {"obs": "[1]"}, {"num_actions": "3"}):
        save_file(weights, path, {**metadata, **changed})
        with pytest.raises(InputError, match=r"the policy in .* cannot be read"):
            load_policy(path)


def test_loading_a_policy_imports_neither_buffer_nor_kernels_nor_environments(tmp_path):
    save_policy(DQN(Field((4,)), 2, DQNConfig(hidden=(8,))), tmp_path / "policy.safetensors")
    program = (
        "import sys; from relive.agents import load_policy; load_policy(sys.argv[1]); "
        "others = {'numba', 'gymnasium', 'relive.buffer', 'relive.ops', 'relive.training'}; "
        "print(sorted(others & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def _as_numpy(obs):
    if isinstance(obs, dict):
        return {name: _as_numpy(entry) for name, entry in obs.items()}
    return np.asarray(obs)
