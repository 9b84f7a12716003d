"""JSON lines: one measurement a line, so that stores of several machines merge by concatenation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.store.record import from_line, to_line
from emmy_eq.extract.store.store import Store


def export_lines(store: Store, file: TextIO) -> int:
    """Write every measurement, oldest first; returns how many."""
    found = store.all()
    file.writelines(f"{to_line(m)}\n" for m in found)
    return len(found)


def import_lines(store: Store, lines: Iterable[str]) -> int:
    """Add all measurements or, where a line is none, no one; returns how many were new.  Raises `InvalidInput` with the line's number."""
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(from_line(line))
        except InvalidInput as error:
            raise InvalidInput(f"line {number}", str(error)) from error
    return store.add(*found)
