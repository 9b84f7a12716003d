"""From an e-graph to a choice with a bound: reduce, choose greedily, then relax, restrict and solve in turn while time lasts."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.dag.check import check
from emmy_eq.extract.dag.egraph import Choice, EGraph, closure, dag_cost, tree_costs
from emmy_eq.extract.dag.greedy import greedy
from emmy_eq.extract.dag.improve import improve
from emmy_eq.extract.dag.incumbent import REDUCE, Incumbent, tree_excess
from emmy_eq.extract.dag.must import below_node, bits
from emmy_eq.extract.dag.reduce import Reduced, reduce, whole_graph

SLICE = 0.3  # of the time left, for the program of one part
SHARES = (0.03, 0.1)  # of the known cost, by which a node's cheapest tree may exceed its class's, part by part
LARGE = 4000  # nodes of a part up to which it is worth a look before the whole is relaxed
EXACT = 1e-9  # relative: what the last digits of a sum of floats may differ by


@dataclass(frozen=True, slots=True)
class Extraction:
    """A valid choice for the classes that the roots reach, its DAG cost, and a proved bound below every choice's cost."""

    choice: Choice
    dag_cost: float
    lower_bound: float
    greedy_cost: float
    seconds: float

    @property
    def gap(self) -> float:
        """How much dearer than the cheapest choice it is at most, as a fraction."""
        return 0.0 if self.dag_cost == 0 else (self.dag_cost - self.lower_bound) / self.dag_cost

    @property
    def proved(self) -> bool:
        return self.gap <= EXACT


def extract(graph: EGraph, seconds: float = 10.0, names: Sequence[str] = ()) -> Extraction:
    """The cheapest choice found within ``seconds``; InvalidInput, by the class's name, if a root has no finite extraction."""
    start = time.perf_counter()
    _, tree = tree_costs(graph)
    lost = next((root for root in graph.roots if root not in tree), None)
    if lost is not None:
        raise InvalidInput(
            f"root {names[lost] if names else f'class {lost}'}",
            "it has no finite extraction: every node of it needs itself, or costs infinity",
        )
    simple = closure(graph, greedy(graph), graph.roots)
    base = dag_cost(graph, simple)
    best = min(simple, closure(graph, tree, graph.roots), key=lambda choice: dag_cost(graph, choice))
    known = Incumbent(graph, best, path_cost(graph), start + seconds)
    sketch(known, whole_graph(graph))
    if not known.done():
        prove(known, reduce(graph, time.perf_counter() + REDUCE * known.left()))
    cost = check(graph, known.best)
    return Extraction(known.best, cost, min(round_up(graph, known.bound), cost), base, time.perf_counter() - start)


def sketch(known: Incumbent, level: Reduced) -> None:
    """Look for better choices where trees are nearly the cheapest: a small part of a large e-graph, which often holds the best one."""
    likely = tree_excess(level.graph)
    seen = 0
    for share in SHARES:
        part = None if known.done() else known.narrow(level, likely, share * known.cost)
        if part is None or len(part.graph.cost) <= seen:
            return
        seen = len(part.graph.cost)
        if seen > LARGE and share > SHARES[0]:
            return
        improve(known, part, (0.02 if solver() else 0.2) * known.left())
        if solver():
            from emmy_eq.extract.dag.exact import whole

            whole(known, part, SLICE * known.left())


def prove(known: Incumbent, small: Reduced) -> None:
    """Search for what is cheaper in a reduced e-graph, and for the proof that nothing is."""
    known.prove(forced_cost(small))
    known.offer(closure(small.graph, greedy(small.graph), small.graph.roots), small)
    if solver():
        from emmy_eq.extract.dag.exact import search

        search(known, small)


def solver() -> bool:
    return importlib.util.find_spec("highspy") is not None


def path_cost(graph: EGraph) -> float:
    """A bound that needs next to no time: the dearest path of some root's cheapest choice."""
    paths, _ = tree_costs(graph, max)
    return max(paths[root] for root in graph.roots)


def forced_cost(small: Reduced) -> float:
    """A bound that needs no solver: every choice pays for the cheapest node of each class that the roots always stand on."""
    cheapest = [min(small.graph.cost[node] for node in nodes) for nodes in small.graph.members]
    return math.fsum(cheapest[cls] for cls in bits(below_node(small.graph.roots, small.must)))


def round_up(graph: EGraph, bound: float) -> float:
    """Whole costs have whole sums; a solver's bound may be off by a rounding error, which must not lift it to the next whole number."""
    if all(cost == math.inf or cost == int(cost) for cost in graph.cost):
        return float(math.ceil(bound - 1e-6 * max(1.0, bound)))
    return bound * (1 - EXACT)
