"""Reference interpreter of Loop IR in NumPy, all iterations of a statement at once.

A value is a `NamedArray` over the loop variables that it varies along, so memory grows with the largest value: use reduced extents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from emmy_eq import named
from emmy_eq.errors import VerifyError
from emmy_eq.loop_ir.grammar import Axis, Carry, Fold, Kernel, Let, Load, Loop, Program, Stmt, Store
from emmy_eq.named import NamedArray, dtype_of
from emmy_eq.ops import monoids, twists
from emmy_eq.terms import from_bits

Array = np.ndarray[Any, Any]
Values = dict[str, NamedArray]
Extents = dict[str, int]


def run(x: Program | Kernel, inputs: Mapping[str, Array], float64: bool = False) -> list[Array]:
    """The outputs of ``x`` in order, a kernel's with its buffers' shapes.  ``inputs`` by buffer name, any shape of that size.

    ``float64``: every float type is read and kept as f64, so that the result is the value of the exact program to about 1e-16.
    An access out of bounds raises `IndexError`.
    """
    if isinstance(x, Kernel):
        made = _Machine(x, inputs, float64).run()
        return [made[b.name] for b in x.outputs]
    memory = dict(inputs)
    for kernel in x.kernels:
        memory |= _Machine(kernel, memory, float64).run()
    return [memory[name].reshape(shape) for name, shape, _, _ in x.outputs]


class _Machine:
    def __init__(self, kernel: Kernel, memory: Mapping[str, Array], float64: bool) -> None:
        self.kernel, self.float64 = kernel, float64
        self.memory: dict[str, Array] = {}
        for b in kernel.inputs:
            if b.name not in memory:
                raise VerifyError("Loop", f"kernel {kernel.name}", f"no value is given for {b.name}")
            self.memory[b.name] = np.asarray(memory[b.name]).astype(dtype_of(b.dtype, float64), copy=False).reshape(b.shape)
        self.written = {b.name: np.zeros(b.shape, dtype_of(b.dtype, float64)) for b in kernel.outputs}

    def run(self) -> dict[str, Array]:
        self.block(self.kernel.body, {}, {})
        return self.written

    def block(self, body: Sequence[Stmt], values: Values, bound: Extents) -> Values:
        """``values``: by name, those in scope; ``bound``: extents of the loop variables.  Returns the values at the end of the block."""
        values = dict(values)
        for stmt in body:
            if isinstance(stmt, Loop):
                self.block(stmt.body, values, bound | _extents(stmt.axes))
            elif isinstance(stmt, Fold):
                values |= self.fold(stmt, values, bound)
            elif isinstance(stmt, Store):
                self.store(stmt, values[stmt.value], bound)
            elif isinstance(stmt, Load):
                values[stmt.name] = self.load(stmt, values, bound)
            else:
                values[stmt.name] = self.let(stmt, values, bound)
        return values

    def let(self, stmt: Let, values: Values, bound: Extents) -> NamedArray:
        if stmt.op == "lit":
            return named.scalar(from_bits(stmt.dtype, stmt.attr), stmt.dtype, self.float64)
        if stmt.op == "iota":
            return named.position(stmt.attr, bound)
        args = [values[a] for a in stmt.args]
        return named.cast(args[0], stmt.dtype, self.float64) if stmt.op == "cast" else named.apply(stmt.op, *args)

    def load(self, stmt: Load, values: Values, bound: Extents) -> NamedArray:
        try:
            return named.gather(self.memory[stmt.buffer], stmt.index, bound, [values[n] for n in stmt.indices])
        except IndexError as error:
            raise IndexError(f"kernel {self.kernel.name}: load of {stmt.buffer}: {error}") from None

    def store(self, stmt: Store, value: NamedArray, bound: Extents) -> None:
        places = tuple(named.position(x, bound).over(bound) for x in stmt.index)
        buffer = self.written[stmt.buffer]
        for place, extent in zip(places, buffer.shape, strict=True):
            if place.size and not (place.min() >= 0 and place.max() < extent):
                raise IndexError(f"kernel {self.kernel.name}: store to {stmt.buffer} leaves [0, {extent})")
        buffer[places] = value.over(bound)

    def fold(self, stmt: Fold, values: Values, bound: Extents) -> Values:
        over = _extents(stmt.axes)
        inside = self.block(stmt.body, values, bound | over)
        if not stmt.observer:
            return {name: value for c in stmt.carries for name, value in self.carry(c, inside, over)}
        (axis,) = stmt.axes
        running = {name: value for c in stmt.carries for name, value in _running(c, inside, over)}
        self.block(stmt.observer, inside | running, bound | over)
        if axis.extent == 0:
            return {
                n: named.scalar(x, d, self.float64) for c in stmt.carries for n, x, d in zip(c.results, _nothing(c), c.dtypes, strict=True)
            }
        return {name: NamedArray(v.axes[:-1], v.array[..., -1]) for name, v in running.items()}

    def carry(self, c: Carry, values: Values, over: Extents) -> list[tuple[str, NamedArray]]:
        first, *rest = (values[a] for a in c.args)
        if c.kind == "monoid":
            return [(c.results[0], named.reduce(c.name, first, over, c.dtypes[0]))]
        if c.kind == "arg":
            return [(c.results[0], named.argreduce(c.name, first, over))]
        key = named.reduce(twists()[c.name].key, first, over, c.dtypes[0])
        sums = [named.twist(c.name, first, v, over, c.dtypes[0]) for v in rest]
        return list(zip(c.results, [key, *sums], strict=True))


def _running(c: Carry, values: Values, over: Extents) -> list[tuple[str, NamedArray]]:
    first, *rest = (values[a] for a in c.args)
    if c.kind == "monoid":
        return [(c.results[0], named.scan(c.name, first, over))]
    key = named.scan(twists()[c.name].key, first, over)
    return list(zip(c.results, [key, *(named.running(c.name, first, v, over) for v in rest)], strict=True))


def _nothing(c: Carry) -> tuple[Any, ...]:
    """What a scan along an empty axis ends with."""
    monoid = c.name if c.kind == "monoid" else twists()[c.name].key
    return (monoids()[monoid].identity(c.dtypes[0]), *(0 for _ in c.results[1:]))


def _extents(axes: Sequence[Axis]) -> Extents:
    return {a.name: a.extent for a in axes}
