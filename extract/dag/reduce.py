"""A smaller e-graph with the same cheapest extractions, and the way back.

Four reductions, repeated until nothing changes.  Each keeps at least one cheapest acyclic choice of the roots:
- a class that the roots cannot reach, or that has no finite extraction, goes with the nodes that need it;
- a node goes that stands on its own class in every derivation (see ``must``);
- a node goes when another of its class costs no more, and stands on classes that the first would stand on anyway, or whose
  cheapest trees fit in the difference of the costs;
- a class with one node is absorbed: into whatever uses it if it is free, into its only user otherwise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from emmy_eq.extract.dag.egraph import Choice, EGraph, closure, tree_costs
from emmy_eq.extract.dag.must import below_node, bits, must_sets

FEW = 40  # nodes of a class up to which every pair is compared
ROUNDS = 8
DENSE = 20_000  # above so many classes the sets of ``must`` would take gigabytes in the worst case


@dataclass(frozen=True, slots=True)
class Reduced:
    """``graph`` with its own class and node numbers; ``node_of`` and ``class_of`` give those of the original e-graph."""

    graph: EGraph
    node_of: tuple[int, ...]
    class_of: tuple[int, ...]
    absorbed: Choice
    must: tuple[int, ...]

    def expand(self, choice: Choice, original: EGraph) -> Choice:
        """A choice of the reduced e-graph as one of the original, restricted to what its roots reach."""
        full = self.absorbed | {self.class_of[cls]: self.node_of[node] for cls, node in choice.items()}
        return closure(original, full, original.roots)


class _Work:
    """The e-graph while it shrinks, in the original's numbers."""

    def __init__(self, graph: EGraph) -> None:
        self.graph = graph
        self.cost = list(graph.cost)
        self.children = [set(kids) for kids in graph.children]
        self.members = [list(nodes) for nodes in graph.members]
        self.absorbed: Choice = {}
        self.roots = set(graph.roots)

    def current(self) -> EGraph:
        kids = tuple(tuple(sorted(c)) for c in self.children)
        return EGraph(tuple(self.cost), kids, tuple(map(tuple, self.members)), self.graph.roots)

    def shrink(self) -> tuple[list[float], Choice]:
        """Drop what the roots cannot reach and what has no finite extraction; what is left has these tree costs and cheapest trees."""
        current = self.current()
        tree, finite = tree_costs(current)
        reachable = _reachable(current, finite)
        for cls, nodes in enumerate(self.members):
            self.members[cls] = [n for n in nodes if finite.keys() >= self.children[n]] if cls in reachable else []
        return tree, finite

    def prune(self, must: Sequence[int], tree: Sequence[float], best: Choice, until: float) -> int:
        """Drop self-supporting and dominated nodes; how many."""
        dropped = 0
        rank = {cls: place for place, cls in enumerate(best)}
        for cls, nodes in enumerate(self.members):
            if len(nodes) < 2 or time.perf_counter() > until:
                continue
            below = {n: below_node(self.children[n], must) for n in nodes}
            live = [n for n in nodes if not below[n] >> cls & 1 and self.cost[n] < math.inf]
            kept = self._undominated(live, below)
            rivals = [k for k in kept if all(rank[kid] < rank[cls] for kid in self.children[k])] if len(kept) <= FEW else [best[cls]]
            for node in sorted(kept, key=lambda n: -self.cost[n]):
                if node != best[cls] and any(r != node and self._beaten(node, r, below[node], tree) for r in rivals):
                    kept.remove(node)
                    rivals = [r for r in rivals if r != node]
            self.members[cls] = sorted(kept)
            dropped += len(nodes) - len(self.members[cls])
        return dropped

    def _undominated(self, nodes: list[int], below: dict[int, int]) -> list[int]:
        """Nodes that no other, at most as dear, replaces with classes that stand below anyway."""
        if any(not self.children[n] for n in nodes):
            leaf = min((n for n in nodes if not self.children[n]), key=lambda n: (self.cost[n], n))
            nodes = [n for n in nodes if n == leaf or self.cost[n] < self.cost[leaf]]
        # What dominates at equal cost has no more below it, so it comes first.
        nodes = sorted(nodes, key=lambda n: (self.cost[n], below[n].bit_count(), n))
        kept: list[int] = []
        by_child: dict[int, list[int]] = {}  # a node is found by its highest child: most nodes differ in it
        needs = {n: sum(1 << kid for kid in self.children[n]) for n in nodes}
        keys = 0
        for node in nodes:
            under = below[node]
            if any(needs[other] & ~under == 0 for key in bits(under & keys) for other in by_child[key]):
                continue
            kept.append(node)
            if needs[node]:
                key = needs[node].bit_length() - 1
                by_child.setdefault(key, []).append(node)
                keys |= 1 << key
        return kept

    def _beaten(self, node: int, rival: int, below: int, tree: Sequence[float]) -> bool:
        """Whether a rival with cheapest trees below it, less what stands below the node anyway, costs no more than the node alone.

        The rival's children come before the class in Knuth's order, so their trees do not stand on the class.
        """
        spare = self.cost[node] - self.cost[rival]
        return spare >= 0 and sum(tree[kid] for kid in self.children[rival] if not below >> kid & 1) <= spare

    def absorb(self) -> int:
        """Absorb classes of one node; how many."""
        users: list[dict[int, None]] = [{} for _ in self.members]
        for nodes in self.members:
            for node in nodes:
                for child in self.children[node]:
                    users[child][node] = None
        gone = 0
        for cls, nodes in enumerate(self.members):
            if len(nodes) != 1 or cls in self.roots or not users[cls]:
                continue
            (node,) = nodes
            if node in users[cls] or (self.cost[node] > 0 and len(users[cls]) > 1):
                continue
            for child in self.children[node]:
                del users[child][node]
                users[child] |= users[cls]
            for user in users[cls]:
                self.children[user].discard(cls)
                self.children[user] |= self.children[node]
                self.cost[user] += self.cost[node]
            self.absorbed[cls], self.members[cls] = node, []
            gone += 1
        return gone


def whole_graph(graph: EGraph) -> Reduced:
    """The e-graph itself as a reduction; its ``must`` knows of nothing below a class."""
    return Reduced(
        graph, tuple(range(len(graph.cost))), tuple(range(len(graph.members))), {}, tuple(1 << c for c in range(len(graph.members)))
    )


def compose(outer: Reduced, inner: Reduced) -> Reduced:
    """A reduction of a reduced e-graph as one of the original."""
    absorbed = {outer.class_of[cls]: outer.node_of[node] for cls, node in inner.absorbed.items()}
    node_of, class_of = (outer.node_of[n] for n in inner.node_of), (outer.class_of[c] for c in inner.class_of)
    return Reduced(inner.graph, tuple(node_of), tuple(class_of), outer.absorbed | absorbed, inner.must)


def reduce(graph: EGraph, until: float = math.inf) -> Reduced:
    """The reduced e-graph, as small as it gets by ``until`` (a time of perf_counter); every root of ``graph`` has a finite extraction."""
    work = _Work(graph)
    work.shrink()
    work.absorb()  # before the first prune, which is dearer
    for _ in range(ROUNDS):
        if time.perf_counter() > until:
            break
        tree, finite = work.shrink()
        order = [cls for cls in finite if work.members[cls]]
        must = _must(work.children, work.members, order, until)
        dropped = work.prune(must, tree, finite, until)
        work.absorb()
        if dropped <= 0.03 * sum(map(len, work.members)):
            break
    return _compact(work, until)


def _must(children: Sequence[Collection[int]], members: Sequence[Sequence[int]], order: Sequence[int], until: float) -> list[int]:
    return must_sets(children, members, order, until) if len(order) <= DENSE else [1 << cls for cls in range(len(members))]


def _reachable(graph: EGraph, finite: Choice) -> set[int]:
    seen: set[int] = set()
    stack = list(graph.roots)
    while stack:
        cls = stack.pop()
        if cls in seen:
            continue
        seen.add(cls)
        stack.extend(kid for n in graph.members[cls] if finite.keys() >= set(graph.children[n]) for kid in graph.children[n])
    return seen


def _compact(work: _Work, until: float) -> Reduced:
    _, finite = work.shrink()
    order = [cls for cls in finite if work.members[cls]]
    class_of = tuple(order)
    number = {cls: n for n, cls in enumerate(class_of)}
    node_of = tuple(node for cls in class_of for node in work.members[cls])
    place = {node: n for n, node in enumerate(node_of)}
    children = tuple(tuple(sorted(number[kid] for kid in work.children[node])) for node in node_of)
    members = tuple(tuple(place[node] for node in work.members[cls]) for cls in class_of)
    graph = EGraph(tuple(work.cost[node] for node in node_of), children, members, tuple(number[root] for root in work.graph.roots))
    return Reduced(graph, node_of, class_of, work.absorbed, tuple(_must(children, members, range(len(members)), until)))
