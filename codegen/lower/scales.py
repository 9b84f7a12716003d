"""Scores times a constant, as attention's: their weights take the factor with their power of two, and no product is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from emmy_eq.codegen.kernel_ir import Lit
from emmy_eq.codegen.lower.states import State, Twisted
from emmy_eq.codegen.tile_ir import Fold
from emmy_eq.loop_ir import Let
from emmy_eq.ops import monoids
from emmy_eq.terms import from_bits

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine


def unscaled(e: Engine, f: Fold, states: Sequence[State]) -> tuple[Fold, list[State]]:
    """``f`` and the states of its carries, where such weights have the constant factor that their elements are made with."""
    carries, found = [], []
    for c, st in zip(f.carries, states, strict=True):
        if isinstance(st, Twisted) and st.powers and monoids()[st.twist.key].combine == "maximum":
            x, scale = _unscaled(e, c.args[0], st.identity()[0])
            c, st = replace(c, args=(x, *c.args[1:])), replace(st, scale=scale)
        carries.append(c)
        found.append(st)
    return replace(f, carries=tuple(carries)), found


def _unscaled(e: Engine, name: str, nothing: Lit) -> tuple[str, float]:
    """A value and a positive number of which ``name`` is the product; ``nothing`` stays where a mask has that."""
    v = e.known[name]
    if not isinstance(v.stmt, Let):
        return name, 1.0
    if v.stmt.op == "mul":
        for x, factor in (v.args, v.args[::-1]):
            if (number := _number(e, factor)) is not None and 0 < number < inf:
                return x, number
    if v.stmt.op == "where" and _number(e, v.args[2]) == from_bits(nothing.dtype, nothing.bits):
        x, scale = _unscaled(e, v.args[1], nothing)
        if scale != 1:
            args = (v.args[0], x, v.args[2])
            name = f"{name}~unscaled"
            e.known[name] = replace(v, name=name, stmt=replace(v.stmt, args=args), args=args)
            return name, scale
    return name, 1.0


def _number(e: Engine, name: str) -> float | None:
    s = e.known[name].stmt
    return float(from_bits(s.dtype, s.attr)) if isinstance(s, Let) and s.op == "lit" else None
