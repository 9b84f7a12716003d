"""Memory accesses of a fragment: one address per register coordinate, joined to vectors where a layout allows it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.kernel_ir import Atom, Cmp, Predicate
from emmy_eq.codegen.lower.builder import Builder
from emmy_eq.codegen.lower.layout import AxisMap, Fragment, Scope, coordinates
from emmy_eq.index import Idx, var
from emmy_eq.ops import itemsize

VECTOR_BYTES = 16
VECTOR_ELEMENTS = 8
UNKNOWN = 1 << 40  # more than any address, so that it is computed in 64 bits

Point = dict[str, int]
Address = Callable[[Point], Idx]  # the address over axis names at a register coordinate (gathers differ by coordinate)


def widest(dtype: str) -> int:
    """The most elements of ``dtype`` that one access moves."""
    return min(VECTOR_BYTES // itemsize(dtype), VECTOR_ELEMENTS)


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive elements that one access moves: the register coordinates, the first one's address, the bounds."""

    points: tuple[Point, ...]
    offset: Idx
    where: Predicate


def overruns(b: Builder, m: AxisMap, e: int) -> bool:
    """Whether register ``e`` may lie beyond the axis in some thread, block or step."""
    return b.bounds(m.coordinate(e))[1] >= m.extent


def inside(b: Builder, m: AxisMap, e: int) -> Predicate:
    """The bounds check of register ``e``; () where none is needed.  Whole tiles lie inside or outside, with all their registers."""
    if not overruns(b, m, e):
        return ()
    base = b.simplify(m.base)
    whole = m.extent % m.tile == 0 and aligned(base, m.tile)
    return (Cmp(base if whole else b.simplify(m.coordinate(e)), "<", ix.const(m.extent)),)


def groups(b: Builder, address: Address, scope: Scope, axes: tuple[str, ...], dtype: str, bounded: bool = True) -> Iterator[Group]:
    """Every element of ``axes`` in ``scope``, as vectors as wide as alignment and bounds allow.

    ``bounded``: the axes' extents bound the memory; a shared tile holds all that a layout names.
    """
    counts = {a: scope[a].count for a in axes}
    at = _Linear(b, address, scope, axes)
    lane = next((a for a in axes if scope[a].vector > 1 and at.coefficient(dict.fromkeys(axes, 0), a) == 1), None)
    if lane is None:
        for point in coordinates(counts):
            yield _group(b, at, scope, (point,), bounded)
        return
    width = min(scope[lane].vector, widest(dtype))
    for point in coordinates({**counts, lane: counts[lane] // width}):
        first = point[lane] * width
        yield from _vectors(b, at, scope, lane, tuple({**point, lane: first + n} for n in range(width)), bounded)


def _vectors(b: Builder, at: _Linear, scope: Scope, lane: str, points: tuple[Point, ...], bounded: bool) -> Iterator[Group]:
    """``points`` in one access if it is aligned and wholly inside or outside the axis, else in halves."""
    width = len(points)
    m = scope[lane]
    whole = not bounded or (m.extent % width == 0 and aligned(b.simplify(m.coordinate(points[0][lane])), width))
    if width == 1 or (aligned(at(points[0]), width) and at.same(points) and (whole or not overruns(b, m, points[-1][lane]))):
        yield _group(b, at, scope, points, bounded)
        return
    yield from _vectors(b, at, scope, lane, points[: width // 2], bounded)
    yield from _vectors(b, at, scope, lane, points[width // 2 :], bounded)


def _group(b: Builder, at: _Linear, scope: Scope, points: tuple[Point, ...], bounded: bool) -> Group:
    where = tuple(c for a, e in points[0].items() for c in inside(b, scope[a], e)) if bounded else ()
    return Group(points, at(points[0]), where)


def aligned(offset: Idx, width: int) -> bool:
    """Whether ``offset`` is provably a multiple of ``width``."""
    return all(c % width == 0 or (f.op in ("min", "max") and all(aligned(x, width) for x in f.args)) for f, c in ix.terms(offset))


class _Linear:
    """Addresses at register coordinates, from one simplified expression wherever it is linear in their offsets.

    The offset of a register along ``axis`` enters as variable ``axis$``.
    """

    def __init__(self, b: Builder, address: Address, scope: Scope, axes: tuple[str, ...]) -> None:
        self.b, self.address, self.scope = b, address, scope
        self.maps = {a: scope[a].first() + var(f"{a}$") for a in axes}
        own = {f"{a}$": scope[a].offset(scope[a].count - 1) + 1 for a in axes}
        self.extents = ChainMap(own, b.extents)  # a view: a gather's coordinates enter as they are first used
        self.forms: dict[Idx, tuple[Idx, dict[str, int]] | None] = {}

    def form(self, raw: Idx) -> tuple[Idx, dict[str, int]] | None:
        """(part free of offsets, coefficient of each axis's offset), or None where it has not that form."""
        if raw not in self.forms:
            parts = ix.terms(ix.simplify(ix.substitute(raw, self.maps), self.extents))
            rest = [(f, c) for f, c in parts if not any(n.endswith("$") for n in ix.variables(f))]
            linear = {f.name[:-1]: c for f, c in parts if f.op == "var" and f.name.endswith("$")}
            self.forms[raw] = (ix.from_terms(rest), linear) if len(rest) + len(linear) == len(parts) else None
        return self.forms[raw]

    def coefficient(self, point: Point, axis: str) -> int:
        """Elements between neighbouring offsets of ``axis``; 0 where that is not one number."""
        form = self.form(self.address(point))
        return form[1].get(axis, 0) if form is not None else 0

    def same(self, points: tuple[Point, ...]) -> bool:
        """Whether one expression covers ``points`` (a gather's coordinate may differ from lane to lane)."""
        raw = self.address(points[0])
        return all(self.address(p) == raw for p in points[1:])

    def __call__(self, point: Point) -> Idx:
        raw = self.address(point)
        form = self.form(raw)
        if form is None:
            return self.b.simplify(ix.substitute(raw, {a: self.scope[a].coordinate(e) for a, e in point.items()}))
        constant = sum(c * self.scope[a].offset(point[a]) for a, c in form[1].items())
        return ix.from_terms([*ix.terms(form[0]), (ix.const(1), constant)])


def limit(x: Idx, name: str, extent: int) -> int:
    """A bound on ``name`` where coordinate ``x`` is below ``extent``: x = (name + 2) // 3 keeps name below 3 * extent - 2."""
    parts = [(f, c) for f, c in ix.terms(x) if f != ix.const(1)]
    if len(parts) != 1 or parts[0][1] < 1 or name not in ix.variables(x):
        return UNKNOWN
    ((factor, scale),) = parts
    least = sum(c for f, c in ix.terms(x) if f == ix.const(1))
    extent = -(-(extent - least) // scale)
    if factor.op == "var":
        return max(extent, 1)
    if factor.op == "floordiv" and factor.args[1].op == "const":
        return limit(factor.args[0], name, extent * factor.args[1].value)
    return UNKNOWN


def flat(index: tuple[Idx, ...], shape: tuple[int, ...]) -> Idx:
    """The row-major offset of ``index``."""
    out = ix.const(0)
    for i, extent in zip(index, shape, strict=True):
        out = out * extent + i
    return out


def strides(offset: Idx) -> list[tuple[str, int]]:
    """Elements between neighbours along each variable of the simplified ``offset``, within the limits that padding clamps it to."""
    out: list[tuple[str, int]] = []
    for factor, c in ix.terms(offset):
        while factor.op in ("min", "max") and factor.args[1].op == "const":
            factor = factor.args[0]
        out += [(f.name, c * n) for f, n in ix.terms(factor) if f.op == "var"]
    return out


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a fragment is read or written; ``dtype`` of its elements."""

    space: str
    buffer: str
    dtype: str


def load(b: Builder, memory: Memory, address: Address, scope: Scope, axes: tuple[str, ...]) -> Fragment:
    """The elements at ``address``; beyond an axis's extent a global read gives zero."""
    found: dict[tuple[int, ...], Atom] = {}
    for g in groups(b, address, scope, axes, memory.dtype, memory.space == "global"):
        names = tuple(b.fresh("v") for _ in g.points)
        b.emit(k.Load(names, memory.dtype, memory.space, memory.buffer, g.offset, g.where))
        found.update({tuple(p[a] for a in axes): n for p, n in zip(g.points, names, strict=True)})
    counts = {a: scope[a].count for a in axes}
    return Fragment(axes, tuple(counts.values()), tuple(found[tuple(p.values())] for p in coordinates(counts)), memory.dtype)


def store(b: Builder, memory: Memory, frag: Fragment, address: Address, scope: Scope, axes: tuple[str, ...], where: Predicate = ()) -> None:
    """Write ``frag`` (which may vary with fewer axes) at every element of ``axes``."""
    for g in groups(b, address, scope, axes, memory.dtype, memory.space == "global"):
        values = tuple(frag.at(p) for p in g.points)
        b.emit(k.Store(values, memory.dtype, memory.space, memory.buffer, g.offset, (*where, *g.where)))


def copy(b: Builder, source: Memory, offset: Idx, target: Memory, to: Idx, scope: Scope, axes: tuple[str, ...], where: Predicate) -> None:
    """The elements at ``offset`` of ``source`` go to ``to`` in ``target`` by cp.async, zero beyond an axis's extent; both over axis names.

    Only threads for which ``where`` holds copy.
    """
    place = _Linear(b, lambda _: to, scope, axes)
    copies = tuple(
        k.CpAsync(target.buffer, place(g.points[0]), source.buffer, g.offset, source.dtype, len(g.points), g.where)
        for g in groups(b, lambda _: offset, scope, axes, source.dtype)
    )
    for s in (k.If(where, copies),) if where else copies:
        b.emit(s)


def owner(b: Builder, used: int) -> Predicate:
    """Holds for one of the threads that differ only in bits of the thread number outside ``used``."""
    checks: list[Cmp] = []
    bit = 1
    while bit < b.threads:
        size = 1
        while bit * size < b.threads and not used & (bit * size):
            size *= 2
        if size > 1:
            checks.append(Cmp(b.simplify(var("tid") // bit % size), "==", ix.const(0)))
        bit *= max(size, 2)
    return tuple(checks)
