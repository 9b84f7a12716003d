"""A rule tested from itself: random arguments, every layer, the first counterexample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from emmy_eq.rule import Equation, Rule
from emmy_eq.verify import field, floats
from emmy_eq.verify.draws import Draw, draws, dtype_of
from emmy_eq.verify.space import AxisSet, Space

Layer = Callable[[Rule, Draw], str | None]  # why the draw refutes the rule, or None


@dataclass(frozen=True, slots=True)
class Verdict:
    """``draws``: on how many the guard held.  ``layer`` refuted the rule on ``counterexample``, where one did."""

    rule: str
    draws: int
    layer: str | None = None
    counterexample: Draw | None = None
    why: str = ""

    @property
    def holds(self) -> bool:
        return self.layer is None and self.draws > 0


def layers() -> Mapping[str, Layer]:
    """The layers that work on a draw, cheapest first."""
    return {"L0 typing": refuted_by_typing, "L1 field": refuted_in_field, "L4 floats": floats.refutes}


def check_rule(rule: Rule, count: int = 100, seed: int = 0) -> Verdict:
    """``rule`` on up to ``count`` draws where its guard holds, out of 40 times as many.

    A verdict with no draws means that the guard never held: nothing was tested, and the rule does not hold.
    """
    held = 0
    for draw in islice(draws(rule, seed), 40 * count):
        if held == count:
            break
        if not all(residues(rule, draw).when):
            continue
        held += 1
        for name, refutes in layers().items():
            if (why := refutes(rule, draw)) is not None:
                return Verdict(rule.name, held, name, draw, why)
    return Verdict(rule.name, held)


def residues(rule: Rule, draw: Draw) -> Equation:
    """The rule's body over random residues."""
    space = Space.full(draw.extents, draw.key)
    args: list[Any] = []
    for (_, kind), (name, arg) in zip(rule.args, draw.args, strict=True):
        if kind == "axes":
            args.append(AxisSet(int(arg), draw.extents))
        else:
            args.append(arg if isinstance(arg, str) else field.random(dtype_of(kind, draw), arg, space, name))
    return rule.body(*args)


def refuted_by_typing(rule: Rule, draw: Draw) -> str | None:
    """L0: both sides have one dtype, and the right side depends on nothing that the left does not."""
    eq = residues(rule, draw)
    if eq.lhs.dtype != eq.rhs.dtype:
        return f"{eq.lhs.dtype} became {eq.rhs.dtype}"
    extra = (eq.rhs.free - eq.lhs.free).mask
    return f"the right side depends on axes {extra:b} too" if extra else None


def refuted_in_field(rule: Rule, draw: Draw) -> str | None:
    """L1: both sides are the same function modulo primes."""
    eq = residues(rule, draw)
    return None if eq.lhs.agrees(eq.rhs) else "the sides differ modulo a prime"
