"""What every kernel takes when compiled for GPUs, with the Triton here and others laid beside it.

Another version is tried if it lies in build/triton-VERSION (`make build/triton-3.6.0`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.triton.cases import cuda_operations

ROOT = Path(__file__).parents[3]
LIMITS = json.loads(Path(__file__).with_name("limits.json").read_text())
VERSIONS = {"installed": None} | {
    folder.name: folder for folder in sorted((ROOT / "build").glob("triton-*"))
}
CAPABILITIES = [80, 90]


@pytest.fixture(scope="module", params=VERSIONS)
def version(request):
    return VERSIONS[request.param]


@pytest.fixture(scope="module", params=CAPABILITIES)
def entries(request, version):
    """Every kernel of every case, as `table` found them in a process of its own."""
    path = [str(version)] if version else []
    path += [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.triton.compiled.table", "--json", str(request.param)],
        env={
            **{name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
            "PYTHONPATH": os.pathsep.join(path),
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


pytestmark = [
    pytest.mark.skipif(not cuda_operations(), reason="there are no kernels yet"),
    pytest.mark.timeout(600),
]


def limit(kernel, name):
    return LIMITS["kernels"].get(kernel, {}).get(name, LIMITS["every kernel"][name])


def test_no_kernel_takes_more_than_its_limits(entries):
    over = [
        f"{entry['kernel']} sm_{entry['capability']} {entry['constants']}, {entry['first_seen']}: "
        f"{entry[name]} {name}, at most {limit(entry['kernel'], name)}"
        for entry in entries
        for name in LIMITS["every kernel"]
        if entry[name] > limit(entry["kernel"], name)
    ]
    assert not over, "\n".join(over)


def test_limits_are_of_kernels_that_exist(entries):
    assert LIMITS["kernels"].keys() <= {entry["kernel"] for entry in entries}
