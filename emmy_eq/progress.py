"""What the command line is busy with, on the last line of a terminal; silent where standard error is none."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_NAMES = {"import_torch": "importing torch", "torch_ir": "capturing", "egraph": "saturating the e-graph", "plan": "searching plans"}
_OFTEN = 0.1  # seconds between two notes
_open: list[str] = []
_last = 0.0


def watch(name: str, begins: bool) -> None:
    """Stage ``name`` begins or ends; while a stage that it asked for is in progress, that one is shown."""
    if begins:
        _open.append(_NAMES.get(name, name))
    else:
        _open.pop()
    _show(" ...")


def note(how_far: str) -> None:
    """How far the stage in progress is; nothing where no command line is watching."""
    global _last
    if _open and time.monotonic() > _last + _OFTEN:
        _last = time.monotonic()
        _show(f": {how_far}")


def _show(rest: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{_open[-1]}{rest}" if _open else "\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def doing(name: str) -> Iterator[None]:
    """``name`` is in progress inside of the block."""
    watch(name, True)
    try:
        yield
    finally:
        watch(name, False)
