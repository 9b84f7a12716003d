"""What a kernel's result has to be: float64 values from the Loop IR interpreter, and how far from them it may lie.

The interpreter holds whole axes in memory, so a large kernel is evaluated on a lattice of its outer axes: evenly spaced points of
odd stride that end at the last one, which meet every position within a block's tile.  The rest of a result is compared with that of
the first row that was right on the lattice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any

import numpy as np
import torch

from emmy_eq import loop_ir
from emmy_eq.arrays import to_torch
from emmy_eq.errors import Unsupported
from emmy_eq.execute import EAGER_FACTOR, ROUNDINGS, distance
from emmy_eq.index import Idx, substitute, var
from emmy_eq.loop_ir import Axis, Buffer, Fold, Kernel, Let, Load, Loop, Program, Stmt, Store
from emmy_eq.ops import DTYPES, FLOATS
from emmy_eq.terms import to_bits

Array = np.ndarray[Any, Any]

POINTS = 1 << 23  # of the largest value on the lattice: some seconds a kernel
MOST_POINTS = 1 << 27  # of a fold, which no lattice shortens: 1 GiB a value
CONTRACT = (
    f"max |y - ref| / max |ref| against float64: at most {EAGER_FACTOR:.0f} times that of the interpreter in the kernel's own types, "
    f"{ROUNDINGS:.0f} roundings of the result, or sqrt(steps of its folds) roundings in float32"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of the output that comes closest to its limit; see `CONTRACT`."""

    error: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.error <= self.limit


class Reference:
    """Raises `Unsupported` for a kernel whose folds are too long to be interpreted."""

    def __init__(self, kernel: Kernel, inputs: Mapping[str, Array]) -> None:
        lattice = on_lattice(kernel, POINTS)
        if _points(lattice.body) > MOST_POINTS:
            raise Unsupported("tuning", f"the folds of {kernel.name} are too long for a reference in float64")
        exact = [torch.from_numpy(x) for x in loop_ir.run(lattice, inputs, float64=True)]
        own = [to_torch(x, b.dtype) for x, b in zip(loop_ir.run(lattice, inputs), kernel.outputs, strict=True)]
        self._stored = [torch.from_numpy(np.asarray(x != 0)) for x in loop_ir.run(_stores(lattice), {})]
        self._wanted = [e if b.dtype in FLOATS else o for e, o, b in zip(exact, own, kernel.outputs, strict=True)]
        error = [distance(o, w) for o, w in zip(own, self._wanted, strict=True)]
        # Higham & Mary (2019): the error of a sum of n terms grows with sqrt(n), with high probability.
        folded = sqrt(_folded(kernel.body)) * torch.finfo(torch.float32).eps
        self.limits = [
            max(EAGER_FACTOR * e, ROUNDINGS * torch.finfo(o.dtype).eps, folded) if o.is_floating_point() else 0.0
            for e, o in zip(error, own, strict=True)
        ]
        self._whole: list[torch.Tensor] | None = None

    def verdict(self, outputs: Sequence[torch.Tensor]) -> Verdict:
        """Of the kernel's outputs in order, in their buffers' shapes, on any device."""
        errors = [
            distance(x[stored.to(x.device)], wanted[stored]) for x, stored, wanted in zip(outputs, self._stored, self._wanted, strict=True)
        ]
        if self._whole is not None:  # both rows may be off, to either side
            errors = [max(e, distance(x, y) / 2) for e, x, y in zip(errors, outputs, self._whole, strict=True)]
        found = max((Verdict(e, limit) for e, limit in zip(errors, self.limits, strict=True)), key=_closeness)
        if found.passed and self._whole is None:
            self._whole = [x.clone() for x in outputs]
        return found


def _closeness(v: Verdict) -> float:
    return v.error / v.limit if v.limit else v.error * float("inf") if v.error else 0.0


def draw(x: Kernel | Program) -> dict[str, Array]:
    """Values for the inputs, the same on every call: floats normal, integers within the dimensions that gathers of them index."""
    random = np.random.default_rng(0)
    shapes = {b.name: b.shape for b in x.inputs}
    gathered = [
        extent
        for kernel in (x.kernels if isinstance(x, Program) else (x,))
        for s in loop_ir.walk(kernel.body)
        if isinstance(s, Load) and s.indices and s.buffer in shapes
        for i, extent in zip(s.index, shapes[s.buffer], strict=True)
        if any(f"g{n}" in str(i) for n in range(len(s.indices)))
    ]
    bound = min([128, *gathered])
    return {b.name: _values(random, b, bound) for b in x.inputs}


def _values(random: np.random.Generator, b: Buffer, bound: int) -> Array:
    if b.dtype == "bool":
        return random.random(b.shape) < 0.5
    drawn = random.standard_normal(b.shape, np.float32) if b.dtype in FLOATS else random.integers(0, bound, b.shape)
    return drawn.astype(DTYPES[b.dtype])


def on_lattice(kernel: Kernel, points: int) -> Kernel:
    """The kernel at evenly spaced points of its outer axes, as few as needed for values of ``points`` elements."""
    folded = {a.name for s in loop_ir.walk(kernel.body) if isinstance(s, Fold) for a in s.axes}
    loops = {a.name: a.extent for s in loop_ir.walk(kernel.body) if isinstance(s, Loop) for a in s.axes if a.name not in folded}
    counts = dict(loops)
    made = kernel
    while _points(made.body) > points and max(counts.values(), default=1) > 1:
        longest = max(counts, key=lambda a: counts[a])
        counts[longest] = -(-counts[longest] // 2)
        made = _restricted(kernel, {a: (c, *_spread(loops[a], c)) for a, c in counts.items() if c < loops[a]})
    return made


def _spread(extent: int, count: int) -> tuple[int, int]:
    """(stride, offset) of ``count`` points that end at the last of ``extent``."""
    stride = (extent - 1) // (count - 1) if count > 1 else 1
    stride -= stride % 2 == 0
    return stride, extent - 1 - stride * (count - 1)


def _restricted(kernel: Kernel, axes: Mapping[str, tuple[int, int, int]]) -> Kernel:
    """``axes``: (count, stride, offset) by name."""
    moved = {name: var(name) * stride + offset for name, (_, stride, offset) in axes.items()}

    def index(x: tuple[Idx, ...]) -> tuple[Idx, ...]:
        return tuple(substitute(i, moved) for i in x)

    def statement(s: Stmt) -> Stmt:
        if isinstance(s, Loop):
            return replace(s, axes=tuple(Axis(a.name, axes[a.name][0]) if a.name in axes else a for a in s.axes))
        if isinstance(s, Load | Store):
            return replace(s, index=index(s.index))
        return replace(s, attr=substitute(s.attr, moved)) if isinstance(s, Let) and s.op == "iota" else s

    return replace(kernel, body=loop_ir.changed(kernel.body, statement))


def _stores(kernel: Kernel) -> Kernel:
    """The kernel that stores 1 wherever ``kernel`` stores."""

    def block(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        return tuple(x for s in body for x in statement(s))

    def statement(s: Stmt) -> tuple[Stmt, ...]:
        if isinstance(s, Loop):
            return (Loop(s.axes, block(s.body)),)
        if isinstance(s, Fold):
            return (Loop(s.axes, block(s.observer)),)
        return (replace(s, value=f"one {dtypes[s.buffer]}"),) if isinstance(s, Store) else ()

    dtypes = {b.name: b.dtype for b in kernel.outputs}
    ones = tuple(Let(f"one {d}", "lit", (), d, to_bits(d, 1)) for d in sorted(set(dtypes.values())))
    return Kernel(kernel.name, (), kernel.outputs, (*ones, *block(kernel.body)))


def _points(body: Sequence[Stmt]) -> int:
    """Elements of the largest value, if it varies along every axis around it."""
    return max([1, *(prod(a.extent for a in s.axes) * _points(_inside(s)) for s in body if isinstance(s, Loop | Fold))])


def _folded(body: Sequence[Stmt]) -> int:
    """Steps of the longest fold, and of those inside it."""
    own = (prod(a.extent for a in s.axes) if isinstance(s, Fold) else 0 for s in body)
    return max([0, *(n + _folded(_inside(s)) for n, s in zip(own, body, strict=True) if isinstance(s, Loop | Fold))])


def _inside(s: Loop | Fold) -> tuple[Stmt, ...]:
    return (*s.body, *s.observer) if isinstance(s, Fold) else s.body
