"""A rule tested from itself: every layer, on random arguments, up to the first counterexample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from emmy_eq.rule import Rule
from emmy_eq.verify import extractions, floats, order, solver, typed
from emmy_eq.verify import field as modular
from emmy_eq.verify.draws import Abstains, Draw, Values, draws
from emmy_eq.verify.recorded import calls, record

Layer = Callable[[Rule, Draw], str | None]  # why the draw refutes the rule, or None; may raise `Abstains`

TYPING, FIELD, ORDER, SOLVER, FLOATS, EXTRACTIONS = "L0 typing", "L1 field", "L2 order", "L3 solver", "L4 floats", "L5/L6 e-graph"
SATURATIONS = 4  # programs of L5 in which egglog matched the rule
_ORDERED_OPS = frozenset({"maximum", "minimum", "abs", "sign", "lt", "le", "gt", "ge"})
_ORDERED_MONOIDS = frozenset({"max", "min"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """``draws``: on how many the guard held.  ``layer`` refuted the rule on ``counterexample``, where one did.

    ``layers`` says what each layer found: ``60 draws``, ``proved``, or why it abstained.
    """

    rule: str
    draws: int
    layer: str | None = None
    counterexample: Draw | None = None
    why: str = ""
    layers: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return self.layer is None and self.draws > 0


def layers() -> Mapping[str, Layer]:
    """The layers that work on a draw, cheapest first."""
    return {TYPING: typed.refutes, ORDER: order.refutes, FIELD: modular.refutes, FLOATS: floats.refutes}


def check_rule(rule: Rule, count: int = 60, seed: int = 0) -> Verdict:
    """``rule`` in all layers that need no other rules: on draws, by z3, and in an e-graph of its own.

    A verdict with no draws means that the guard never held: nothing was tested, and the rule does not hold.
    """
    verdict = check_on_draws(rule, count, seed)
    for name, layer in ((SOLVER, _solved), (EXTRACTIONS, _extracted)):
        if verdict.holds:
            verdict = layer(rule, verdict, name, seed)
    return verdict


def check_on_draws(rule: Rule, count: int, seed: int = 0, values: Values = "any", using: Mapping[str, Layer] | None = None) -> Verdict:
    """``rule`` on up to ``count`` draws where its guard holds, out of 40 times as many; ``using`` fewer layers than all.

    L1 knows the order as a lattice without addition, so that it refutes true rules such as max(a + c) = max(a) + c.  Where a rule
    has an order and L2, which knows both, finds that it holds on a draw, L1 abstains.
    """
    using = using or layers()
    said: dict[str, Counter[str]] = {name: Counter() for name in using}
    held = 0
    for draw in _held(rule, 40 * count, seed, values):
        if held == count:
            break
        held += 1
        for name, refutes in using.items():
            try:
                why = refutes(rule, draw)
            except Abstains as reason:
                said[name][str(reason)] += 1
                continue
            if why is not None and name == FIELD and has_order(rule) and said[ORDER]["holds"] and _speaks(rule, draw):
                said[name]["the order meets arithmetic: see L2"] += 1
            elif why is not None:
                return Verdict(rule.name, held, name, draw, why)
            else:
                said[name]["holds"] += 1
    return Verdict(rule.name, held, layers={name: _summary(counts) for name, counts in said.items()})


def has_order(rule: Rule) -> bool:
    """Whether either side compares or takes a greatest or least value."""
    recording = record(rule)
    ops = {c.args[1] for c in calls(recording, "_op")}
    monoids = {str(c.args[1]) for c in calls(recording, "_reduce", "_scan")}
    return bool(ops & _ORDERED_OPS or monoids & _ORDERED_MONOIDS or any(kind == "monoid" for _, kind in rule.args))


def _speaks(rule: Rule, draw: Draw) -> bool:
    try:
        return order.refutes(rule, draw) is None
    except Abstains:
        return False


def _held(rule: Rule, tries: int, seed: int, values: Values = "any") -> Iterator[Draw]:
    """The draws on which the guard holds."""
    return (replace(draw, values=values) for draw in islice(draws(rule, seed), tries) if _holds(rule, draw))


def _holds(rule: Rule, draw: Draw) -> bool:
    try:
        return all(modular.residues(rule, draw).when)
    except Abstains:
        return False


def _summary(counts: Counter[str]) -> str:
    reasons = [reason for reason, _ in counts.most_common() if reason != "holds"]
    if not counts["holds"]:
        return f"abstains: {reasons[0]}" if reasons else "not run"
    return f"{counts['holds']} draws" + (f", else abstains: {reasons[0]}" if reasons else "")


def _solved(rule: Rule, so_far: Verdict, name: str, seed: int) -> Verdict:
    try:
        why = solver.refutes(rule)
    except Abstains as reason:
        return replace(so_far, layers={**so_far.layers, name: f"abstains: {reason}"})
    if why is not None:
        return replace(so_far, layer=name, why=why)
    return replace(so_far, layers={**so_far.layers, name: "proved"})


def _extracted(rule: Rule, so_far: Verdict, name: str, seed: int) -> Verdict:
    matched, reason = 0, ""
    for draw in islice(_held(rule, 4_000, seed), 60):
        if matched == SATURATIONS:
            break
        try:
            why = extractions.refutes(rule, draw)
        except Abstains as abstained:
            reason = str(abstained)
            continue
        if why is not None:
            return replace(so_far, layer=name, counterexample=draw, why=why)
        matched += 1
    if not matched:
        return replace(so_far, layer=name, why=reason)
    return replace(so_far, layers={**so_far.layers, name: f"{matched} saturations"})
