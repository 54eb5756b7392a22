"""Nothing in a step makes the host wait or copies from it, told without a GPU.

Operations that wait are refused one level below torch's Python functions: on real tensors, and on
the meta device, where a tensor of the host among the arguments shows as it would on a GPU.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from relive.envs import TORCH_ENVS, make_torch_env
from relive.envs.torch_native import make

WAITS = {
    *("_local_scalar_dense", "item", "is_nonzero", "equal", "allclose"),
    *("nonzero", "nonzero_numpy", "argwhere", "masked_select", "bincount", "multinomial"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave"),
    *("_pin_memory", "scalar_tensor", "lift_fresh", "lift_fresh_copy"),
}


class RefuseWaits(TorchDispatchMode):
    """Raises where an operation waits, indexes by a mask, or takes a tensor of another device."""

    def __init__(self, device):
        super().__init__()
        self.device, self.operations = torch.device(device), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.operations += 1
        name = func.overloadpacket.__name__
        assert name not in WAITS, func
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        assert all(t.device.type == self.device.type for t in tensors), func
        target = kwargs.get("device")
        assert target is None or torch.device(target).type == self.device.type, func
        if name.startswith(("index", "_index")):
            assert not any(t.dtype in (torch.bool, torch.uint8) for t in tensors[1:]), func
        return func(*args, **kwargs)


def actions_for(env):
    field = env.fields["action"]
    return torch.zeros((env.num_envs, *field.shape), dtype=field.dtype, device=env.device)


@pytest.mark.parametrize("env_id", TORCH_ENVS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_and_a_reset_never_wait(env_id, dtype):
    env = make_torch_env(env_id, 3, dtype=dtype)
    env.reset()
    actions = actions_for(env)
    with RefuseWaits("cpu") as mode:
        env.step(actions)
        env.reset()
        env.state_dict()
    assert mode.operations > 100  # it has looked


@pytest.mark.parametrize("env_id", TORCH_ENVS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_on_another_device_takes_nothing_from_the_host(env_id, dtype, monkeypatch):
    monkeypatch.setattr(make, "known_device", torch.device)
    env = make_torch_env(env_id, 3, dtype=dtype, device="meta")
    env.reset()
    actions = actions_for(env)
    with RefuseWaits("meta"):
        obs, *_ = env.step(actions)
        env.reset()
    assert obs.device.type == "meta"


WAITING = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool((x > 0).any()),
    "if": lambda x: 1 if (x > 0).all() else 0,
    "mask": lambda x: x[x > 0],
    "mask assigned": lambda x: x.index_put_((x > 0,), x[:1].sum()),
    "nonzero": lambda x: x.nonzero(),
    "where of one argument": lambda x: torch.where(x > 0),
    "where of a number": lambda x: torch.where(x > 0, 1.0, x),
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "a new constant": lambda x: x + torch.tensor(1.0),
    "to the host": lambda x: x.cpu(),
}


@pytest.mark.parametrize("waiting", WAITING.values(), ids=WAITING)
def test_what_waits_would_be_caught(waiting):
    x = torch.ones(3, device="meta")
    with RefuseWaits("meta"), pytest.raises(AssertionError):
        waiting(x)
