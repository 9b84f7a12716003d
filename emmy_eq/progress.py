"""What the command line is busy with, on the last line of a terminal; silent where standard error is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_NAMES = {"import_torch": "importing torch", "torch_ir": "capturing", "egraph": "saturating the e-graph", "plan": "searching plans"}
_open: list[str] = []


def watch(name: str, begins: bool) -> None:
    """Stage ``name`` begins or ends; while a stage that it asked for is in progress, that one is shown."""
    if begins:
        _open.append(_NAMES.get(name, name))
    else:
        _open.pop()
    if sys.stderr.isatty():
        print(f"\r\x1b[K{_open[-1]} ..." if _open else "\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def doing(name: str) -> Iterator[None]:
    """``name`` is in progress inside of the block."""
    watch(name, True)
    try:
        yield
    finally:
        watch(name, False)
