"""Values that are positions: index expressions over axes, and comparisons of them (masks)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen.kernel_ir import Atom
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import Fragment, Scope, coordinates
from emmy_eq.index import Idx
from emmy_eq.loop_ir import Let

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine

_COMPARISONS = frozenset({"ge", "gt", "le", "lt", "eq", "ne"})
_INT = 2**31


def position(e: Engine, name: str) -> Idx | None:
    """The index expression whose value ``name`` is; None: it is no position."""
    s = e.known[name].stmt
    if not isinstance(s, Let) or s.dtype not in ("i64", "i32"):
        return None
    if s.op == "iota":
        return s.attr if isinstance(s.attr, Idx) else None
    if s.op == "lit":
        return ix.const(s.attr - (1 << 64) if s.attr >> 63 else s.attr)
    if s.op in ("add", "sub"):
        left, right = (position(e, a) for a in e.known[name].args)
        if left is None or right is None:
            return None
        return left + right if s.op == "add" else left - right
    return None


def compare(e: Engine, name: str, scope: Scope) -> Fragment | None:
    """A comparison of positions as one of their difference, less its constant, with that constant: registers share the difference.

    None: ``name`` is no such comparison, or needs 64 bits.
    """
    v = e.known[name]
    if not isinstance(v.stmt, Let) or v.stmt.op not in _COMPARISONS:
        return None
    left, right = (position(e, a) for a in v.args)
    if left is None or right is None:
        return None
    shape = {a: scope[a].count for a in v.axes}
    atoms: list[Atom] = []
    for point in coordinates(shape):
        here = {a: scope[a].coordinate(n) for a, n in point.items()}
        parts = ix.terms(e.b.simplify(ix.substitute(left - right, here)))
        varying = ix.from_terms([(f, c) for f, c in parts if f != ix.const(1)])
        constant = -sum(c for f, c in parts if f == ix.const(1))
        low, high = e.b.bounds(varying)
        if min(low, constant) < -_INT or max(high, constant) >= _INT:
            return None
        atoms.append(e.b.let(v.stmt.op, "bool", e.b.index(varying), literal("i32", constant)))
    return Fragment(v.axes, tuple(shape.values()), tuple(atoms), "bool")
