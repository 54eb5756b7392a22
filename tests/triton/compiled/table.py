"""Every kernel that any call launches, compiled for GPUs that need not be there.

    python -m tests.triton.compiled.table                         a table
    python -m tests.triton.compiled.table --capability 90 --kinds ranks uniform
    python -m tests.triton.compiled.table --json                  a line for each compiled kernel

To try another version of Triton, name the folder it lies in first in PYTHONPATH. A kernel is
compiled once for each set of constants and each alignment of its arguments that the cases come
with.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import triton

from tests.triton.cases import SETTINGS, cases, cuda_operations, used_buffer
from tests.triton.compiled.driver import compiled_launches
from tests.triton.compiled.resources import resources

if TYPE_CHECKING:
    from collections.abc import Iterable

CAPABILITIES = (80, 90)
COLUMNS = ("registers", "stack", "shared", "fused", "approximate", "float_atomics", "atomics")


def kernels(capability: int, kinds: Iterable[str]) -> list[dict[str, Any]]:
    """One entry for each different kernel that the cases of these kinds of buffers launch."""
    found: dict[str, dict[str, Any]] = {}
    operations = cuda_operations()
    for kind in kinds:
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


def main() -> None:
    """Prints it."""
    parser = argparse.ArgumentParser(prog="python -m tests.triton.compiled.table")
    parser.add_argument("--capability", type=int, nargs="*", default=CAPABILITIES)
    parser.add_argument("--kinds", nargs="*", default=list(SETTINGS), help="of buffers; all")
    parser.add_argument("--json", action="store_true", help="a line for each compiled kernel")
    options = parser.parse_args()
    entries = [e for number in options.capability for e in kernels(number, options.kinds)]
    if options.json:
        lines = [json.dumps({**entry, "triton": triton.__version__}) for entry in entries]
        print("\n".join(lines))
    else:
        print(table(entries))


if __name__ == "__main__":
    main()
