"""Emission of Kernel IR: fresh names, nested loops, and statements that move out of loops they do not depend on.

A *level* is a nesting of loops.  What does not depend on a loop's variable is emitted before that loop, because the
statement lists of all open levels grow at the same time.  What was computed at a level is remembered there, and
forgotten when the loop ends: registers of a loop's body are not visible after it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.kernel_ir import Atom, Lit
from emmy_eq.codegen.lower.layout import Fragment, coordinates, join
from emmy_eq.index import Idx
from emmy_eq.terms import to_bits

ZERO = ix.const(0)


def literal(dtype: str, value: float | int | bool) -> Lit:
    return Lit(dtype, to_bits(dtype, value))


@dataclass(slots=True)
class Level:
    variables: frozenset[str]
    stmts: list[k.Stmt] = field(default_factory=list)
    memo: dict[Hashable, Any] = field(default_factory=dict)


class Builder:
    """A kernel in the making.  ``taken``: names that its buffers have."""

    def __init__(self, threads: int, taken: Container[str] = ()) -> None:
        self.taken = taken
        self.extents: dict[str, int] = {"tid": threads}
        self.threads = threads
        self.levels: list[Level] = [Level(frozenset())]
        self.shared: list[k.Shared] = []
        self.scratch: list[k.Param] = []
        self._count: dict[str, int] = {}

    def fresh(self, prefix: str) -> str:
        n = self._count[prefix] = self._count.get(prefix, -1) + 1
        name = f"{prefix}{n}"
        return name if name not in self.taken else self.fresh(prefix)

    def emit(self, stmt: k.Stmt) -> None:
        self.levels[-1].stmts.append(stmt)

    # -- levels ---------------------------------------------------------------------------------------------------

    def level_of(self, *parts: Idx) -> int:
        """The innermost level whose variable ``parts`` name."""
        names = frozenset().union(*(ix.variables(p) for p in parts)) if parts else frozenset()
        for n in range(len(self.levels) - 1, 0, -1):
            if self.levels[n].variables & names:
                return n
        return 0

    def here(self, name: str) -> None:
        """What depends on register ``name`` stays in the loop at hand."""
        self.levels[-1].variables |= {name}

    @contextmanager
    def at(self, level: int) -> Iterator[None]:
        """Emit before the loops deeper than ``level``."""
        deeper, self.levels = self.levels[level + 1 :], self.levels[: level + 1]
        try:
            yield
        finally:
            self.levels = self.levels + deeper

    @contextmanager
    def loop(
        self, var: str, count: int, unroll: int = 1, stop: Idx | None = None, start: Idx = ZERO, also: Collection[str] = ()
    ) -> Iterator[None]:
        """``for var in range(count)`` (or from ``start`` up to ``stop``, at most count) around what is emitted within.  ``also``: registers
        made there of ``var``."""
        self.extents[var] = count
        self.levels.append(Level(frozenset({var, *also})))
        yield
        level = self.levels.pop()
        self.emit(k.For(var, start, ix.const(count) if stop is None else stop, 1, tuple(level.stmts), unroll))

    @contextmanager
    def apart(self) -> Iterator[list[k.Stmt]]:
        """What is emitted within goes to a list of its own, for other warps: nothing that is known here is known there."""
        before, self.levels = self.levels, [Level(frozenset())]
        try:
            yield self.levels[0].stmts
        finally:
            self.levels = before

    def find(self, key: Hashable) -> Any:
        """What was remembered under ``key`` at any open level, or None."""
        for level in reversed(self.levels):
            if key in level.memo:
                return level.memo[key]
        return None

    def remember(self, key: Hashable, value: Any) -> None:
        self.levels[-1].memo[key] = value

    # -- statements -----------------------------------------------------------------------------------------------

    def let(self, op: str, dtype: str, *args: Atom) -> str:
        name = self.fresh("v")
        self.emit(k.Let(name, dtype, op, args))
        return name

    def index(self, idx: Idx, dtype: str = "i32") -> Atom:
        """The value of an index expression as a register (or a constant)."""
        idx = self.simplify(idx)
        if idx.op == "const":
            return literal(dtype, idx.value)
        found = self.find(("index", idx, dtype))
        if found is not None:
            return str(found)
        name = self.fresh("n")
        with self.at(self.level_of(idx)):
            self.emit(k.Let(name, dtype, "index", (), idx))
            self.remember(("index", idx, dtype), name)
        return name

    def simplify(self, idx: Idx) -> Idx:
        return ix.simplify(idx, self.extents)

    def bounds(self, idx: Idx) -> tuple[int, int]:
        return ix.bounds(idx, self.extents)

    def array(self, dtype: str, size: int, prefix: str = "s") -> str:
        """A new array in shared memory."""
        name = self.fresh(prefix)
        self.shared.append(k.Shared(name, dtype, size))
        return name

    # -- fragments ------------------------------------------------------------------------------------------------

    def apply(self, op: str, dtype: str, *frags: Fragment) -> Fragment:
        """``op`` at every register coordinate of its arguments' axes."""
        shape = join(*(f.shape() for f in frags))
        atoms: dict[tuple[Atom, ...], Atom] = {}
        out = []
        for point in coordinates(shape):
            args = tuple(f.at(point) for f in frags)
            if args not in atoms:
                atoms[args] = self.let(op, dtype, *args)
            out.append(atoms[args])
        return Fragment(tuple(shape), tuple(shape.values()), tuple(out), dtype)

    def fill(self, atom: Atom, dtype: str, shape: dict[str, int]) -> Fragment:
        n = 1
        for count in shape.values():
            n *= count
        return Fragment(tuple(shape), tuple(shape.values()), (atom,) * n, dtype)

    def declare(self, init: Atom, dtype: str, shape: dict[str, int]) -> Fragment:
        """Mutable registers, one per register coordinate of ``shape``."""
        frag = self.fill(init, dtype, shape)
        names = []
        for atom in frag.atoms:
            names.append(self.fresh("acc"))
            self.emit(k.Declare(names[-1], dtype, atom))
        return Fragment(frag.axes, frag.counts, tuple(names), dtype)

    def assign(self, target: Fragment, op: str, *frags: Fragment) -> None:
        """``target = op frags`` at every register coordinate of ``target``."""
        for point in coordinates(target.shape()):
            self.emit(k.Set(str(target.at(point)), target.dtype, op, tuple(f.at(point) for f in frags)))
