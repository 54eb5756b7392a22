"""The results as a page in Markdown.

PYTHONPATH=src python -m benchmarks.gpu.page benchmarks/results/gpu.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def page(results: dict[str, Any]) -> str:
    """Goals first, then what failed, then every section."""
    machine = results.get("machine", {})
    failed = {name: s for name, s in results["sections"].items() if not s["ok"]}
    lines = [
        f"# On {machine.get('gpu', machine.get('device', 'a device'))}",
        "",
        f"{results.get('date')}, commit {results.get('commit')}, {results.get('seconds')} s. "
        + ", ".join(f"{name} {value}" for name, value in machine.items() if name != "gpu")
        + ". Times are medians, in µs.",
        "",
        "| goal | wanted | measured | |",
        "| --- | ---: | ---: | --- |",
        *(_goal(goal) for goal in results.get("goals", [])),
    ]
    for name, section in failed.items():
        reason = section.get("error", section.get("left_out"))
        lines += ["", f"**{name}**: {reason}"]
        if "traceback" in section:
            lines += ["", "```text", section["traceback"].rstrip(), "```"]
    for name, section in results["sections"].items():
        if section["ok"]:
            lines += ["", f"## {name}", "", *_section(section)]
    return "\n".join(lines) + "\n"


def _goal(goal: dict[str, Any]) -> str:
    measured = "not measured" if goal["measured"] is None else shown(goal["measured"])
    met = "met" if goal["met"] else "**not met**"
    return f"| {goal['goal']} | {goal['wanted']} | {measured} | {met} |"


def _section(section: dict[str, Any]) -> list[str]:
    """Numbers in a line, and what has parts of its own in tables."""
    plain = {k: v for k, v in section.items() if k != "ok" and not isinstance(v, dict)}
    lines = [", ".join(f"{name.replace('_', ' ')} {shown(v)}" for name, v in plain.items())]
    rows = {name: value for name, value in section.items() if isinstance(value, dict)}
    deep = {n: v for n, v in rows.items() if any(isinstance(x, dict) for x in v.values())}
    flat = {name: value for name, value in rows.items() if value and name not in deep}
    for name, inner in deep.items():
        lines += ["", f"{name}:", "", *_table(inner)]
    return [*lines, "", *_table(flat)] if flat else lines


def _table(rows: dict[str, Any]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    return [
        "| | " + " | ".join(column.replace("_", " ") for column in columns) + " |",
        "| --- |" + " ---: |" * len(columns),
        *(
            f"| {name} | " + " | ".join(shown(row.get(column, "")) for column in columns) + " |"
            for name, row in rows.items()
        ),
    ]


def shown(value: Any) -> str:
    """A number with four digits.

    >>> shown(12.34567), shown(0.00002345), shown(1234567), shown("a")
    ('12.35', '2.345e-05', '1,234,567', 'a')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), end="")
