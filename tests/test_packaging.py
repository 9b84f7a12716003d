"""The wheel holds the tree and nothing else; imports follow the one-way arrow; what is imported is declared."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
LINKED = ("rules", "extract", "codegen")


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def sources() -> Iterator[tuple[str, Path]]:
    """(path inside the installed package, file) of every source file."""
    for folder, prefix in [(ROOT / "emmy_eq", "emmy_eq"), *((ROOT / d, f"emmy_eq/{d}") for d in LINKED)]:
        for file in sorted(folder.rglob("*.py")):
            inside = file.relative_to(folder)
            if not (folder.name == "emmy_eq" and inside.parts[0] in LINKED):
                yield f"{prefix}/{inside.as_posix()}", file


def imports(file: Path) -> set[str]:
    """Modules that ``file`` names in import statements, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_wheel_equals_tree(tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "emmy_eq", *LINKED):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=copy, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    expected = {name: file.read_bytes() for name, file in sources()} | {"emmy_eq/py.typed": b""}
    for name in ("rules/certificates.json", "emmy_eq/explore/page.css"):
        expected[f"emmy_eq/{name.removeprefix('emmy_eq/')}"] = (ROOT / name).read_bytes()
    assert packed.keys() == expected.keys()
    assert packed == expected


@pytest.mark.parametrize("name", LINKED)
def test_linked_packages_have_one_name(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"import emmy_eq.{name}, not {name}" in done.stderr


def test_imports_are_absolute_and_follow_the_arrow() -> None:
    """emmy_eq <- rules <- extract <- codegen; the pipeline sees all four, and so do the tools that stand on it."""
    tools = (
        "pipeline.py",
        "cli.py",
        "options.py",
        "report.py",
        "demo.py",
        "accuracy.py",
        "catalogue.py",
        "extensions.py",
        "tuning.py",
        "explore/",
        "testing/",
    )
    order = {"rules": 1, "extract": 2, "codegen": 3}
    against = []
    for name, file in sources():
        if name.startswith(tuple(f"emmy_eq/{tool}" for tool in tools)):
            continue
        level = order.get(name.split("/")[1], 0)
        for module in imports(file):
            parts = module.split(".")
            if parts[0] == "emmy_eq" and order.get((*parts, "")[1], 0) > level:
                against.append(f"{name} imports {module}")
    assert against == []


def test_third_party_imports_are_declared() -> None:
    distributions = {"cupy_backends": "cupy", "z3": "z3-solver", "setuptools": "setuptools"}
    declared = [*project()["project"]["dependencies"]]
    for extra in project()["project"]["optional-dependencies"].values():
        declared += extra
    text = " ".join(declared)
    own = {"emmy_eq", "bench", "tests", *sys.stdlib_module_names}
    missing = set()
    for name, file in sources():
        for top in {module.split(".")[0] for module in imports(file)} - own:
            if distributions.get(top, top) not in text:
                missing.add(f"{name} imports {top}")
    assert missing == set()


def test_constraints_satisfy_the_ranges() -> None:
    """Every pinned distribution is one that pyproject names (an orphan would pin nothing)."""
    text = (ROOT / "pyproject.toml").read_text()
    pins = [line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [pin for pin in pins if f'"{pin}' not in text] == []
