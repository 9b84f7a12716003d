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
    twist(name, s, v, mask)       a row of `emmy_eq.ops.twists`: one pass, weighted sum rescaled as its key grows

Construction hash-conses: equal terms are one object, so ``is`` and ``id`` decide equality and a DAG stays a DAG.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from emmy_eq import index as ix
from emmy_eq.errors import VerifyError
from emmy_eq.index import Idx
from emmy_eq.ops import DTYPES, itemsize, ops

MAX_POINTS = 1 << 22  # of an index that `verify` tries one by one


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

    def add(self, extent: int, name: str | None = None) -> Axis:
        """A new axis; raises `OverflowError` past 62 (callers cut the program before that)."""
        if len(self.axes) >= 62:
            raise OverflowError("a program region has more than 62 loop axes")
        axis = Axis(len(self.axes), name or f"a{len(self.axes)}", extent)
        self.axes.append(axis)
        self.by_name[axis.name] = axis
        return axis

    def of(self, mask: int) -> list[Axis]:
        """The axes in ``mask``, ascending id."""
        return [a for a in self.axes if mask >> a.id & 1]

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
    return _make(op, args, None, args[-1].dtype if row.result == "same" else row.result, free)


def cast(v: Val, dtype: str) -> Val:
    return v if v.dtype == dtype else _make("cast", (v,), None, dtype, v.free)


def reduce(monoid: str, v: Val, mask: int) -> Val:
    """Over the axes of ``mask``; an axis that ``v`` does not depend on still counts (sum multiplies by its extent)."""
    return _make("reduce", (v,), (monoid, mask), v.dtype, v.free & ~mask) if mask else v


def argreduce(name: str, v: Val, mask: int) -> Val:
    return _make("argreduce", (v,), (name, mask), "i64", v.free & ~mask)


def scan(monoid: str, v: Val, axis: int) -> Val:
    """Along the one axis with bit mask ``axis``."""
    return _make("scan", (v,), (monoid, axis), v.dtype, v.free | axis)


def twist(name: str, s: Val, v: Val, mask: int) -> Val:
    return _make("twist", (s, v), (name, mask), v.dtype, (s.free | v.free) & ~mask)


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


def show(x: TermProgram | Val) -> str:
    """Text for people, one line a stored tensor: ``name[axes] = body``.  A `Val` by itself names its axes a0, a1, ... by id."""
    return _Printer(x.axes).program(x) if isinstance(x, TermProgram) else _Printer(AxisTable()).val(x)


class _Printer:
    def __init__(self, axes: AxisTable) -> None:
        self.axes = axes
        self.names: dict[Stored, str] = {}
        self.orders: dict[Stored, list[int]] = {}  # memory order, as positions among the ascending axes
        self.lets: dict[Val, str] = {}
        self.lines: list[str] = []

    def program(self, p: TermProgram) -> str:
        self.lines.append("axes " + ", ".join(f"{a.name}={a.extent}" for a in self.axes.axes))
        self.lines.extend(f"input {b.name}: {b.dtype}{list(b.shape)}" for b in p.inputs)
        for name, load, order in p.seams:
            self.define(load.attr[0], name, [a.id for a in order])
        for load, again in p.equalities:
            left = self.text(load)
            self.share([again])
            self.lines.append(f"equal {left} = {self.text(again)}")
        by_value = {id(s.val): s for s in reversed(self.names)}
        for r in p.results:
            stored = by_value.get(id(r.val))
            body = self.names[stored] if stored is not None else self.text(r.val)
            alias = f" in {r.alias}" if r.alias is not None else ""
            self.lines.append(f"{r.name}{alias}: {r.val.dtype}{list(r.shape)} over [{self.axis_names([a.id for a in r.axes])}] = {body}")
        return "\n".join(self.lines)

    def val(self, v: Val) -> str:
        for term in topological([v]):
            if term.op == "load" and isinstance(term.attr[0], Stored) and term.attr[0] not in self.names:
                self.define(term.attr[0], f"t{len(self.names)}", self.ids(term.attr[0].mask))
        self.share([v])
        return "\n".join([*self.lines, self.text(v)])

    def define(self, stored: Stored, name: str, order: Sequence[int]) -> None:
        self.share([stored.val])
        self.lines.append(f"{name}[{self.axis_names(order)}]: {stored.val.dtype} = {self.text(stored.val)}")
        self.names[stored] = name
        self.orders[stored] = [self.ids(stored.mask).index(i) for i in order]

    def share(self, roots: Sequence[Val]) -> None:
        """A line of its own for every compound term that is used twice below ``roots``."""
        order = list(topological(roots, lambda v: v.args))
        uses = Counter(a for v in order for a in v.args)
        for v in order:
            if uses[v] > 1 and v.args and v not in self.lets:
                text = self.text(v)
                self.lets[v] = f"v{len(self.lets)}"
                self.lines.append(f"  {self.lets[v]} = {text}")

    def ids(self, mask: int) -> list[int]:
        return [i for i in range(mask.bit_length()) if mask >> i & 1]

    def axis_names(self, ids: Sequence[int]) -> str:
        known = {a.id: a.name for a in self.axes.axes}
        return ", ".join(known.get(i, f"a{i}") for i in ids)

    def text(self, v: Val, nested: bool = False) -> str:
        if v in self.lets:
            return self.lets[v]
        if v.op == "lit":
            return f"{v.dtype}({from_bits(v.dtype, v.attr)})"
        if v.op == "iota":
            return f"iota({v.attr})"
        if v.op == "load":
            return self.load(v)
        symbol = ops()[v.op].symbol if v.op in ops() else None
        if symbol is not None and len(v.args) == 2:
            text = f"{self.text(v.args[0], True)} {symbol} {self.text(v.args[1], True)}"
            return f"({text})" if nested else text
        name = v.dtype if v.op == "cast" else v.op
        if v.op in ("reduce", "argreduce", "scan", "twist"):
            name = f"{'scan ' if v.op == 'scan' else ''}{v.attr[0]}{{{self.axis_names(self.ids(v.attr[1]))}}}"
        return f"{name}({', '.join(self.text(a) for a in v.args)})"

    def load(self, v: Val) -> str:
        buf, idxs = v.attr
        if isinstance(buf, Stored):
            idxs = [idxs[k] for k in self.orders[buf]]
        where = ", ".join(map(str, idxs)) + "".join(f"; g{k} = {self.text(g)}" for k, g in enumerate(v.args))
        return f"{self.names[buf] if isinstance(buf, Stored) else buf.name}[{where}]"


def verify(program: TermProgram) -> None:
    """Raises `VerifyError` where a term's cached facts, an index, a result's axes or a seam is not what the grammar says."""
    table = program.axes
    if [a.id for a in table.axes] != list(range(len(table.axes))) or len(table.by_name) != len(table.axes):
        raise VerifyError("term", "axes", "ids are not 0, 1, ... or names repeat")
    known = (1 << len(table.axes)) - 1
    roots = [*(r.val for r in program.results), *(load for _, load, _ in program.seams), *(v for pair in program.equalities for v in pair)]
    for v in topological(roots):
        _verify_term(v, table, known)
    for r in program.results:
        mask = _distinct(r.axes, r.name)
        if r.val.free & ~mask or table.points(mask) != prod(r.shape):
            raise VerifyError("term", r.name, f"axes {[a.name for a in r.axes]} do not hold the value or the shape {r.shape}")
    for name, load, order in program.seams:
        if not is_pointwise(load, table) or _distinct(order, name) != load.attr[0].mask:
            raise VerifyError("term", name, "a seam is a pointwise load with an order of all its axes")
    for a, b in program.equalities:
        if a.dtype != b.dtype or b.free & ~a.free:
            raise VerifyError("term", show(a), "its equal has another dtype or more axes")


def _distinct(axes: Sequence[Axis], where: str) -> int:
    mask = sum({a.bit for a in axes})
    if mask.bit_count() != len(axes):
        raise VerifyError("term", where, "an axis appears twice")
    return mask


def _verify_term(v: Val, table: AxisTable, known: int) -> None:
    free = 0
    for a in v.args:
        free |= a.free
    if v.op in ("reduce", "argreduce", "twist"):
        free &= ~v.attr[1]
    if v.op == "scan":
        free |= v.attr[1]
    if v.op == "iota":
        free = table.mask(v.attr)
    if v.op == "load":
        for x in v.attr[1]:
            free |= table.mask(x)
        _verify_load(v, table)
    masked = v.op in ("reduce", "argreduce", "scan", "twist")
    if v.free != free or v.free & ~known or (masked and (not v.attr[1] or v.attr[1] & ~known)):
        raise VerifyError("term", show(v), f"free axes {v.free:b} are not {free:b}, or not axes of the program")
    if v.op in ops() and len(v.args) != ops()[v.op].arity:
        raise VerifyError("term", show(v), f"{v.op} takes {ops()[v.op].arity} arguments")


def _verify_load(v: Val, table: AxisTable) -> None:
    """Coordinates match the buffer's dims, name known axes, and stay in bounds (data-dependent ones are checked when run)."""
    buf, idxs = v.attr
    dims = buf.shape if isinstance(buf, InputBuf) else tuple(a.extent for a in table.of(buf.mask))
    names = set(table.by_name) | {f"g{k}" for k in range(len(v.args))}
    if len(idxs) != len(dims) or not all(ix.variables(x) <= names for x in idxs) or any(g.dtype != "i64" for g in v.args):
        raise VerifyError("term", show(v), "coordinates do not match the buffer, or name unknown variables")
    for x, extent in zip(idxs, dims, strict=True):
        if ix.variables(x) <= set(table.by_name) and not _inside(x, extent, table):
            raise VerifyError("term", show(v), f"index {x} leaves [0, {extent})")


def _inside(x: Idx, extent: int, table: AxisTable) -> bool:
    """By an enclosure, else at every point; where there are too many points to try, an enclosure that is too wide is let pass."""
    low, high = ix.bounds(x, table.extents())
    mask = table.mask(x)
    if (0 <= low and high < extent) or not 0 < table.points(mask) <= MAX_POINTS:
        return True
    values = ix.evaluate(x, dict(zip((a.name for a in table.of(mask)), np.indices([a.extent for a in table.of(mask)]), strict=True)))
    return bool(np.min(values) >= 0 and np.max(values) < extent)
