"""Pictures inside tables of LeRobot."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from relive import Field, ReplayBuffer
from relive.demos import load, read
from relive.errors import CorruptError, UnsupportedError
from tests.unit.demos import files

SAID = {"last_step": "repeat", "done_means": "terminated"}
NAME = "observation.images.top"


def png(picture):
    out = io.BytesIO()
    Image.fromarray(picture).save(out, format="PNG")
    return out.getvalue()


def with_pictures(folder, contents, shape):
    """A dataset of three frames with these pictures."""
    path = files.lerobot(folder, files.known((3,)))
    file = path / "data/chunk-000/file-000.parquet"
    column = pa.array([{"bytes": content, "path": "frame.png"} for content in contents])
    pq.write_table(pq.read_table(file).append_column(NAME, column), file)
    info = json.loads((path / "meta/info.json").read_text())
    info["features"][NAME] = {"dtype": "image", "shape": shape, "names": None}
    (path / "meta/info.json").write_text(json.dumps(info))
    return path


PICTURES = np.random.default_rng(0).integers(0, 256, (3, 4, 6, 3), np.uint8)


@pytest.mark.parametrize(("shape", "axes"), [([4, 6, 3], (0, 1, 2, 3)), ([3, 4, 6], (0, 3, 1, 2))])
def test_pictures_have_the_shape_that_is_declared(shape, axes, tmp_path):
    path = with_pictures(tmp_path / "a", map(png, PICTURES), shape)
    (episode,) = read(path, **SAID)
    expected = PICTURES.transpose(axes)
    np.testing.assert_array_equal(episode.obs["images"]["top"], expected, strict=True)
    assert episode.obs["state"].shape == (3, 3)
    fields = {"images": {"top": Field(tuple(shape), store=torch.uint8)}, "state": Field((3,))}
    buffer = ReplayBuffer(10, {"obs": fields, "action": Field((2,))})
    load(buffer, path, **SAID)
    assert (buffer.all().obs["images"]["top"] * 255).round().to(torch.uint8).numpy().tolist() == (
        expected.tolist()
    )


@pytest.mark.parametrize(
    ("contents", "kind", "said"),
    [
        ([b"nothing"] * 3, CorruptError, "picture 0 cannot be read"),
        ([*map(png, PICTURES[:2]), png(PICTURES[2, 1:])], CorruptError, "picture 2 has shape"),
        ([None] * 3, CorruptError, "expected the bytes of pictures"),
        ([png(PICTURES[0]), None, None], UnsupportedError, "files of their own are not read"),
        (list(map(png, PICTURES[:, 1:])), CorruptError, "expected .4, 6, 3."),
    ],
)
def test_what_is_no_picture_is_refused(contents, kind, said, tmp_path):
    path = with_pictures(tmp_path / "a", contents, [4, 6, 3])
    with pytest.raises(kind, match=said):
        list(read(path, **SAID))
