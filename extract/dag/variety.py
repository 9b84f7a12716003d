"""Several good choices instead of one, for a judge that knows more than the cost: a measurement, a second objective."""

from __future__ import annotations

import time
from dataclasses import replace

from emmy_eq.extract.dag.egraph import Choice, EGraph, closure, dag_cost, tree_costs
from emmy_eq.extract.dag.greedy import greedy
from emmy_eq.extract.dag.incumbent import leaning
from emmy_eq.extract.dag.solve import extract


def k_best(graph: EGraph, k: int, seconds: float = 10.0, apart: int = 1) -> list[Choice]:
    """At most k distinct choices, cheapest first, each at least ``apart`` classes from every one before it.

    The first is that of ``extract``, with half of the time.  Every other one is the best found without one node of an earlier one, so it is
    near the best of its kind but not proved to be next in rank.
    """
    start = time.perf_counter()
    kept = [extract(graph, seconds / 2).choice]
    pool: list[tuple[float, int, Choice]] = []
    while len(kept) < k:
        for cls, node in sorted(kept[-1].items(), key=lambda item: (-graph.cost[item[1]], item[0])):
            if time.perf_counter() - start > seconds:
                break
            other = without(graph, cls, node, kept[-1])
            if other is not None:
                pool.append((dag_cost(graph, other), len(pool), other))
        pool = [entry for entry in pool if all(distance(entry[2], seen) >= apart for seen in kept)]
        if not pool:
            break
        pool.sort(key=lambda entry: entry[:2])
        kept.append(pool.pop(0)[2])
    return sorted(kept, key=lambda choice: dag_cost(graph, choice))


def without(graph: EGraph, cls: int, node: int, near: Choice) -> Choice | None:
    """The cheaper of two greedy choices that avoid a node: one from nothing, one that keeps to ``near`` where it can."""
    members = list(graph.members)
    members[cls] = tuple(n for n in members[cls] if n != node)
    left = replace(graph, members=tuple(members))
    if not members[cls] or any(root not in tree_costs(left)[1] for root in graph.roots):
        return None
    used = set(near.values())
    keeping = leaning(left, [1.0 if n in used else 0.0 for n in range(len(graph.cost))])
    found = [closure(graph, greedy(left, prices), graph.roots) for prices in (None, keeping)]
    return min(found, key=lambda choice: dag_cost(graph, choice))


def distance(one: Choice, other: Choice) -> int:
    """Classes in which two choices differ, unused ones included."""
    return sum(one.get(cls) != other.get(cls) for cls in one.keys() | other.keys())
