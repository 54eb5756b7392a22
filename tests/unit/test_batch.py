"""The batch and its arena."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch

from relive import Field, InputError, ReplayBuffer
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


def through_torch(batch):
    file = io.BytesIO()
    torch.save(batch, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda batch: pickle.loads(pickle.dumps(batch)), through_torch],
    ids=["deepcopy", "pickle", "torch.save"],
)
def test_a_copy_has_all_fields_and_memory_of_its_own(batch, copied):
    batch.obs["image"][0] = 7  # what is there now is what is copied
    same = copied(batch)
    assert (len(same), same.keys(), same.device) == (len(batch), batch.keys(), batch.device)
    for name in batch.keys():  # noqa: SIM118 - it is no mapping
        for mine, theirs in zip(leaves(same[name]), leaves(batch[name]), strict=True):
            assert torch.equal(mine, theirs)
    before = same.reward.clone()
    batch.reward.add_(1)
    assert torch.equal(same.reward, before)


def leaves(field):
    return list(field.values()) if isinstance(field, dict) else [field]


@pytest.mark.parametrize(
    "read",
    [
        list,
        lambda batch: batch[0],
        lambda batch: batch[:3],
        lambda batch: batch["obs", 1],
        lambda batch: dict(zip("ab", batch, strict=False)),
        np.asarray,
    ],
    ids=["list", "row", "rows", "keys", "zip", "NumPy"],
)
def test_a_batch_is_no_sequence_and_says_how_it_is_read(batch, read):
    with pytest.raises(InputError, match=r"by the names of its fields: batch\.obs or batch\['obs'"):
        read(batch)


def test_a_batch_knows_the_names_it_has(batch):
    assert "obs" in batch
    assert "done" not in batch
    assert 0 not in batch
    assert {**batch}.keys() == dict(batch).keys() == set(batch.keys())
