"""Every kernel that any call launches, compiled for GPUs that need not be there.

    python -m tests.triton.compiled.table                  a table
    python -m tests.triton.compiled.table --json 80 90     a line of JSON for each compiled kernel

To try another version of Triton, name the folder it lies in first in PYTHONPATH. A kernel is
compiled once for each set of constants and each alignment of its arguments that the cases come
with.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import triton

from tests.triton.cases import SETTINGS, cases, cuda_operations, used_buffer
from tests.triton.compiled.driver import compiled_launches
from tests.triton.compiled.resources import resources

CAPABILITIES = (80, 90)
COLUMNS = ("registers", "stack", "shared", "fused", "approximate", "float_atomics", "atomics")


def kernels(capability: int) -> list[dict[str, Any]]:
    """One entry for each different kernel that the cases launch."""
    found: dict[str, dict[str, Any]] = {}
    operations = cuda_operations()
    for kind in SETTINGS:
        buffer = used_buffer(kind)
        for case in cases(buffer):
            if case.operation not in operations:
                continue
            with compiled_launches(capability) as compiled:
                case.run(operations, buffer._state)
            for name, warps, constants, code in compiled:
                if code.hash not in found:
                    found[code.hash] = {
                        "kernel": name,
                        "capability": capability,
                        "warps": warps,
                        "constants": {key: str(value) for key, value in constants.items()},
                        "first_seen": f"{kind}: {case.name}",
                        **resources(code)._asdict(),
                    }
    return list(found.values())


def table(entries: list[dict[str, Any]]) -> str:
    """The largest of each number a kernel and capability, in columns."""
    largest: dict[tuple[str, int], dict[str, int]] = {}
    for entry in entries:
        row = largest.setdefault((entry["kernel"], entry["capability"]), {"variants": 0})
        row["variants"] += 1
        row |= {column: max(row.get(column, 0), entry[column]) for column in COLUMNS}
    head = "".join(f"{column:>14}" for column in ("variants", *COLUMNS))
    lines = [
        f"{name:<28} sm_{capability}" + "".join(f"{row[c]:>14}" for c in ("variants", *COLUMNS))
        for (name, capability), row in sorted(largest.items())
    ]
    return "\n".join([f"{'triton ' + triton.__version__:<34}{head}", *lines])


def main(arguments: list[str]) -> None:
    """Prints it."""
    capabilities = [int(word) for word in arguments if word.isdigit()] or CAPABILITIES
    entries = [entry for capability in capabilities for entry in kernels(capability)]
    if "--json" in arguments:
        for entry in entries:
            sys.stdout.write(json.dumps({**entry, "triton": triton.__version__}) + "\n")
    else:
        sys.stdout.write(table(entries) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
