"""L5: any terms that can be extracted from one class have one value.

For a rule: its left side becomes a program, egglog applies the rule's own pattern and guard, and random terms of every
class are evaluated.  This tests what no other layer sees: that the pattern means what the Python body means, and that it
ever matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from random import Random
from typing import Any, Self

import numpy as np

from emmy_eq import evaluate
from emmy_eq import terms as tm
from emmy_eq.algebra import Val
from emmy_eq.egraph import ENode, Limits, Saturated, saturate
from emmy_eq.index import var
from emmy_eq.rule import Rounding, Rule
from emmy_eq.terms import AxisTable, InputBuf, Result, Stored, TermProgram
from emmy_eq.verify import field, floats, operands
from emmy_eq.verify.audit import audit
from emmy_eq.verify.draws import Abstains, Draw, arguments
from emmy_eq.verify.recorded import record, replay
from emmy_eq.verify.space import AxisSet

LIMITS = Limits(rounds=4, rows=3_000)  # alone, a rule need not saturate


@dataclass(frozen=True, slots=True, eq=False)
class Built(Val):
    """The algebra's reading that builds terms."""

    val: tm.Val
    table: AxisTable

    def _make(self, val: tm.Val) -> Self:
        return type(self)(val, self.table)

    def _op(self, name: str, *others: Self) -> Self:
        return self._make(tm.apply(name, self.val, *(x.val for x in others)))

    def _reduce(self, monoid: Any, k: AxisSet) -> Self:
        if k.mask:
            return self._make(tm.reduce(str(monoid), self.val, k.mask))
        return self._make(tm.Val("reduce", (self.val,), (str(monoid), 0), self.val.dtype, self.val.free))  # a rule may be about it

    def _scan(self, monoid: Any, k: AxisSet) -> Self:
        return self._make(tm.scan(str(monoid), self.val, 1 << k.only()))

    def _running(self, name: str, v: Self, k: AxisSet) -> Self:
        return self._make(tm.running(name, self.val, v.val, 1 << k.only()))

    def _twist(self, name: str, v: Self, k: AxisSet) -> Self:
        return self._make(tm.twist(name, self.val, v.val, k.mask))

    def cast(self, dtype: Any) -> Self:
        if self.val.dtype != dtype:
            return self._make(tm.cast(self.val, str(dtype)))
        return self._make(tm.Val("cast", (self.val,), None, str(dtype), self.val.free))

    def like(self, value: float) -> Self:
        return self._make(tm.number(self.val.dtype, value))

    def stored(self, m: AxisSet) -> Self:
        if self.val.free & ~m.mask:
            raise Abstains("a buffer does not hold all axes of its value")
        return self._make(tm.pointwise(Stored(self.val, m.mask), self.table))

    def count(self, k: AxisSet) -> Self:
        return self.like(self.table.points(k.mask))

    @property
    def free(self) -> AxisSet:
        return AxisSet(self.val.free, tuple(a.extent for a in self.table.axes))

    def has_dtype(self, dtype: Any) -> bool:
        return bool(self.val.dtype == dtype)


def refutes(rule: Rule, draw: Draw) -> str | None:
    """Raises `Abstains` where egglog never matched the rule: its guard is for constants of another dtype, say."""
    recording = record(rule)
    env = _arguments(rule, draw)
    if not all(replay(guard, env) for guard in recording.when):
        raise Abstains("its guard does not hold for terms")
    inputs = operands.draw_operands(rule, draw, operands.ordinary)
    modular = _is_modular(rule, draw)  # the audit, too, knows no order that addition keeps
    matched = 0
    for side in (recording.lhs, recording.rhs)[: 2 if recording.both else 1]:
        program = _program(rule, draw, replay(side, env), env)
        saturated = saturate(program, [rule], LIMITS)
        matched += saturated.report.matches.get(rule.name, 0)
        if modular and (culprit := audit(saturated, samples=4)) is not None:
            return f"L6 audit: {culprit}"
        if (why := disagreement(rule, program, saturated, inputs)) is not None:
            return why
    if not matched:
        raise Abstains("egglog never matched it")
    return None


def disagreement(rule: Rule, program: TermProgram, saturated: Saturated, inputs: Mapping[str, Any], count: int = 3) -> str | None:
    """How one of ``count`` random extractions differs from the program, if one does."""
    exact = rule.rounding is Rounding.EXACT
    wanted = evaluate.run(program, inputs, float64=not exact)
    for seed in range(count):
        chosen = zip(program.results, random_terms(saturated, Random(seed)), strict=True)
        found = evaluate.run(replace(program, results=tuple(replace(r, val=v) for r, v in chosen)), inputs, float64=not exact)
        for want, got in zip(wanted, found, strict=True):
            peak = float(np.max(np.abs(want), initial=1.0, where=np.isfinite(want))) if want.dtype.kind == "f" else 1.0
            left = floats.Peak(2**10 * peak)  # intermediates exceed the result by less, on operands of order 1
            sides = floats.Sides(want, got, left, floats.Peak())
            why = floats.same_bits(want, got) if exact else floats.same_number(rule, sides)
            if why is not None:
                return f"an extracted term differs: {why}"
    return None


def _is_modular(rule: Rule, draw: Draw) -> bool:
    try:
        return field.refutes(rule, draw) is None
    except Abstains:
        return False


def _arguments(rule: Rule, draw: Draw) -> dict[str, Any]:
    table = AxisTable()
    for extent in draw.extents:
        table.add(extent)

    def loaded(name: str, dtype: str, mask: int) -> Built:
        axes = table.of(mask)
        buffer = InputBuf(name, tuple(a.extent for a in axes), dtype)
        return Built(tm.load(buffer, tuple(var(a.name) for a in axes), mask), table)

    return arguments(rule, draw, loaded)


def _program(rule: Rule, draw: Draw, side: Built, env: Mapping[str, Any]) -> TermProgram:
    """One result, and its sum over each axis set where the guard asks for one."""
    values = [side]
    if any(guard.method == "summed_over" for guard in record(rule).when):
        values += [side.sum(arg) for arg in env.values() if isinstance(arg, AxisSet)]
    table = side.table
    results = []
    for n, v in enumerate(values):
        axes = tuple(table.of(v.val.free))
        results.append(Result(v.val, axes, tuple(a.extent for a in axes), f"r{n}"))
    buffers = (v.val.attr[0] for v in env.values() if isinstance(v, Built))
    return TermProgram(table, tuple(results), (), (), tuple(buffers))


def random_terms(s: Saturated, rng: Random) -> list[tm.Val]:
    """One term for each result, by a random member of every class: the cheapest under random weights, which has no cycle."""
    cost = [inf] * len(s.classes)
    chosen: dict[int, ENode] = {}
    weight = {(cls, n): 0.01 + rng.random() for cls, nodes in enumerate(s.classes) for n in range(len(nodes))}
    changed = True
    while changed:
        changed = False
        for (cls, n), own in weight.items():
            node = s.classes[cls][n]
            total = own + max((cost[c] for c in node.children), default=0.0)
            if total < cost[cls]:
                cost[cls], chosen[cls], changed = total, node, True
    terms: dict[int, tm.Val] = {}
    for cls in sorted(chosen, key=cost.__getitem__):
        terms[cls] = _term(s, cls, chosen[cls], [terms[c] for c in chosen[cls].children])
    return [terms[root] for root in s.roots]


def _term(s: Saturated, cls: int, node: ENode, args: Sequence[tm.Val]) -> tm.Val:
    match node.op:
        case "lit":
            return tm.lit(s.dtype[cls], node.attr)
        case "count":
            return tm.number(s.dtype[cls], s.axes.points(node.attr))
        case "iota":
            return tm.iota(node.attr, s.axes.mask(node.attr))
        case "load":
            idxs = node.attr[-1]
            mask = reduce(int.__or__, map(s.axes.mask, idxs), 0)
            if node.attr[0] == "stored":
                return tm.load(Stored(args[-1], node.attr[1]), idxs, mask, tuple(args[:-1]))
            return tm.load(node.attr[0], idxs, mask, tuple(args))
    name, mask = node.attr or ("", 0)
    return tm.computed(node.op, s.dtype[cls], name, mask, args)
