"""One door per third party: which file of `src` may import what."""

import ast
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "relive"
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

# Package: the files that may import it; "late" means inside a function only.
DOORS = {
    "triton": ["ops/*/cuda.py"],
    "numba": ["ops/*.py"],
    "llvmlite": ["ops/*.py"],
    "gymnasium": ["envs/*.py", "fields.py late", "bench/sides/stable_baselines3.py"],
    "tyro": ["cli/*.py"],
    "rich": ["cli/*.py", "terminal/pieces.py", "training/console.py"],
    "tensorboard": ["training/sinks*.py"],
    "av": ["training/video.py late"],
    "safetensors": ["agents/policy.py"],
    "h5py": ["demos/hdf5.py late"],
    "pyarrow": ["demos/arrow.py late"],
    "PIL": ["demos/images.py late"],
    "minari": ["demos/recording.py late"],
    "matplotlib": ["report/canvas.py", "bench/chart.py"],
    **{peer: [f"bench/sides/{peer}.py"] for peer in ("cpprb", "flashbax", "tianshou", "torchrl")},
    "stable_baselines3": ["bench/sides/stable_baselines3.py"],
    "jax": ["bench/sides/flashbax.py"],
    "tensordict": ["bench/sides/torchrl.py"],
}
OURS = {"relive", "torch", "numpy", *sys.stdlib_module_names}  # any file may import these


def imports(tree: ast.AST, late: bool = False) -> list[tuple[str, bool]]:
    """Dotted names that a file imports, each with whether it does so inside a function."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, late) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(f"{node.module}.{alias.name}", late) for alias in node.names]
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        found += imports(node, late or inside)
    return found


def packages(file: str) -> list[tuple[str, bool]]:
    """The packages that a file imports; TensorBoard also by its door in torch."""
    found = imports(ast.parse((SOURCE / file).read_text(encoding="utf-8")))
    return [
        ("tensorboard" if "tensorboard" in name else name.partition(".")[0], late)
        for name, late in found
    ]


def allowed(package: str, file: str, late: bool) -> bool:
    patterns = [door.split() for door in DOORS.get(package, [])]
    return any(fnmatch(file, pattern) and (late or not must) for pattern, *must in patterns)


@pytest.mark.parametrize("file", FILES)
def test_a_third_party_is_imported_at_its_door_only(file: str) -> None:
    others = [(name, late) for name, late in packages(file) if name not in OURS]
    assert [name for name, late in others if not allowed(name, file, late)] == []


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("report/")])
def test_the_report_reads_files_and_knows_neither_torch_nor_agents(file: str) -> None:
    assert "torch" not in {name for name, _ in packages(file)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch.nn as nn", [("torch.nn", False)]),
        ("from numba import njit", [("numba.njit", False)]),
        ("def f():\n    import gymnasium", [("gymnasium", True)]),
        ("if TYPE_CHECKING:\n    import tyro", []),
        ("try:\n    import tyro\nexcept ImportError:\n    pass", [("tyro", False)]),
        ("class C:\n    def f(self):\n        from rich import box", [("rich.box", True)]),
        ("from . import sibling", []),
    ],
)
def test_imports_are_found_wherever_they_stand(
    source: str, expected: list[tuple[str, bool]]
) -> None:
    assert imports(ast.parse(source)) == expected
