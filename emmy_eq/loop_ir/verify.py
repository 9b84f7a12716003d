"""The rules of Loop IR, checked: names, scopes, dtypes, bounds, and that parallel iterations write apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from emmy_eq import index as ix
from emmy_eq.errors import VerifyError
from emmy_eq.index import Idx
from emmy_eq.loop_ir.grammar import Axis, Buffer, Carry, Fold, Kernel, Let, Load, Loop, Program, Stmt, Store
from emmy_eq.ops import COMPUTE, DTYPES, FLOATS, monoids, ops, twists


def verify(x: Program | Kernel) -> None:
    """Raises `VerifyError` at the first broken rule."""
    if isinstance(x, Kernel):
        _Checker(x).run()
        return
    known = {b.name: b for b in (*x.inputs, *x.temps)}
    if len(known) != len(x.inputs) + len(x.temps):
        raise VerifyError("Loop", "program", "two buffers have one name")
    known |= {name: Buffer(name, shape, dtype) for name, shape, dtype, _ in x.outputs}
    written = {b.name for b in x.inputs}
    for kernel in x.kernels:
        for b in (*kernel.inputs, *kernel.outputs):
            if b.name not in known or (known[b.name].dtype, _size(known[b.name])) != (b.dtype, _size(b)):
                raise VerifyError("Loop", kernel.name, f"{b.name} is not a buffer of the program with that dtype and size")
        for b in kernel.inputs:
            if b.name not in written:
                raise VerifyError("Loop", kernel.name, f"{b.name} is read before a kernel writes it")
        written |= {b.name for b in kernel.outputs}
        verify(kernel)
    for name, _, _, _ in x.outputs:
        if name not in written:
            raise VerifyError("Loop", "return", f"no kernel writes {name}")


def _size(b: Buffer) -> int:
    return int(np.prod(b.shape, dtype=np.int64))


class _Checker:
    """Walks one kernel with the names in scope."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffers = {b.name: b for b in (*kernel.inputs, *kernel.outputs)}
        self.extents: dict[str, int] = {}  # of every axis name seen
        self.defined: set[str] = set()
        self.stored: set[str] = set()

    def run(self) -> None:
        if len(self.buffers) != len(self.kernel.inputs) + len(self.kernel.outputs):
            self.fail("parameters", "two buffers have one name")
        self.block(self.kernel.body, {}, (), ())
        for b in self.kernel.outputs:
            if b.name not in self.stored:
                self.fail("parameters", f"nothing is stored to {b.name}")

    def fail(self, where: str, why: str) -> None:
        raise VerifyError("Loop", f"kernel {self.kernel.name}, {where}", why)

    def block(self, body: Sequence[Stmt], scope: dict[str, str], axes: tuple[str, ...], parallel: tuple[str, ...]) -> dict[str, str]:
        """``scope``: dtype by visible name; ``axes``: bound here; ``parallel``: those of them whose iterations store apart.
        Returns the scope at the end of the block."""
        scope = dict(scope)
        for stmt in body:
            if isinstance(stmt, Loop):
                inner = self.bind(stmt.axes, axes)
                self.block(stmt.body, scope, inner, (*parallel, *(a.name for a in stmt.axes)))
            elif isinstance(stmt, Fold):
                scope |= self.fold(stmt, scope, axes, parallel)
            elif isinstance(stmt, Store):
                self.store(stmt, scope, axes, parallel)
            else:
                if isinstance(stmt, Load):
                    self.load(stmt, scope, axes)
                else:
                    self.let(stmt, scope, axes)
                self.define(stmt.name)
                scope[stmt.name] = stmt.dtype
        return scope

    def define(self, name: str) -> None:
        if name in self.defined:
            self.fail(name, "it is assigned twice")
        self.defined.add(name)

    def bind(self, axes: Sequence[Axis], outer: tuple[str, ...]) -> tuple[str, ...]:
        if not axes:
            self.fail("loop", "it has no axes")
        for a in axes:
            if a.name in outer:
                self.fail(a.name, "it is bound again inside its own loop")
            if self.extents.setdefault(a.name, a.extent) != a.extent:
                self.fail(a.name, f"its extent is {self.extents[a.name]} in one loop and {a.extent} in another")
        return (*outer, *(a.name for a in axes))

    def fold(self, stmt: Fold, scope: dict[str, str], axes: tuple[str, ...], parallel: tuple[str, ...]) -> dict[str, str]:
        names = ", ".join(a.name for a in stmt.axes)
        bound = self.bind(stmt.axes, axes)
        if not stmt.carries:
            self.fail(f"fold {names}", "it has no carries")
        if any(isinstance(s, Loop | Store) for s in stmt.body):
            self.fail(f"fold {names}", "a loop or a store stands in its body")
        inside = self.block(stmt.body, scope, bound, parallel)
        results = {}
        for carry in stmt.carries:
            self.carry(carry, inside)
            for result, dtype in zip(carry.results, carry.dtypes, strict=True):
                self.define(result)
                results[result] = dtype
        if not stmt.observer:
            if any(c.kind == "twist" and not twists()[c.name].folds for c in stmt.carries):
                self.fail(f"fold {names}", "a recurrence only scans")
            return results
        if len(stmt.axes) != 1 or any(c.kind != "monoid" and not (c.kind == "twist" and twists()[c.name].scans) for c in stmt.carries):
            self.fail(f"fold {names}", "a scan has one axis, and carries of monoids or of twists that have running totals")
        self.block(stmt.observer, inside | results, bound, (*parallel, stmt.axes[0].name))
        return results

    def carry(self, c: Carry, scope: dict[str, str]) -> None:
        dtypes = tuple(self.use(a, scope, c.results[0]) for a in c.args)
        if c.kind == "monoid":
            good = c.name in monoids() and len(c.args) == 1 and c.dtypes == dtypes
        elif c.kind == "arg":
            good = c.name in ("argmax", "argmin") and len(c.args) == 1 and c.dtypes == ("i64",)
        else:
            good = c.kind == "twist" and c.name in twists() and c.dtypes == dtypes[:1] * len(dtypes) and set(dtypes) <= FLOATS
        if not good or len(c.results) != len(c.dtypes):
            self.fail(c.results[0], f"{c.kind} {c.name} does not fit its arguments and results")

    def use(self, name: str, scope: dict[str, str], where: str) -> str:
        if name not in scope:
            self.fail(where, f"{name} is not in scope")
        return scope[name]

    def let(self, stmt: Let, scope: dict[str, str], axes: tuple[str, ...]) -> None:
        dtypes = [self.use(a, scope, stmt.name) for a in stmt.args]
        if stmt.dtype not in DTYPES:
            self.fail(stmt.name, f"no dtype is called {stmt.dtype}")
        if stmt.op == "lit":
            return
        if stmt.op == "iota":
            self.index(stmt.attr, axes, 0, stmt.name)
            return
        if stmt.op == "cast":
            if len(dtypes) != 1:
                self.fail(stmt.name, "a cast has one argument")
            return
        row = ops().get(stmt.op)
        if row is None or len(dtypes) != row.arity:
            self.fail(stmt.name, f"no operation {stmt.op} takes {len(dtypes)} arguments")
            return
        alike = dtypes[1:] if stmt.op == "where" else dtypes
        if len(set(alike)) > 1 or (stmt.op == "where" and dtypes[0] != "bool"):
            self.fail(stmt.name, f"{stmt.op} of {', '.join(dtypes)}")
        if stmt.op != "where" and alike[-1] not in COMPUTE:
            self.fail(stmt.name, f"arithmetic is not done in {alike[-1]}")
        if stmt.dtype != row.gives(alike[-1]):
            self.fail(stmt.name, f"{stmt.op} of {alike[-1]} does not give {stmt.dtype}")

    def index(self, x: Idx, axes: Iterable[str], gathered: int, where: str) -> frozenset[str]:
        names = ix.variables(x)
        for name in names:
            if name not in axes and not (name[0] == "g" and name[1:].isdigit() and int(name[1:]) < gathered):
                self.fail(where, f"its index names {name}, which is not bound")
        return names

    def address(self, buffer: str, index: tuple[Idx, ...], axes: tuple[str, ...], gathered: int, where: str) -> Buffer:
        if buffer not in self.buffers:
            self.fail(where, f"no parameter is called {buffer}")
        b = self.buffers[buffer]
        if len(index) != len(b.shape):
            self.fail(where, f"{len(index)} coordinates for {buffer} of shape {b.shape}")
        for x, extent in zip(index, b.shape, strict=True):
            names = self.index(x, axes, gathered, where)
            # A gathered coordinate is data: the interpreter and the simulator report what is out of range.
            if all(n in self.extents for n in names) and not ix.inside(x, extent, {n: self.extents[n] for n in names}):
                self.fail(where, f"{buffer}'s coordinate {x} may leave [0, {extent})")
        return b

    def load(self, stmt: Load, scope: dict[str, str], axes: tuple[str, ...]) -> None:
        for name in stmt.indices:
            if self.use(name, scope, stmt.name) != "i64":
                self.fail(stmt.name, f"the coordinate {name} is not i64")
        b = self.address(stmt.buffer, stmt.index, axes, len(stmt.indices), stmt.name)
        if b not in self.kernel.inputs or b.dtype != stmt.dtype:
            self.fail(stmt.name, f"{stmt.buffer} is not an input of dtype {stmt.dtype}")

    def store(self, stmt: Store, scope: dict[str, str], axes: tuple[str, ...], parallel: tuple[str, ...]) -> None:
        where = f"store {stmt.buffer}"
        b = self.address(stmt.buffer, stmt.index, axes, 0, where)
        if b not in self.kernel.outputs or self.use(stmt.value, scope, where) != b.dtype:
            self.fail(where, f"it is not an output of the dtype of {stmt.value}")
        named = frozenset().union(*(ix.variables(x) for x in stmt.index)) if stmt.index else frozenset()
        for name in parallel:
            if name not in named and self.extents[name] > 1:
                self.fail(where, f"all iterations of {name} write one place")
        self.stored.add(stmt.buffer)
