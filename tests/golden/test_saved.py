"""Buffers that earlier versions saved are loaded as they were."""

import json

import pytest

from relive import ReplayBuffer
from relive.storage.saving import FORMAT
from tests.golden.saved import FOLDER, seen

FORMATS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def test_there_is_a_folder_for_every_format():
    assert [str(number) for number in range(1, FORMAT + 1)] == FORMATS


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize("kernels", ["cpu", "reference"])
def test_a_buffer_saved_in_any_format_is_loaded_and_goes_on_as_it_did(number, kernels):
    buffer = ReplayBuffer.load(FOLDER / number, kernels=kernels)
    buffer.check()
    expected = json.loads((FOLDER / f"{number}.json").read_text())
    found = seen(buffer)
    later = found["stats"].keys() - expected["stats"].keys()  # counters that came later
    found["stats"] = {name: found["stats"][name] for name in expected["stats"]}
    assert found == expected
    assert later == {
        *("effective_sample_size", "priority_entropy", "empty_samples", "evicted_rows")
    }
