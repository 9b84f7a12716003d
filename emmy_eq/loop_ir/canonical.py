"""What a kernel is, apart from its names: its identity, and how much of what it does."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace

from emmy_eq.loop_ir.grammar import Buffer, Fold, Kernel, Let, Load, Stmt, Store, changed, walk
from emmy_eq.loop_ir.text import show


def identity(kernel: Kernel) -> str:
    """SHA-256 (hex) of the kernel's text with its buffers called a, b, ... in order of their first access.

    Axes and values are numbered by construction (`emmy_eq.extract.loops`), so the text depends on nothing else.
    """
    names = {name: _letters(i) for i, name in enumerate(_buffers(kernel))}
    return hashlib.sha256(show(rename(kernel, names, "k")).encode()).hexdigest()


def match(first: Kernel, second: Kernel) -> dict[str, str]:
    """Of two kernels with one identity: for each buffer of ``first`` the one that takes its place in ``second``."""
    return dict(zip(_buffers(first), _buffers(second), strict=True))


def _buffers(kernel: Kernel) -> list[str]:
    """Their names in order of first access, then those that are not accessed."""
    accessed = (s.buffer for s in walk(kernel.body) if isinstance(s, Load | Store))
    return list(dict.fromkeys((*accessed, *(b.name for b in (*kernel.inputs, *kernel.outputs)))))


def _letters(n: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    head = _letters(n // 26 - 1) if n >= 26 else ""
    return head + chr(ord("a") + n % 26)


def rename(kernel: Kernel, names: dict[str, str], called: str) -> Kernel:
    """The kernel with its buffers renamed, parameters in the order of ``names``."""
    place = {new: i for i, new in enumerate(names.values())}

    def buffers(bs: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(sorted((replace(b, name=names[b.name]) for b in bs), key=lambda b: place[b.name]))

    def renamed(stmt: Stmt) -> Stmt:
        return replace(stmt, buffer=names[stmt.buffer]) if isinstance(stmt, Load | Store) else stmt

    return Kernel(called, buffers(kernel.inputs), buffers(kernel.outputs), changed(kernel.body, renamed))


def ops(kernel: Kernel) -> dict[str, int]:
    """How often each operation stands in the kernel's text, by name: ``load``, ``store``, rows of the op table, and ``cast``;
    carries count under their monoid or twist.  Constants and positions are not counted."""
    count: Counter[str] = Counter()
    for stmt in walk(kernel.body):
        if isinstance(stmt, Load):
            count["load"] += 1
        elif isinstance(stmt, Store):
            count["store"] += 1
        elif isinstance(stmt, Let) and stmt.op not in ("lit", "iota"):
            count[stmt.op] += 1
        elif isinstance(stmt, Fold):
            count.update(c.name for c in stmt.carries)
    return dict(sorted(count.items()))
