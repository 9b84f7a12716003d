"""Reference interpreter of Loop IR in NumPy, all iterations of a statement at once.

A value is an array with one dimension for every axis name of its kernel, of extent 1 where it does not vary; so scalar
operations are NumPy's broadcasting, and a fold reduces dimensions.  Memory grows with the largest value: use reduced extents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emmy_eq import index as ix
from emmy_eq.errors import VerifyError
from emmy_eq.loop_ir.grammar import Axis, Carry, Fold, Kernel, Let, Load, Loop, Program, Stmt, Store, walk
from emmy_eq.ops import DTYPES, FLOATS, monoids, ops, twists
from emmy_eq.terms import from_bits

Array = np.ndarray[Any, Any]


def run(x: Program | Kernel, inputs: Mapping[str, Array], float64: bool = False) -> list[Array]:
    """The outputs of ``x`` in order, a kernel's with its buffers' shapes.  ``inputs`` by buffer name, any shape of that size.

    ``float64``: every float type is read and kept as f64, so that the result is the value of the exact program to about 1e-16.
    An access out of bounds raises `IndexError`.
    """
    with np.errstate(all="ignore"):
        if isinstance(x, Kernel):
            made = _Machine(x, inputs, float64).run()
            return [made[b.name].reshape(b.shape) for b in x.outputs]
        memory = dict(inputs)
        for kernel in x.kernels:
            memory |= _Machine(kernel, memory, float64).run()
        return [memory[name].reshape(shape) for name, shape, _, _ in x.outputs]


class _Machine:
    def __init__(self, kernel: Kernel, memory: Mapping[str, Array], float64: bool) -> None:
        self.kernel, self.float64 = kernel, float64
        self.position: dict[str, int] = {}  # dimension of each axis name
        for stmt in walk(kernel.body):
            for axis in stmt.axes if isinstance(stmt, Loop | Fold) else ():
                self.position.setdefault(axis.name, len(self.position))
        self.memory: dict[str, Array] = {}
        for b in kernel.inputs:
            if b.name not in memory:
                raise VerifyError("Loop", f"kernel {kernel.name}", f"no value is given for {b.name}")
            self.memory[b.name] = np.ascontiguousarray(memory[b.name]).astype(self.dtype(b.dtype), copy=False).reshape(b.shape)
        self.written = {b.name: np.zeros(b.shape, self.dtype(b.dtype)) for b in kernel.outputs}

    def run(self) -> dict[str, Array]:
        self.block(self.kernel.body, {}, {})
        return self.written

    def dtype(self, name: str) -> np.dtype[Any]:
        return np.dtype(np.float64) if self.float64 and name in FLOATS else DTYPES[name]

    def arange(self, name: str, extent: int) -> Array:
        shape = [1] * len(self.position)
        shape[self.position[name]] = extent
        return np.arange(extent, dtype=np.int64).reshape(shape)

    def scalar(self, value: Any, dtype: np.dtype[Any]) -> Array:
        return np.full([1] * len(self.position), value, dtype)

    def block(self, body: Sequence[Stmt], names: dict[str, Array], axes: dict[str, Array]) -> dict[str, Array]:
        """``names``: values in scope; ``axes``: coordinates of the bound axes.  Returns the values at the end of the block."""
        names = dict(names)
        for stmt in body:
            if isinstance(stmt, Loop):
                self.block(stmt.body, names, axes | self.bind(stmt.axes))
            elif isinstance(stmt, Fold):
                names |= self.fold(stmt, names, axes)
            elif isinstance(stmt, Store):
                self.store(stmt, names, axes)
            elif isinstance(stmt, Load):
                names[stmt.name] = self.load(stmt, names, axes)
            else:
                names[stmt.name] = self.let(stmt, names, axes)
        return names

    def bind(self, axes: Sequence[Axis]) -> dict[str, Array]:
        return {a.name: self.arange(a.name, a.extent) for a in axes}

    def let(self, stmt: Let, names: dict[str, Array], axes: dict[str, Array]) -> Array:
        dtype = self.dtype(stmt.dtype)
        if stmt.op == "lit":
            return self.scalar(from_bits(stmt.dtype, stmt.attr), dtype)
        if stmt.op == "iota":
            return np.asarray(ix.evaluate(stmt.attr, axes), np.int64) + self.scalar(0, dtype)
        args = [names[a] for a in stmt.args]
        if stmt.op == "cast":
            return _cast(args[0], dtype)
        return np.asarray(ops()[stmt.op].numpy(*args)).astype(dtype, copy=False)

    def coordinates(self, index: Sequence[ix.Idx], shape: Sequence[int], env: dict[str, Array], where: str) -> tuple[Array, ...]:
        out = []
        for x, extent in zip(index, shape, strict=True):
            at = np.asarray(ix.evaluate(x, env), np.int64)
            if at.size and (at.min() < 0 or at.max() >= extent):
                raise IndexError(f"kernel {self.kernel.name}: {where} reaches {at.min()}..{at.max()} of [0, {extent})")
            out.append(at)
        return tuple(out)

    def load(self, stmt: Load, names: dict[str, Array], axes: dict[str, Array]) -> Array:
        buffer = self.memory[stmt.buffer]
        env = axes | {f"g{i}": names[n] for i, n in enumerate(stmt.indices)}
        at = self.coordinates(stmt.index, buffer.shape, env, f"load of {stmt.buffer}")
        return np.asarray(buffer[at]) + self.scalar(0, np.dtype(np.bool_)) if not at else self.lifted(buffer[at])

    def lifted(self, value: Array) -> Array:
        """``value`` with a dimension for every axis: an index that is constant gives a scalar."""
        return value if value.ndim == len(self.position) else value.reshape([1] * len(self.position))

    def store(self, stmt: Store, names: dict[str, Array], axes: dict[str, Array]) -> None:
        buffer = self.written[stmt.buffer]
        at = self.coordinates(stmt.index, buffer.shape, axes, f"store to {stmt.buffer}")
        value = names[stmt.value]
        if not at:
            buffer[()] = value.reshape(())
            return
        at = np.broadcast_arrays(*at)
        buffer[at] = np.broadcast_to(value, np.broadcast_shapes(value.shape, at[0].shape)) if value.size else value

    def spread(self, value: Array, axes: Sequence[Axis]) -> Array:
        """``value`` with the full extent of ``axes``: a reduction counts an axis that its operand does not vary along."""
        shape = list(value.shape)
        for a in axes:
            shape[self.position[a.name]] = a.extent
        return np.broadcast_to(value, shape)

    def fold(self, stmt: Fold, names: dict[str, Array], axes: dict[str, Array]) -> dict[str, Array]:
        bound = axes | self.bind(stmt.axes)
        inside = self.block(stmt.body, names, bound)
        if stmt.observer:
            running = {c.results[0]: self.scan(c, inside, stmt.axes[0]) for c in stmt.carries}
            self.block(stmt.observer, inside | running, bound)
            return {n: self.last(v, stmt.axes[0]) for n, v in running.items()} if stmt.axes[0].extent else {}
        out: dict[str, Array] = {}
        for c in stmt.carries:
            args = [self.spread(inside[a], stmt.axes) for a in c.args]
            out |= zip(c.results, self.reduce(c, args, stmt.axes), strict=True)
        return out

    def reduce(self, c: Carry, args: list[Array], axes: Sequence[Axis]) -> list[Array]:
        dims = tuple(self.position[a.name] for a in axes)
        if c.kind == "monoid":
            return [_reduce(c.name, args[0], dims, c.dtypes[0])]
        if c.kind == "arg":
            return [_position(c.name, args[0], dims)]
        row = twists()[c.name]
        key = _reduce(row.key, args[0], dims, c.dtypes[0])
        weight = row.weight(_Algebra(args[0]), _Algebra(key)).array
        return [key, *(_reduce("sum", weight * v, dims, d) for v, d in zip(args[1:], c.dtypes[1:], strict=True))]

    def scan(self, c: Carry, names: dict[str, Array], axis: Axis) -> Array:
        value = self.spread(names[c.args[0]], (axis,))
        return np.asarray(monoids()[c.name].accumulate(value, self.position[axis.name]))

    def last(self, value: Array, axis: Axis) -> Array:
        return np.take(value, [axis.extent - 1], self.position[axis.name])


def _reduce(monoid: str, x: Array, dims: tuple[int, ...], dtype: str) -> Array:
    """Keeps the reduced dimensions with extent 1."""
    row = monoids()[monoid]
    shape = [1 if i in dims else n for i, n in enumerate(x.shape)]
    if any(x.shape[d] == 0 for d in dims):
        return np.full(shape, row.identity(dtype), x.dtype)
    return np.asarray(row.numpy(x, dims)).reshape(shape)


def _position(name: str, x: Array, dims: tuple[int, ...]) -> Array:
    """Position of the first NaN, or else of the first best, in ``dims`` flattened in that order."""
    moved = np.moveaxis(x, dims, range(-len(dims), 0))
    flat = moved.reshape(*moved.shape[: -len(dims)], -1)
    best = (np.argmax if name == "argmax" else np.argmin)(flat, axis=-1)
    return best.astype(np.int64).reshape([1 if i in dims else n for i, n in enumerate(x.shape)])


def _cast(x: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "b":
        return np.asarray(x != 0)
    if dtype.kind in "iu" and dtype.itemsize < 4 and x.dtype.kind not in "iub":
        return np.asarray(x.astype(np.int32).astype(dtype))
    return np.asarray(x.astype(dtype))


@dataclass(frozen=True, slots=True)
class _Algebra:
    """The part of `emmy_eq.algebra` that weights of twists are written in, on arrays."""

    array: Array

    def __sub__(self, other: _Algebra) -> _Algebra:
        return _Algebra(self.array - other.array)

    def __mul__(self, other: _Algebra) -> _Algebra:
        return _Algebra(self.array * other.array)

    def __truediv__(self, other: _Algebra) -> _Algebra:
        return _Algebra(self.array / other.array)

    def exp(self) -> _Algebra:
        return _Algebra(np.exp(self.array))
