"""The best choice so far, and the parts of an e-graph that are worth a closer look."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence

from emmy_eq.extract.dag.egraph import Choice, EGraph, cyclic_classes, dag_cost, from_rows, tree_costs
from emmy_eq.extract.dag.reduce import Reduced, compose, reduce

CLOSE = 1e-9  # relative difference of costs that counts as none
REDUCE = 0.4  # of the time left, for a reduction


class Incumbent:
    """The best choice so far, in the numbers of ``graph``, its cost and the bound.

    ``deadline`` is a time of perf_counter; ``pace``: seconds a node for the costs of trees.
    """

    def __init__(self, graph: EGraph, best: Choice, bound: float, deadline: float, pace: float) -> None:
        self.graph, self.best, self.bound, self.deadline, self.pace = graph, best, bound, deadline, pace
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
        """The nodes of at most so much excess, and those of the best choice; None if they have no choice for the roots."""
        used = set(self.best.values())
        keep = [n for n, full in enumerate(level.node_of) if full in used]
        part = restricted(level.graph, reach(level.graph, excess, spare + 1e-6 * self.cost, keep))
        if part is None:
            return None
        return compose(level, compose(part, reduce(part.graph, time.perf_counter() + REDUCE * self.left())))


def reach(graph: EGraph, excess: Sequence[float], limit: float, keep: Iterable[int], most: float = math.inf) -> dict[int, list[int]] | None:
    """Classes below the roots, with their nodes of at most ``limit`` excess and those to keep; None where these are more than ``most``."""
    kept = set(keep)
    out: dict[int, list[int]] = {}
    stack = list(graph.roots)
    size = 0
    while stack:
        cls = stack.pop()
        if cls in out:
            continue
        out[cls] = [n for n in graph.members[cls] if excess[n] <= limit or n in kept]
        size += len(out[cls])
        if size > most:
            return None
        for node in out[cls]:
            stack.extend(graph.children[node])
    return out


def restricted(graph: EGraph, chosen: Mapping[int, Sequence[int]] | None) -> Reduced | None:
    """The e-graph of these classes and nodes alone; None if they have no choice for the roots."""
    if chosen is None:
        return None
    class_of = tuple(sorted(chosen))
    number = {cls: n for n, cls in enumerate(class_of)}
    node_of = tuple(node for cls in class_of for node in chosen[cls])
    rows = [(number[graph.owners[node]], graph.cost[node], [number[kid] for kid in graph.children[node]]) for node in node_of]
    part = from_rows(rows, (number[root] for root in graph.roots), len(class_of))
    _, finite = tree_costs(part)
    if any(root not in finite for root in part.roots):
        return None
    return Reduced(part, node_of, class_of, {}, tuple(1 << c for c in range(len(class_of))))


def tree_excess(graph: EGraph, prices: Sequence[float] | None = None) -> list[float]:
    """By how much the cheapest tree with a node is dearer than its class's cheapest tree."""
    price = graph.cost if prices is None else prices
    tree, _ = tree_costs(graph, price)
    dear = [cost + sum([tree[kid] for kid in kids]) for cost, kids in zip(price, graph.children, strict=True)]
    return [whole - tree[cls] if cls >= 0 and whole < math.inf else math.inf for whole, cls in zip(dear, graph.owners, strict=True)]


def leaning(graph: EGraph, x: Sequence[float]) -> list[float]:
    """The nodes' costs, made cheap as far as a point of the program chooses them."""
    return [cost * max(0.0, 1.0 - amount) for cost, amount in zip(graph.cost, x, strict=True)]
