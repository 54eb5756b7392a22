"""What a compiled kernel takes, and which of its instructions do not give the bits of the CPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import triton

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
FUSED = re.compile(r"\bfma\.r[nzmp]\.(ftz\.)?f(32|64)")
APPROXIMATE = re.compile(r"\b(div\.full|\w+\.approx)\b")
FLOAT_ATOMIC = re.compile(r"\b(atom|red)\.[\w.:]*add[\w.:]*\.b?f(16|32|64)")


class Resources(NamedTuple):
    """Of one kernel.

    Attributes:
        registers: A thread.
        stack: Bytes a thread; registers that did not suffice spill there.
        shared: Bytes a program.
        fused, approximate: Instructions that round otherwise than the CPU.
        float_atomics: Sums that depend on their order.
        loads, atomics: Instructions, of each thread.
    """

    registers: int
    stack: int
    shared: int
    fused: int
    approximate: int
    float_atomics: int
    loads: int
    atomics: int


def resources(code: Any) -> Resources:
    """Of what Triton compiled."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code.asm["cubin"])
        file.flush()
        command = [TOOLS / "cuobjdump", "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = {name: int(number) for name, number in re.findall(r"(REG|STACK|SHARED):(\d+)", said)}
    ptx = code.asm["ptx"]
    return Resources(
        registers=used["REG"],
        stack=used["STACK"],
        shared=used["SHARED"] + code.metadata.shared,
        fused=len(FUSED.findall(ptx)),
        approximate=len(APPROXIMATE.findall(ptx)),
        float_atomics=len(FLOAT_ATOMIC.findall(ptx)),
        loads=ptx.count("ld.global"),
        atomics=len(re.findall(r"\b(atom|red)\.", ptx)),
    )
