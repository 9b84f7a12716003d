"""The grammar of Loop IR: one normalized loop nest over scalars per kernel of a plan.

    kernel softmax(x: f32[4,8]) -> out: f32[4,8]:
      loop i0 < 4:
        fold i1 < 8:
          v0 = load x[i0, i1]
          carry v1 = max(v0)
        fold i1 < 8:
          v2 = load x[i0, i1]
          v3 = sub v2, v1
          v4 = exp v3
          carry v5 = sum(v4)
        loop i1 < 8:
          v6 = load x[i0, i1]
          ...
          store out[i0, i1] = v9

Statements: `Let`, `Load`, `Fold`, `Loop`, `Store`.  A `Loop` is parallel.  A `Fold` reduces: its carries are visible
after it; with an ``observer`` it is a scan, and the observer's statements see the names of the fold's body and the
running (inclusive) carries at each step.  Names are in SSA form, numbered in order of appearance; two sibling loops over
the same program axis share its name, which is how a schedule knows that a row may stay in registers between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from emmy_eq.index import Idx


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop axis of a kernel; as an index it is ``index.var(name)``."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """Contiguous row-major memory of a kernel parameter; shape () is one element."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Let:
    """``name = op args``.  op: a row of `emmy_eq.ops`; ``cast`` (to ``dtype``); ``lit`` (attr: bit pattern in ``dtype``);
    ``iota`` (attr: Idx over axes, value i64)."""

    name: str
    op: str
    args: tuple[str, ...]
    dtype: str
    attr: Any = None


@dataclass(frozen=True, slots=True)
class Load:
    """``name = buffer[index]``; ``index`` aligns with the buffer's dims; ``g0, g1, ...`` in it name ``indices`` (i64 values)."""

    name: str
    buffer: str
    index: tuple[Idx, ...]
    dtype: str
    indices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Carry:
    """What a fold accumulates.

    kind ``monoid``: name is a row of `monoids`, args (v,), results (accumulated,).
    kind ``arg``: name ``argmax`` or ``argmin``, args (v,), results (i64 position in the fold's axes, flattened in order).
    kind ``twist``: name is a row of `twists`, args (s, v1, v2, ...), results (key, sum1, sum2, ...), all of s's dtype; the
    weights of a narrower v are rounded as that is.
    """

    kind: str
    name: str
    args: tuple[str, ...]
    results: tuple[str, ...]
    dtypes: tuple[str, ...]  # one a result


@dataclass(frozen=True, slots=True)
class Fold:
    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    carries: tuple[Carry, ...]
    observer: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Store:
    buffer: str
    index: tuple[Idx, ...]
    value: str


Stmt = Let | Load | Fold | Loop | Store


@dataclass(frozen=True, slots=True)
class Kernel:
    """``inputs`` and ``outputs`` in parameter order; body is usually one outer `Loop` over the parallel axes."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Kernels in launch order.  ``temps``: buffers made by one kernel and read by later ones.  ``outputs``: (buffer name,
    tensor shape, dtype, alias) of the program's results in order; buffers are matched to kernel parameters by name."""

    kernels: tuple[Kernel, ...]
    inputs: tuple[Buffer, ...]
    temps: tuple[Buffer, ...]
    outputs: tuple[tuple[str, tuple[int, ...], str, str | None], ...]


def changed(body: tuple[Stmt, ...], change: Callable[[Stmt], Stmt]) -> tuple[Stmt, ...]:
    """``body`` with every statement changed, those inside of a loop or fold first."""
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            stmt = replace(stmt, body=changed(stmt.body, change))
        elif isinstance(stmt, Fold):
            stmt = replace(stmt, body=changed(stmt.body, change), observer=changed(stmt.observer, change))
        out.append(change(stmt))
    return tuple(out)


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement of ``body`` and of the blocks inside it, in order of appearance."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop | Fold):
            yield from walk(stmt.body)
        if isinstance(stmt, Fold):
            yield from walk(stmt.observer)
