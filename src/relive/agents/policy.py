"""A trained policy as one file.

`policy.safetensors` holds the weights and, in its metadata, all that is needed to rebuild the
network: no code is run to read it, and neither the environment nor the buffer is needed (nor is
any of their code imported).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from relive.agents.kinds import agent_config, algorithm_of, new_agent
from relive.errors import InputError, MissingExtraError, ReliveError
from relive.fields import Field
from relive.nn.action_scale import ActionScale

if TYPE_CHECKING:
    from relive.agents.agent import Agent
    from relive.fields import Fields

BEST = "best.safetensors"
POLICY = "policy.safetensors"
FORMAT = "relive-policy-1"


def save_policy(agent: Agent, path: Path | str) -> None:
    """Writes the network by which `agent` acts to `path`, in one step: a file there stays whole."""
    path = Path(path)
    metadata = {
        "format": FORMAT,
        "algorithm": algorithm_of(agent.config),
        "obs": json.dumps(_fields_to_json(agent.obs)),
        **_actions_to_text(agent.actions),
        "agent": json.dumps(dataclasses.asdict(agent.config)),
    }
    # parameters are views of one vector, which the format does not allow
    state = agent.policy.state_dict().items()
    weights = {name: value.to("cpu", copy=True) for name, value in state}
    unfinished = path.with_suffix(".part")
    # into a file of ours: the one that safetensors makes is its owner's alone, whatever the umask
    unfinished.write_bytes(_in_order(require_safetensors().torch.save(weights, metadata)))
    unfinished.replace(path)


def _in_order(file: bytes) -> bytes:
    """A safetensors file with its metadata sorted, which the package writes in any order.

    So equal policies are equal files.
    """
    start = 8 + int.from_bytes(file[:8], "little")  # of the tensors, behind length and header
    header = json.loads(file[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors are aligned
    return len(text).to_bytes(8, "little") + text + file[start:]


def load_policy(path: Path | str, device: torch.device | str = "cpu") -> Agent:
    """The agent in a run directory, or in a file, ready to act; networks that only learn are new.

    Args:
        path: A run directory, or its `policy.safetensors`.
        device: Where its network goes.

    Raises:
        InputError: There is no such file, it holds no policy of relive, or is damaged.
        MissingExtraError: safetensors is not installed.
    """
    path = Path(path)
    path = path / POLICY if path.is_dir() else path
    if not path.is_file():
        leaves = "leaves one in its run directory"
        if path.name == BEST:
            leaves = "keeps one, that of the best evaluation on the way, with --eval-every only"
        raise InputError(f"there is no policy at {path}; `relive train` {leaves}")
    metadata, weights = _read(path)
    if metadata.get("format") != FORMAT:
        raise InputError(
            f"{path} does not hold a policy of this version: expected format {FORMAT}, "
            f"found {metadata.get('format')}"
        )
    try:
        agent = new_agent(
            agent_config(metadata["algorithm"], json.loads(metadata["agent"])),
            _fields_from_json(json.loads(metadata["obs"])),
            _actions_from_text(metadata),
            device=device,
        )
        agent.policy.load_state_dict(weights)
    except ReliveError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        what = " ".join(str(error).split())[:200]
        raise InputError(f"the policy in {path} cannot be read: {what}") from None
    return agent


def _read(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Metadata and weights."""
    safetensors = require_safetensors()
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
    except safetensors.SafetensorError as error:
        raise InputError(f"{path} is not a safetensors file: {error}") from None


def require_safetensors() -> Any:
    """The package that a policy is written with.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import safetensors.torch
    except ImportError:
        raise MissingExtraError("safetensors", extra="train") from None
    return safetensors


def _actions_to_text(actions: int | ActionScale) -> dict[str, str]:
    if isinstance(actions, int):
        return {"num_actions": str(actions)}
    return {"low": json.dumps(actions.low.tolist()), "high": json.dumps(actions.high.tolist())}


def _actions_from_text(metadata: Mapping[str, str]) -> int | ActionScale:
    if "num_actions" in metadata:
        return int(metadata["num_actions"])
    return ActionScale(json.loads(metadata["low"]), json.loads(metadata["high"]))


def _fields_to_json(fields: Field | Fields) -> dict[str, Any]:
    if isinstance(fields, Mapping):
        return {"dict": {name: _fields_to_json(entry) for name, entry in fields.items()}}
    return {"shape": list(fields.shape), "dtype": str(fields.dtype).removeprefix("torch.")}


def _fields_from_json(plain: dict[str, Any]) -> Field | Fields:
    if "dict" in plain:
        return {name: _fields_from_json(entry) for name, entry in plain["dict"].items()}
    return Field(tuple(plain["shape"]), getattr(torch, plain["dtype"]))
