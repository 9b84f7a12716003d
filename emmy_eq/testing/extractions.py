"""L5: random terms of a saturated e-graph's classes, each of which must give the class's value."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from math import inf
from random import Random

from emmy_eq import terms as tm
from emmy_eq.egraph import ENode, Saturated
from emmy_eq.terms import Stored, Val


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
