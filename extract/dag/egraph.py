"""An e-graph as arrays: nodes and classes are numbers, a node's children are classes, and only the costs remain of what it means."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

Choice = dict[int, int]  # class -> the node chosen for it


@dataclass(frozen=True)
class EGraph:
    """``members[c]`` are the nodes of class c that may be chosen, ``children[n]`` the distinct child classes of node n, ascending."""

    cost: tuple[float, ...]
    children: tuple[tuple[int, ...], ...]
    members: tuple[tuple[int, ...], ...]
    roots: tuple[int, ...]

    @cached_property
    def owners(self) -> list[int]:
        """The class of each node; -1 for a node that may not be chosen."""
        owner = [-1] * len(self.cost)
        for cls, nodes in enumerate(self.members):
            for node in nodes:
                owner[node] = cls
        return owner

    @cached_property
    def users(self) -> list[list[int]]:
        """For each class the nodes that have it as a child."""
        out: list[list[int]] = [[] for _ in self.members]
        for nodes in self.members:
            for node in nodes:
                for child in self.children[node]:
                    out[child].append(node)
        return out


def closure(graph: EGraph, choice: Mapping[int, int], roots: Iterable[int]) -> Choice:
    """The part of a choice that the roots reach; KeyError where a class that they need has no node."""
    out: Choice = {}
    stack = list(roots)
    while stack:
        cls = stack.pop()
        if cls not in out:
            out[cls] = choice[cls]
            stack.extend(graph.children[choice[cls]])
    return out


def dag_cost(graph: EGraph, choice: Mapping[int, int]) -> float:
    """Sum of the nodes that the roots reach, each class once; rounded once, so the order of the classes does not matter."""
    return math.fsum(graph.cost[node] for node in closure(graph, choice, graph.roots).values())


def cyclic_classes(graph: EGraph, choice: Mapping[int, int]) -> set[int]:
    """Classes of a closed choice that lie on a cycle or above one: what is left when leaves are peeled off."""
    waits = {cls: len(graph.children[node]) for cls, node in choice.items()}
    above: dict[int, list[int]] = {cls: [] for cls in choice}
    for cls, node in choice.items():
        for child in graph.children[node]:
            above[child].append(cls)
    ready = [cls for cls, count in waits.items() if count == 0]
    while ready:
        cls = ready.pop()
        del waits[cls]
        for user in above[cls]:
            waits[user] -= 1
            if waits[user] == 0:
                ready.append(user)
    return set(waits)


def tree_costs(
    graph: EGraph, prices: Sequence[float] | None = None, combine: Callable[[Iterable[float]], float] = sum
) -> tuple[list[float], Choice]:
    """Knuth's generalization of Dijkstra: the least cost of each class as a tree, and the choice, in the order of derivation.

    A class that has no finite extraction costs infinity and is not in the choice.  ``prices`` stand in for the nodes' costs.  With
    ``max`` to combine the children, the cost is that of the dearest path, which no DAG goes below.
    """
    owner, users, children, price = graph.owners, graph.users, graph.children, graph.cost if prices is None else prices
    best = [math.inf] * len(graph.members)
    choice: Choice = {}
    waits = list(map(len, children))
    heap = [(price[n], n) for n, own in enumerate(owner) if own >= 0 and not children[n] and price[n] < math.inf]
    heapq.heapify(heap)
    push, pop = heapq.heappush, heapq.heappop
    while heap:
        cost, node = pop(heap)
        cls = owner[node]
        if cls in choice:
            continue
        choice[cls], best[cls] = node, cost
        for user in users[cls]:
            waits[user] -= 1
            if not waits[user] and owner[user] not in choice:
                total = price[user] + combine([best[child] for child in children[user]])
                if total < math.inf:
                    push(heap, (total, user))
    return best, choice


def from_rows(rows: Sequence[tuple[int, float, Iterable[int]]], roots: Iterable[int], classes: int) -> EGraph:
    """An e-graph from (class, cost, child classes) rows, one a node; a row of class -1 may not be chosen."""
    members: list[list[int]] = [[] for _ in range(classes)]
    for node, (cls, _, _) in enumerate(rows):
        if cls >= 0:
            members[cls].append(node)
    children = tuple([tuple(sorted(set(kids))) for _, _, kids in rows])
    return EGraph(tuple(cost for _, cost, _ in rows), children, tuple(map(tuple, members)), tuple(dict.fromkeys(roots)))
