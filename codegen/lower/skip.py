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
    if len(placed) != 1 or placed[0].steps == 1 or len(f.carries) != 1 or f.carries[0].kind != "twist" or e.digits.split > 1:
        return None
    (p,), (c,) = placed, f.carries
    made = state(c, e.known[c.args[0]].dtype, False)
    s = e.known[c.args[0]].stmt
    if not isinstance(made, Twisted) or not isinstance(s, Let) or s.op != "where":
        return None
    other = e.known[e.known[c.args[0]].args[2]].stmt
    if not isinstance(other, Let) or other.op != "lit" or other.attr != made.identity()[0].bits:
        return None
    last = _last(e, e.known[c.args[0]].args[0], p.map.axis)
    if last is None:
        return None
    return e.b.simplify((last // p.map.tile + 1).min(p.steps).max(0))


def _last(e: Engine, condition: str, axis: str) -> Idx | None:
    """The largest coordinate of ``axis`` at which ``condition`` may hold in this block; None if that is not known."""
    v = e.known[condition]
    if not isinstance(v.stmt, Let):
        return None
    if v.stmt.op == "and":
        return next((x for x in (_last(e, a, axis) for a in v.args) if x is not None), None)
    if v.stmt.op == "where" and _is_false(e, v.args[2]):
        return _last(e, v.args[0], axis)
    if v.stmt.op not in _BOUNDS:
        return None
    upper, equal = _BOUNDS[v.stmt.op]
    above, below = position(e, v.args[upper]), position(e, v.args[1 - upper])
    if above is None or below is None or axis in ix.variables(above):
        return None
    parts = dict(ix.terms(below))
    constant = parts.pop(ix.const(1), 0)
    if parts != {var(axis): 1}:
        return None
    largest = _largest(e, above)
    return None if largest is None else largest - constant - (0 if equal else 1)


def _is_false(e: Engine, name: str) -> bool:
    s = e.known[name].stmt
    return isinstance(s, Let) and s.op == "lit" and s.dtype == "bool" and s.attr == 0


def _largest(e: Engine, x: Idx) -> Idx | None:
    """The largest value of a sum of axes within the block."""
    out = ix.const(0)
    for factor, coefficient in ix.terms(x):
        if factor == ix.const(1):
            out = out + coefficient
        elif factor.op != "var" or coefficient < 0 or factor.name not in e.home:
            return None
        else:
            m = e.home[factor.name]
            out = out + (m.base + (m.tile - 1)).min(m.extent - 1) * coefficient
    return out
