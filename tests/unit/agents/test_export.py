"""A policy that PyTorch runs by itself."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from relive import Field
from relive.agents import export_policy, save_policy
from relive.cli.main import main
from relive.errors import ConfigError
from tests.unit.agents.batches import values
from tests.unit.agents.kinds import KINDS, make, rows_for

OBS = {
    "vector": Field((4,)),
    "image": Field((10, 10, 2), torch.uint8),
    "dict": {"b": Field((3,)), "a": {"eye": Field((10, 10, 1), torch.uint8), "on": Field((2,))}},
}
SETTINGS = [
    *((kind, {}) for kind in KINDS),
    ("dqn", {"dueling": True}),
    ("c51", {"dueling": True, "noisy_sigma": 0.5}),
]


def as_numpy(obs):
    if isinstance(obs, dict):
        return {name: as_numpy(entry) for name, entry in obs.items()}
    return np.asarray(obs)


@pytest.mark.parametrize("obs", OBS)
@pytest.mark.parametrize(("kind", "settings"), SETTINGS, ids=str)
def test_an_exported_policy_acts_as_the_agent_on_any_number_of_observations(
    kind, settings, obs, tmp_path
):
    field = OBS[obs]
    agent = make(kind, field, **settings)
    agent.update(rows_for(kind, obs=field).sample(16))  # noisy layers have noise now
    export_policy(agent, tmp_path / "policy.pt2")
    policy = torch.export.load(tmp_path / "policy.pt2").module()
    for rows in (1, 2, 33):
        seen = values(field, rows, torch.Generator().manual_seed(rows))
        expected = torch.from_numpy(agent.act_greedy(as_numpy(seen)))
        assert torch.equal(policy(seen), expected)
        assert policy(seen).dtype == expected.dtype


def test_an_agent_acts_and_learns_on_after_it_was_exported(tmp_path):
    agent, twin = make("c51", noisy_sigma=0.5), make("c51", noisy_sigma=0.5)
    seen = np.zeros((8, 4), np.float32)
    for one in (agent, twin):
        one.act(seen, 0.0)  # draws noise
    export_policy(agent, tmp_path / "policy.pt2")
    assert agent.act(seen, 0.0).tolist() == twin.act(seen, 0.0).tolist()
    results = [one.update(rows_for("c51").sample(16)).td_error for one in (agent, twin)]
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("name", "said"), [("policy.onnx", r"ends in \.pt2"), ("missing/policy.pt2", "no folder")]
)
def test_a_file_that_cannot_be_written_is_refused(tmp_path, name, said):
    with pytest.raises(ConfigError, match=said):
        export_policy(make("dqn"), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


ALONE = """
import sys, torch
policy = torch.export.load(sys.argv[1]).module()
print(policy(torch.zeros(3, 4)).tolist())
print([name for name in sys.modules if name.startswith(("relive", "numba"))])
"""


def test_the_command_leaves_a_file_that_needs_pytorch_alone(tmp_path, capsys):
    agent = make("sac")
    save_policy(agent, tmp_path / "policy.safetensors")
    assert main(["export", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'policy.pt2'}\n"
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path / "policy.pt2")],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = agent.act_greedy(np.zeros((3, 4), np.float32)).tolist()
    assert done.stdout.splitlines() == [str(expected), "[]"]
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "b.pt2")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "policy.safetensors",
        "policy.pt2",
        "b.pt2",
    }
