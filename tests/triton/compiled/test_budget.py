"""What every kernel takes when compiled for GPUs, with the Triton here and others laid beside it.

Another version is tried if it lies in build/triton-VERSION (`make build/triton-3.6.0`). `make test`
compiles for part of the kinds of buffers, others for each GPU; `make test-long` does for all.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.triton.cases import SETTINGS, cuda_operations

ROOT = Path(__file__).parents[3]
LIMITS = json.loads(Path(__file__).with_name("limits.json").read_text())
VERSIONS = {"installed": None} | {
    folder.name: folder for folder in sorted((ROOT / "build").glob("triton-[0-9]*"))
}
SOME = {
    80: ["proportional, largest now", "ranks", "stacks, many lanes"],
    90: ["uniform, reuse tracked", "proportional", "many lanes", "stacks"],
}

pytestmark = [
    pytest.mark.skipif(not cuda_operations(), reason="there are no kernels yet"),
    pytest.mark.timeout(1800),
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.parametrize("capability", SOME),
]


def compiled(version, capability, kinds):
    """What `table` finds, in a process of its own."""
    folder = VERSIONS[version]
    path = [str(folder)] if folder else []
    path += [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "tests.triton.compiled.table", "--json"]
    done = subprocess.run(
        [*command, "--capability", str(capability), "--kinds", *kinds],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    assert folder is None or {folder.name} == {f"triton-{entry['triton']}" for entry in entries}
    return entries


def limit(kernel, name):
    return LIMITS["kernels"].get(kernel, {}).get(name, LIMITS["every kernel"][name])


def over_the_limits(entries):
    return "\n".join(
        f"{entry['kernel']}, {entry['first_seen']}, {entry['constants']}: "
        f"{entry[name]} {name}, at most {limit(entry['kernel'], name)}"
        for entry in entries
        for name in LIMITS["every kernel"]
        if entry[name] > limit(entry["kernel"], name)
    )


def test_no_kernel_takes_more_than_its_limits(version, capability):
    entries = compiled(version, capability, SOME[capability])
    assert entries
    assert not over_the_limits(entries)


@pytest.mark.long
def test_no_kernel_of_any_buffer_takes_more_than_its_limits(version, capability):
    entries = compiled(version, capability, SETTINGS)
    assert not over_the_limits(entries)
    assert LIMITS["kernels"].keys() <= {entry["kernel"] for entry in entries}
