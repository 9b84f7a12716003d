"""Terms: the values that live in the e-graph, as an immutable, shared Python DAG.

A `Val` is a scalar *as a function of its free axes*.  Axes are program-wide: `Axis(id, name, extent)`, id < 63; a set of
axes is an int bit mask.  No binder is ever substituted: a reader of a stored value uses the same axes, or reads it
under other index expressions (a *renamed* read).

    lit(dtype, bits)              a constant
    iota(idx)                     the i64 value of an index expression over axes
    load(input, idxs)             an element of an input; idxs align with the input's dims
    load(stored(v, mask), idxs)   an element of value v stored over the axes of mask; idxs align with those axes, ascending id.
                                  When every idx is the axis itself the read is *pointwise*, and equals v (fusion).
    op(args...)                   a row of `emmy_eq.ops`
    cast(v) -> dtype
    reduce(monoid, v, mask)       over a set of axes
    argreduce(argmax|argmin, v, mask)   i64 position within the masked axes, flattened in ascending id order
    scan(monoid, v, axis)         inclusive
    scan(name, s, v, axis)        running total of a row of `emmy_eq.ops.twists`; its running key is scan(key, s, axis)
    twist(name, s, v, mask)       a row of `emmy_eq.ops.twists`: one pass, weighted sum rescaled as its key grows; in s's dtype

Construction hash-conses: equal terms are one object, so ``is`` and ``id`` decide equality and a DAG stays a DAG.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emmy_eq import index as ix
from emmy_eq.index import Idx
from emmy_eq.ops import DTYPES, itemsize, monoids, ops


@dataclass(frozen=True, slots=True)
class Axis:
    """A named loop axis of a program; as an index it is ``ix.var(axis.name)``."""

    id: int
    name: str
    extent: int

    @property
    def bit(self) -> int:
        return 1 << self.id


@dataclass(frozen=True, slots=True)
class InputBuf:
    """A program input; strides are those of a contiguous tensor of ``shape``."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Value ``val`` materialized over the axes in ``mask`` (ascending ids; the memory order is chosen later)."""

    val: Val
    mask: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and self.val is other.val and self.mask == other.mask

    def __hash__(self) -> int:
        return hash((id(self.val), self.mask))


@dataclass(frozen=True, slots=True)
class TempBuf:
    """A stored value as its readers in other kernels see it after extraction: a name, and the axes (ascending ids)."""

    name: str
    mask: int
    dtype: str


Buf = InputBuf | Stored | TempBuf


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Val:
    """One term; build with the functions below, never directly."""

    op: str
    args: tuple[Val, ...]
    attr: Any  # lit: bits; iota: Idx; load: (Buf, idxs); reduce, argreduce, scan, twist: (name, mask)
    dtype: str
    free: int = field(compare=False)

    def __repr__(self) -> str:
        return f"<{self.op} {self.dtype} free={self.free:b}>"


_table: dict[tuple[Any, ...], Val] = {}


def _make(op: str, args: tuple[Val, ...], attr: Any, dtype: str, free: int) -> Val:
    key = (op, tuple(id(a) for a in args), attr, dtype, free)
    found = _table.get(key)
    if found is None:
        found = _table[key] = Val(op, args, attr, dtype, free)
    return found


class AxisTable:
    """The axes of one program: ids, names, extents, and the masks of index expressions over them."""

    def __init__(self, axes: Sequence[Axis] = ()) -> None:
        self.axes: list[Axis] = list(axes)
        self.by_name: dict[str, Axis] = {a.name: a for a in self.axes}
        self.by_bit: dict[int, Axis] = {a.bit: a for a in self.axes}

    def add(self, extent: int, name: str | None = None) -> Axis:
        """A new axis; raises `OverflowError` past 62 (callers cut the program before that)."""
        if len(self.axes) >= 62:
            raise OverflowError("a program region has more than 62 loop axes")
        axis = Axis(len(self.axes), name or f"a{len(self.axes)}", extent)
        self.axes.append(axis)
        self.by_name[axis.name] = self.by_bit[axis.bit] = axis
        return axis

    def of(self, mask: int) -> list[Axis]:
        """The axes in ``mask``, ascending id."""
        found = []
        while mask:
            low = mask & -mask
            mask ^= low
            found += [self.by_bit[low]] if low in self.by_bit else []
        return found

    def mask(self, x: Idx) -> int:
        """The axes that an index expression names (names that are not axes, such as ``g0``, are ignored)."""
        out = 0
        for name in ix.variables(x):
            if name in self.by_name:
                out |= self.by_name[name].bit
        return out

    def extents(self) -> dict[str, int]:
        return {a.name: a.extent for a in self.axes}

    def points(self, mask: int) -> int:
        """Product of the extents of the axes in ``mask``."""
        n = 1
        for axis in self.of(mask):
            n *= axis.extent
        return n


def lit(dtype: str, bits: int) -> Val:
    return _make("lit", (), bits, dtype, 0)


def number(dtype: str, value: float | int | bool) -> Val:
    """The constant ``value`` rounded to ``dtype``."""
    return lit(dtype, to_bits(dtype, value))


def to_bits(dtype: str, value: float | int | bool) -> int:
    """Bit pattern of ``value`` in ``dtype`` as a non-negative int."""
    with np.errstate(over="ignore"):
        return int.from_bytes(np.asarray(value).astype(DTYPES[dtype]).tobytes(), "little")


def read_bits(dtype: str, text: str) -> int:
    """Bit pattern in ``dtype`` of a number as text, or as its bits in hex; raises `ValueError` for other text."""
    if text.startswith("0x"):
        return int(text, 16)
    if text in ("True", "False"):
        return to_bits(dtype, text == "True")
    return to_bits(dtype, int(text) if re.fullmatch(r"-?\d+", text) else float(text))


def from_bits(dtype: str, bits: int) -> Any:
    """The NumPy scalar with that bit pattern."""
    return np.frombuffer(bits.to_bytes(itemsize(dtype), "little"), DTYPES[dtype])[0]


def iota(idx: Idx, mask: int) -> Val:
    return _make("iota", (), idx, "i64", mask)


def load(buf: Buf, idxs: tuple[Idx, ...], mask: int, indices: tuple[Val, ...] = ()) -> Val:
    """``mask``: the axes of ``idxs``.  ``indices`` are the i64 values that idxs name ``g0, g1, ...`` (data-dependent coordinates)."""
    dtype = buf.val.dtype if isinstance(buf, Stored) else buf.dtype
    free = mask
    for v in indices:
        free |= v.free
    return _make("load", indices, (buf, idxs), dtype, free)


def pointwise(buf: Stored | TempBuf, axes: AxisTable) -> Val:
    """The read of ``buf`` under its own axes."""
    return load(buf, tuple(ix.var(a.name) for a in axes.of(buf.mask)), buf.mask)


def is_pointwise(v: Val, axes: AxisTable) -> bool:
    """Whether ``v`` is a load of a stored value under its own axes."""
    if v.op != "load" or isinstance(v.attr[0], InputBuf):
        return False
    buf, idxs = v.attr
    return all(i == ix.var(a.name) for i, a in zip(idxs, axes.of(buf.mask), strict=True))


def apply(op: str, *args: Val) -> Val:
    """A row of the op table."""
    row = ops()[op]
    free = 0
    for a in args:
        free |= a.free
    return _make(op, args, None, row.gives(args[-1].dtype), free)


def cast(v: Val, dtype: str) -> Val:
    return v if v.dtype == dtype else _make("cast", (v,), None, dtype, v.free)


def reduce(monoid: str, v: Val, mask: int) -> Val:
    """Over the axes of ``mask``; an axis that ``v`` does not depend on still counts (sum multiplies by its extent)."""
    return _make("reduce", (v,), (monoid, mask), v.dtype, v.free & ~mask) if mask else v


def argreduce(name: str, v: Val, mask: int) -> Val:
    return _make("argreduce", (v,), (name, mask), "i64", v.free & ~mask)


def is_ordered(v: Val) -> bool:
    """Whether ``v`` folds the points of its axes in the order of their ids: it gives a position among them, or is a serial monoid."""
    return v.op == "argreduce" or (v.op == "reduce" and monoids()[v.attr[0]].serial)


def scan(monoid: str, v: Val, axis: int) -> Val:
    """Along the one axis with bit mask ``axis``."""
    return _make("scan", (v,), (monoid, axis), v.dtype, v.free | axis)


def running(name: str, s: Val, v: Val, axis: int) -> Val:
    """The scan of a twist: its total up to each place along ``axis``."""
    return _make("scan", (s, v), (name, axis), v.dtype, s.free | v.free | axis)


def twist(name: str, s: Val, v: Val, mask: int) -> Val:
    return _make("twist", (s, v), (name, mask), s.dtype, (s.free | v.free) & ~mask)


def computed(op: str, dtype: str, name: str, mask: int, args: Sequence[Val]) -> Val:
    """A term with operands; ``name`` and ``mask`` are those of a fold or scan."""
    match op:
        case "cast":
            return cast(args[0], dtype)
        case "reduce":
            return reduce(name, args[0], mask)
        case "argreduce":
            return argreduce(name, args[0], mask)
        case "scan" if len(args) == 2:
            return running(name, args[0], args[1], mask)
        case "scan":
            return scan(name, args[0], mask)
        case "twist":
            return twist(name, args[0], args[1], mask)
    return apply(op, *args)


def children(v: Val) -> tuple[Val, ...]:
    """Arguments, and the value behind a stored buffer."""
    if v.op == "load" and isinstance(v.attr[0], Stored):
        return (*v.args, v.attr[0].val)
    return v.args


def topological(roots: Sequence[Val], below: Callable[[Val], tuple[Val, ...]] = children) -> Iterator[Val]:
    """Every term reachable from ``roots``, arguments first, in a deterministic order."""
    done: set[int] = set()
    stack: list[tuple[Val, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        v, ready = stack.pop()
        if id(v) in done:
            continue
        if ready:
            done.add(id(v))
            yield v
            continue
        stack.append((v, True))
        stack.extend((c, False) for c in reversed(below(v)))


@dataclass(frozen=True, slots=True)
class Result:
    """One output of a term program: the value, the axes it is stored over in memory order (row-major), its tensor shape.

    ``axes`` flattened give the tensor's elements in order: a dim of the tensor may be several atomic axes.
    """

    val: Val
    axes: tuple[Axis, ...]
    shape: tuple[int, ...]
    name: str
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class TermProgram:
    """What enters the e-graph.

    ``seams``: every computed tensor's (name, pointwise load of its Stored buffer, memory order of its axes).
    ``equalities``: (a, b) pairs that hold by construction: a renamed read of a cheap producer, and the producer lowered
    again under the reader's index.
    """

    axes: AxisTable
    results: tuple[Result, ...]
    seams: tuple[tuple[str, Val, tuple[Axis, ...]], ...]
    equalities: tuple[tuple[Val, Val], ...]
    inputs: tuple[InputBuf, ...]
