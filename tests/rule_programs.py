"""Shared by the tests of rules, e-graph and audit: programs by hand, and what a saturated class holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from math import inf
from random import Random

from emmy_eq import rules
from emmy_eq import terms as tm
from emmy_eq.egraph import ENode, Saturated, saturate
from emmy_eq.lower.builder import Builder, Value
from emmy_eq.terms import Stored, Val
from emmy_eq.to_terms import to_terms

from .term_checks import program


def saturated(b: Builder, *outputs: Value, accuracy: str = "default") -> Saturated:
    """``outputs`` with all their equal forms."""
    return saturate(to_terms(program(b, *outputs)), rules.active(accuracy))


def members(s: Saturated, cls: int, op: str) -> list[ENode]:
    """Those of ``cls`` with that op."""
    return [n for n in s.classes[cls] if n.op == op]


def through(s: Saturated, cls: int, ops: tuple[str, ...]) -> Iterator[int]:
    """Classes that some member of ``cls`` reaches along children by members of the ops named in turn."""
    if not ops:
        yield cls
        return
    for node in members(s, cls, ops[0]):
        for child in node.children:
            yield from through(s, child, ops[1:])


def masks_of_sums(s: Saturated, cls: int) -> set[int]:
    """The axis sets that members of ``cls`` sum over."""
    return {n.attr[1] for n in members(s, cls, "reduce") if n.attr[0] == "sum"}


def random_terms(s: Saturated, rng: Random) -> list[Val]:
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
    terms: dict[int, Val] = {}
    for cls in sorted(chosen, key=cost.__getitem__):
        terms[cls] = _term(s, cls, chosen[cls], terms)
    return [terms[root] for root in s.roots]


def _term(s: Saturated, cls: int, node: ENode, terms: Mapping[int, Val]) -> Val:
    args = [terms[c] for c in node.children]
    match node.op:
        case "lit":
            return tm.lit(s.dtype[cls], node.attr)
        case "iota":
            return tm.iota(node.attr, s.axes.mask(node.attr))
        case "cast":
            return tm.cast(args[0], s.dtype[cls])
        case "reduce":
            return tm.reduce(node.attr[0], args[0], node.attr[1])
        case "argreduce":
            return tm.argreduce(node.attr[0], args[0], node.attr[1])
        case "scan":
            return tm.scan(node.attr[0], args[0], node.attr[1])
        case "twist":
            return tm.twist(node.attr[0], args[0], args[1], node.attr[1])
        case "load":
            idxs = node.attr[-1]
            mask = reduce(int.__or__, map(s.axes.mask, idxs), 0)
            if node.attr[0] == "stored":
                return tm.load(Stored(args[-1], node.attr[1]), idxs, mask, tuple(args[:-1]))
            return tm.load(node.attr[0], idxs, mask, tuple(args))
    return tm.apply(node.op, *args)
