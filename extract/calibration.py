"""What a GPU sustains, beside the peaks that its maker publishes, as ``emmy-eq targets calibrate`` measures it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from emmy_eq.errors import InvalidInput
from emmy_eq.text import quantity, table

FILE = "targets.json"  # beside the timing store

# What is measured, a second: the unit in which it is printed.  The products are of large matrices, by the type of their operands.
FIGURES = {"DRAM": "B/s", "L2": "B/s", "fma": "FLOP/s", "exp2": "/s", "f32": "FLOP/s", "f16": "FLOP/s", "bf16": "FLOP/s"}


@dataclass(frozen=True, slots=True)
class Calibration:
    """``sustained``: see `FIGURES`; ``launch_seconds``: of an empty kernel in a CUDA graph, ``host_launch_seconds``: called from Python;
    ``at``: ISO 8601, UTC; ``emmy_eq``: the version of the code generator."""

    target: str
    device: str
    sustained: Mapping[str, float]
    launch_seconds: float
    host_launch_seconds: float
    at: str
    emmy_eq: str


def path_beside(store: Path) -> Path:
    return store.parent / FILE


def read(path: Path) -> Mapping[str, Calibration]:
    """By target; nothing where there is no file.  Raises `InvalidInput` for a file that is something else."""
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return {}


@cache
def _read(path: Path, changed: int) -> Mapping[str, Calibration]:
    """``changed``: when the file was written, so that a new one is read anew."""
    try:
        return {name: Calibration(**record) for name, record in json.loads(path.read_text()).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(str(path), f"it is no record of `emmy-eq targets calibrate`: {error}") from error


def keep(path: Path, made: Calibration) -> None:
    """Add to the file; written beside and moved, so that a reader sees the old file or the new one."""
    found = {name: asdict(c) for name, c in read(path).items()} | {made.target: asdict(made)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(found, file, indent=1)
    os.replace(file.name, path)


def show(found: Calibration, published: Mapping[str, float]) -> str:
    """What was measured of a device beside what is ``published``, by the names of `FIGURES`."""
    pairs = ((name, unit, published[name], found.sustained[name]) for name, unit in FIGURES.items())
    rows = [[name, quantity(peak, unit), quantity(reached, unit), f"{100 * reached / peak:.0f} %"] for name, unit, peak, reached in pairs]
    launch = f"launch: {found.launch_seconds * 1e6:.2f} us in a CUDA graph, {found.host_launch_seconds * 1e6:.2f} us called from Python"
    return f"{found.target} on {found.device}, {found.at}\n\n{table(['a second', 'published', 'measured', 'share'], rows)}\n\n{launch}"
