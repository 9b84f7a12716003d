"""Steps of a twisted fold that a mask empties: under a causal mask, key tiles after a block's last query add nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen.lower.positions import position
from emmy_eq.codegen.lower.states import Twisted, state
from emmy_eq.codegen.tile_ir import Fold
from emmy_eq.index import Idx, var
from emmy_eq.loop_ir import Let

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine, Placed

# op -> (position of the side that bounds the folded axis from above, whether equality keeps the element)
_BOUNDS = {"ge": (0, True), "gt": (0, False), "le": (1, True), "lt": (1, False)}


def stop(e: Engine, f: Fold, placed: list[Placed]) -> Idx | None:
    """The number of steps after which every element of the block is masked with the key's identity, whose weight is 0.

    None: all steps count.  Every carry must be of the masked key.
    """
    condition = _mask(e, f, placed)
    last = _last(e, condition, placed[0].map.axis) if condition is not None else None
    if last is None:
        return None
    (p,) = placed
    return e.b.simplify((last // p.map.tile + 1).min(p.steps).max(0))


def clear(e: Engine, f: Fold, placed: list[Placed]) -> tuple[Idx, frozenset[str]]:
    """The number of first steps in which no element of the block is masked or beyond the fold's axis, as far as comparisons of positions
    tell; and the conditions of the mask that hold there."""
    (p,) = placed
    condition = _mask(e, f, placed)
    found = _always(e, condition, p.map.axis) if condition is not None else {}
    out = ix.const(p.map.extent // p.map.tile)
    for first in found.values():
        out = out.min(first // p.map.tile)
    return e.b.simplify(out.max(0)), frozenset(found)


def _mask(e: Engine, f: Fold, placed: list[Placed]) -> str | None:
    """The condition without which an element counts for nothing."""
    if len(placed) != 1 or placed[0].steps == 1 or len(f.carries) != 1 or f.carries[0].kind != "twist" or e.digits.split > 1:
        return None
    (c,) = f.carries
    made = state(c, e.known[c.args[0]].dtype, False)
    s = e.known[c.args[0]].stmt
    if not isinstance(made, Twisted) or not isinstance(s, Let) or s.op != "where":
        return None
    other = e.known[e.known[c.args[0]].args[2]].stmt
    if not isinstance(other, Let) or other.op != "lit" or other.attr != made.identity()[0].bits:
        return None
    return e.known[c.args[0]].args[0]


def _last(e: Engine, condition: str, axis: str) -> Idx | None:
    """The largest coordinate of ``axis`` at which ``condition`` may hold in this block; None if that is not known."""
    v = e.known[condition]
    if not isinstance(v.stmt, Let):
        return None
    if v.stmt.op == "and":
        return next((x for x in (_last(e, a, axis) for a in v.args) if x is not None), None)
    if v.stmt.op == "where" and _is_false(e, v.args[2]):
        return _last(e, v.args[0], axis)
    bound = _bound(e, condition, axis)
    return _extreme(e, bound, largest=True) if bound is not None else None


def _always(e: Engine, condition: str, axis: str) -> dict[str, Idx]:
    """Of each part of ``condition`` that bounds ``axis`` from above: how many of the first coordinates it admits for all of the block."""
    v = e.known[condition]
    if isinstance(v.stmt, Let) and v.stmt.op == "and":
        return {name: x for a in v.args for name, x in _always(e, a, axis).items()}
    bound = _bound(e, condition, axis)
    least = _extreme(e, bound, largest=False) if bound is not None else None
    return {v.name: least + 1} if least is not None else {}


def _bound(e: Engine, condition: str, axis: str) -> Idx | None:
    """The largest coordinate of ``axis`` that ``condition`` admits, over other axes; None: it is no such bound."""
    v = e.known[condition]
    if not isinstance(v.stmt, Let) or v.stmt.op not in _BOUNDS:
        return None
    upper, equal = _BOUNDS[v.stmt.op]
    above, below = position(e, v.args[upper]), position(e, v.args[1 - upper])
    if above is None or below is None or axis in ix.variables(above):
        return None
    parts = dict(ix.terms(below))
    constant = parts.pop(ix.const(1), 0)
    return above - constant - (0 if equal else 1) if parts == {var(axis): 1} else None


def _is_false(e: Engine, name: str) -> bool:
    s = e.known[name].stmt
    return isinstance(s, Let) and s.op == "lit" and s.dtype == "bool" and s.attr == 0


def _extreme(e: Engine, x: Idx, largest: bool) -> Idx | None:
    """The largest (or least) value of a sum of axes within the block."""
    out = ix.const(0)
    for factor, coefficient in ix.terms(x):
        if factor == ix.const(1):
            out = out + coefficient
        elif factor.op != "var" or coefficient < 0 or factor.name not in e.home:
            return None
        else:
            m = e.home[factor.name]
            out = out + ((m.base + (m.tile - 1)).min(m.extent - 1) if largest else m.base) * coefficient
    return out
