"""The best choice so far, and the parts of an e-graph that are worth a closer look."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from emmy_eq.extract.dag.egraph import Choice, EGraph, cyclic_classes, dag_cost, from_rows, tree_costs
from emmy_eq.extract.dag.reduce import Reduced, compose, reduce

CLOSE = 1e-9  # relative difference of costs that counts as none
REDUCE = 0.4  # of the time left, for a reduction


class Incumbent:
    """The best choice so far, in the numbers of ``graph``, its cost and the bound; ``deadline`` is a time of perf_counter."""

    def __init__(self, graph: EGraph, best: Choice, bound: float, deadline: float) -> None:
        self.graph, self.best, self.bound, self.deadline = graph, best, bound, deadline
        self.cost = dag_cost(graph, best)

    def done(self) -> bool:
        return self.cost - self.bound <= CLOSE * self.cost or self.left() <= 0

    def left(self) -> float:
        return self.deadline - time.perf_counter()

    def prove(self, floor: float) -> None:
        """No choice is cheaper than ``floor``, or than the one that is known."""
        self.bound = max(self.bound, min(floor, self.cost))

    def offer(self, choice: Choice, level: Reduced) -> None:
        """Take a choice of a level if it is acyclic and cheaper."""
        full = level.expand(choice, self.graph)
        cost = dag_cost(self.graph, full)
        if cost < self.cost and not cyclic_classes(self.graph, full):
            self.best, self.cost = full, cost

    def narrow(self, level: Reduced, excess: Sequence[float], spare: float) -> Reduced | None:
        """The nodes of at most so much reduced cost, and those of the best choice; None if they have no choice for the roots."""
        used = set(self.best.values())
        owner, limit = level.graph.owners(), spare + 1e-6 * self.cost
        rows = [
            (owner[n] if over <= limit or level.node_of[n] in used else -1, cost, kids)
            for n, (over, cost, kids) in enumerate(zip(excess, level.graph.cost, level.graph.children, strict=True))
        ]
        part = from_rows(rows, level.graph.roots, len(level.graph.members))
        _, finite = tree_costs(part)
        return (
            compose(level, reduce(part, time.perf_counter() + REDUCE * self.left())) if all(root in finite for root in part.roots) else None
        )


def tree_excess(graph: EGraph) -> list[float]:
    """By how much the cheapest tree with a node is dearer than its class's cheapest tree."""
    tree, _ = tree_costs(graph)
    owner = graph.owners()
    dear = [cost + sum(tree[kid] for kid in graph.children[node]) for node, cost in enumerate(graph.cost)]
    return [whole - tree[cls] if cls >= 0 and whole < math.inf else math.inf for whole, cls in zip(dear, owner, strict=True)]


def leaning(graph: EGraph, x: Sequence[float]) -> EGraph:
    """The same e-graph with nodes made cheap as far as a point of the program chooses them."""
    return replace(graph, cost=tuple(cost * max(0.0, 1.0 - amount) for cost, amount in zip(graph.cost, x, strict=True)))
