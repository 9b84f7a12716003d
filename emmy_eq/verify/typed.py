"""L0: both sides have one dtype, and the right side depends on nothing that the left does not."""

from __future__ import annotations

from emmy_eq.rule import Rule
from emmy_eq.verify.draws import Draw
from emmy_eq.verify.field import residues
from emmy_eq.verify.space import names


def refutes(rule: Rule, draw: Draw) -> str | None:
    eq = residues(rule, draw)
    if eq.lhs.dtype != eq.rhs.dtype:
        return f"{eq.lhs.dtype} became {eq.rhs.dtype}"
    extra = (eq.rhs.free - eq.lhs.free).mask
    if eq.both:
        extra |= (eq.lhs.free - eq.rhs.free).mask
    return f"one side depends on {names(extra)} too" if extra else None
