"""What a compile takes from the timing store."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from emmy_eq import loop_ir
from emmy_eq.codegen import schedule
from emmy_eq.codegen.schedule import Schedule
from emmy_eq.errors import InvalidInput
from emmy_eq.extract.store import Store, StoreError, best_row, best_times, default_path
from emmy_eq.extract.targets import Target

T = TypeVar("T")


def stored_row(kernel: loop_ir.Kernel, target: Target) -> Schedule | None:
    """The fastest row that the store knows for ``kernel``; None without a store, or where the row is no longer legal."""
    text = _asked(lambda store, version: best_row(store, loop_ir.identity(kernel), target.name, None, version, _fits(target)), None)
    try:
        row = schedule.parse(text) if text is not None else None
    except InvalidInput:
        return None  # a row of an earlier release's spelling
    if row is None:
        return None
    from emmy_eq.codegen.tune.candidates import legal

    return row if legal(kernel, row, target) else None


def stored_times(target: Target, path: Path | None = None) -> dict[str, float]:
    """Seconds of the kernels that a store knows on ``target``, by identity; without ``path`` of the default one."""
    return _asked(lambda store, version: best_times(store, target.name, version, _fits(target)), {}, path)


def _fits(target: Target) -> Callable[[str], bool]:
    """Accuracies differ in a kernel's Loop IR (sums in order, approximations) but for f32 products of tf32 values, which are a row's atom:
    what was measured so under ``fast`` says nothing of the others."""
    return lambda row: target.contraction_units["f32"] == "tf32" or re.search(r"\bk8\b", row) is None


def _asked(question: Callable[[Store, str], T], otherwise: T, path: Path | None = None) -> T:
    """What the store answers to this release, or ``otherwise`` without one.  A store that cannot be read does not stop a
    compile: it is said on stderr."""
    path = path or default_path()
    if path is None or not path.is_file():
        return otherwise
    from emmy_eq.codegen.tune.software import version  # imported here: a compile without a store does not wait for the tuner

    try:
        with Store(path) as store:
            return question(store, version())
    except StoreError as error:
        print(f"emmy_eq: {error}", file=sys.stderr)
        return otherwise
