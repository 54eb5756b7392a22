"""The public names."""

import subprocess
import sys

import pytest

import relive

NAMES = [
    "Batch",
    "ConfigError",
    "CorruptError",
    "DeviceLostError",
    "Episode",
    "Field",
    "Hindsight",
    "InputError",
    "Linear",
    "MemoryPlan",
    "MetricMeans",
    "MissingExtraError",
    "Mixture",
    "NotReadyError",
    "Proportional",
    "RankBased",
    "Recent",
    "ReliveError",
    "ReplayBuffer",
    "TrajectoryStore",
    "Uniform",
    "UnsupportedError",
    "fields_of",
    "plan",
    "warm_up",
]


def test_the_public_names_are_these_and_no_others():
    assert relive.__all__ == NAMES
    assert sorted(name for names in relive.HOMES.values() for name in names) == NAMES
    assert all(getattr(relive, name).__name__ == name for name in NAMES)
    assert set(NAMES) <= set(dir(relive))


def test_a_name_that_is_none_is_refused():
    with pytest.raises(AttributeError, match="has no attribute 'Buffer'"):
        relive.Buffer  # noqa: B018 - the access is the test


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from relive.cli.main import main; main(['--help']); "
        "print('torch' in sys.modules)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert printed.splitlines()[-1] == "False"
