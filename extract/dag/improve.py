"""Local improvement: choose again with one class made free, on the small part of the e-graph whose trees are nearly the cheapest.

Sharing pays only when several classes turn to the same one at once; with that class free, the greedy makes them all turn.
"""

from __future__ import annotations

import time

from emmy_eq.extract.dag.egraph import closure
from emmy_eq.extract.dag.greedy import greedy
from emmy_eq.extract.dag.incumbent import Incumbent, leaning
from emmy_eq.extract.dag.reduce import Reduced

SWEEPS = 4


def improve(known: Incumbent, level: Reduced, seconds: float) -> None:
    """Offer what the greedy finds with each class of the level free in turn, until a sweep finds nothing."""
    graph, until = level.graph, time.perf_counter() + min(seconds, known.left())
    known.offer(closure(graph, greedy(graph), graph.roots), level)
    for _ in range(SWEEPS):
        before = known.cost
        for members in graph.members:
            if time.perf_counter() > until:
                return
            used = set(known.best.values())
            prices = leaning(graph, [0.5 if level.node_of[n] in used else 0.0 for n in range(len(graph.cost))])
            for node in members:
                prices[node] = 0.0
            known.offer(closure(graph, greedy(graph, prices), graph.roots), level)
        if known.cost == before:
            return
