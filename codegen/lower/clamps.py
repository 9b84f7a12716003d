"""Reads at a position that a bound clamps (a half of a rotation, a part of a joined tensor): vectors lie within the bound or beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emmy_eq import index as ix
from emmy_eq.codegen.kernel_ir import Atom
from emmy_eq.codegen.lower import access
from emmy_eq.codegen.lower.builder import Builder, literal
from emmy_eq.codegen.lower.layout import Fragment, Scope, coordinates
from emmy_eq.index import Idx, var


@dataclass(frozen=True, slots=True)
class Clamp:
    """Vectors along ``lane`` from position ``begin`` on are read at ``offset``: as they are where ``begin`` ``holds`` for ``bound``;
    else they are the nearest vector within the bound, and its element ``edge`` is all of theirs."""

    lane: str
    offset: Idx
    begin: Idx
    holds: str
    bound: int
    edge: int

    def settled(self, b: Builder, frag: Fragment, scope: Scope) -> Fragment:
        """``frag`` was read at ``offset``."""
        inside: dict[Idx, Atom] = {}
        atoms = []
        for point in coordinates(frag.shape()):
            begin = b.simplify(ix.substitute(self.begin, {a: scope[a].coordinate(e) for a, e in {**point, self.lane: 0}.items()}))
            if begin not in inside:
                inside[begin] = b.let(self.holds, "bool", b.index(begin), literal("i32", self.bound))
            here, edge = frag.at(point), frag.at({**point, self.lane: self.edge})
            atoms.append(here if here == edge else b.let("where", frag.dtype, inside[begin], here, edge))
        return Fragment(frag.axes, frag.counts, tuple(atoms), frag.dtype)


def find(b: Builder, offset: Idx, scope: Scope, axes: tuple[str, ...], dtype: str) -> Clamp | None:
    """The clamp that keeps a thread's elements along an axis from being one vector; None: there is none, or its bound is within one."""
    parts, width = dict(ix.terms(offset)), access.widest(dtype)
    for lane in axes:
        clamped = [f for f, c in parts.items() if lane in ix.variables(f) and f.op in ("min", "max") and c == 1]
        if not width == scope[lane].count == scope[lane].vector or scope[lane].extent % width:
            continue
        if sum(lane in ix.variables(f) for f in parts) == len(clamped) == 1 and access.aligned(b.simplify(scope[lane].first()), width):
            return _of(parts, clamped[0], lane, width)
    return None


def _of(parts: Mapping[Idx, int], f: Idx, lane: str, width: int) -> Clamp | None:
    x, bound = f.args
    along = dict(ix.terms(x))
    if bound.op != "const" or along.pop(var(lane), 0) != 1 or any(lane in ix.variables(g) or c % width for g, c in along.items()):
        return None
    low = f.op == "max"
    nearest = bound.value if low else bound.value + 1 - width
    if nearest % width:
        return None
    place = var(lane) % width
    begin = x - place
    moved = begin.max(nearest) if low else begin.min(nearest)
    offset = ix.from_terms([(g, c) for g, c in parts.items() if g != f]) + moved + place
    return Clamp(lane, offset, begin, "ge" if low else "le", nearest, 0 if low else width - 1)
