"""The batch and its arena."""

import pytest
import torch

from relive import Field, ReplayBuffer
from relive.batch import BatchLayout
from relive.fields import RowLayout

FIELDS = {
    "obs": {"image": Field((2, 3), torch.uint8), "pose": Field((2,), torch.float64)},
    "action": Field((), torch.int64),
    "log_prob": Field((), torch.bfloat16),
}


@pytest.fixture
def batch():
    buffer = ReplayBuffer(10, FIELDS)
    for t in range(5):
        obs = {"image": torch.full((2, 3), t, dtype=torch.uint8), "pose": [t, t + 0.5]}
        buffer.add(
            obs=obs,
            action=t,
            reward=float(t),
            next_obs=obs,
            terminated=t == 4,
            truncated=False,
            log_prob=-t,
        )
    return buffer.sample(7)


def test_a_batch_has_the_shapes_and_dtypes_of_its_fields(batch):
    shapes = {
        "action": ((7,), torch.int64),
        "reward": ((7,), torch.float32),
        "terminated": ((7,), torch.bool),
        "truncated": ((7,), torch.bool),
        "discount": ((7,), torch.float32),
        "weights": ((7,), torch.float32),
        "ids": ((7,), torch.int64),
        "log_prob": ((7,), torch.bfloat16),
    }
    for name, (shape, dtype) in shapes.items():
        assert (tuple(batch[name].shape), batch[name].dtype) == (shape, dtype), name
    for obs in (batch.obs, batch.next_obs):
        assert (tuple(obs["image"].shape), obs["image"].dtype) == ((7, 2, 3), torch.uint8)
        assert (tuple(obs["pose"].shape), obs["pose"].dtype) == ((7, 2), torch.float64)
    assert set(batch.keys()) == {*shapes, "obs", "next_obs"}
    assert len(batch) == 7


def test_all_fields_of_a_row_belong_together(batch):
    t = batch.ids
    assert torch.equal(batch.action, t)
    assert torch.equal(batch.reward, t.float())
    assert torch.equal(batch.log_prob, -t.bfloat16())
    assert torch.equal(batch.obs["image"], t.to(torch.uint8)[:, None, None].expand(7, 2, 3))
    assert torch.equal(batch.next_obs["pose"], torch.stack([t, t + 0.5], 1).double())
    assert torch.equal(batch.terminated, t == 4)
    assert torch.equal(batch.discount, torch.where(t == 4, 0.0, 0.99))


def test_every_field_is_a_view_of_one_arena(batch):
    storage = batch.ids.untyped_storage().data_ptr()
    leaves = [batch.reward, batch.obs["image"], batch.next_obs["pose"], batch.weights]
    assert {leaf.untyped_storage().data_ptr() for leaf in leaves} == {storage}
    assert all(leaf.is_contiguous() for leaf in leaves)


def test_a_batch_on_its_own_device_is_itself_and_elsewhere_a_copy(batch):
    assert batch.to("cpu") is batch
    assert batch.to("meta").obs["image"].shape == (7, 2, 3)
    assert batch.device == torch.device("cpu")
    assert batch.to("meta").device == torch.device("meta")


def test_an_unknown_field_is_named_with_those_there_are(batch):
    with pytest.raises(AttributeError, match="no field 'done'"):
        batch.done  # noqa: B018 - the access is the test
    with pytest.raises(AttributeError, match=r"'rewards'; did you mean 'reward'\? There are: obs"):
        batch.rewards  # noqa: B018 - the access is the test
    with pytest.raises(KeyError, match="there are: obs"):
        batch["done"]
    assert "log_prob" in repr(batch)


def test_offsets_are_cache_lines_in_the_order_of_the_columns():
    layout = BatchLayout(RowLayout({"obs": Field((3,)), "action": Field()}))
    offsets = layout.offsets(10)
    assert list(offsets.values())[:4] == [0, 128, 192, 256]  # 80, 40, 40, 40 bytes rounded up
    assert layout.arena_bytes(10) == max(offsets.values()) + 128  # the next observation: 120 bytes
