"""From an e-graph to a choice with a bound: greedy, then small parts solved exactly, then the reduced whole, while time lasts."""

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

GREEDY = 0.5  # of the time in all
SKETCH = 0.35  # of the time left after it
PROOF = 0.6  # of the time left after both
REDUCE_PACE = 25  # times what the costs of trees take: a round of reduction
SLICE = 0.3  # of the time left, for one part without a solver
SHARES = (0.03, 0.1)  # of the known cost, by which a node's cheapest tree may exceed its class's, part by part
LARGE = 4000  # nodes of a part from which on that takes too long
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
    pace = (time.perf_counter() - start) / len(graph.cost)  # of this machine, as busy as it is: what follows takes multiples of it
    floor = path_cost(graph)
    simple = closure(graph, greedy(graph, until=start + GREEDY * seconds), graph.roots)
    base = dag_cost(graph, simple)
    best = min(simple, closure(graph, tree, graph.roots), key=lambda choice: dag_cost(graph, choice))
    known = Incumbent(graph, best, floor, start + seconds, pace)
    if not known.done():
        (search if solver() else improved)(known, whole_graph(graph))
    cost = check(graph, known.best)
    return Extraction(known.best, cost, min(round_up(graph, known.bound), cost), base, time.perf_counter() - start)


def search(known: Incumbent, level: Reduced) -> None:
    """Good choices first, from small parts of the e-graph; then what is left of it after reduction, and the proof; then more parts."""
    from emmy_eq.extract.dag.exact import exact
    from emmy_eq.extract.dag.neighbours import Neighbours

    neighbours = Neighbours(known)
    neighbours.search(level, time.perf_counter() + SKETCH * known.left(), 4)
    small = reduced(known, level)
    exact(known, small, time.perf_counter() + PROOF * known.left())
    neighbours.search(small, known.deadline, 10_000)


def improved(known: Incumbent, level: Reduced) -> None:
    """Without a solver: the greedy over and over, on small parts."""
    likely = tree_excess(level.graph)
    for share in SHARES:
        part = known.narrow(level, likely, share * known.cost)
        if part is not None and len(part.graph.cost) < LARGE:
            improve(known, part, SLICE * known.left())
    reduced(known, level)


def reduced(known: Incumbent, level: Reduced) -> Reduced:
    """What is left after reduction, and what that proves; the level itself where there is no time for it."""
    if known.done() or known.left() < REDUCE_PACE * known.pace * len(level.graph.cost):
        return level
    small = reduce(level.graph, time.perf_counter() + REDUCE * known.left())
    known.prove(forced_cost(small))
    known.offer(closure(small.graph, greedy(small.graph, until=known.deadline), small.graph.roots), small)
    return small


def solver() -> bool:
    return importlib.util.find_spec("highspy") is not None


def path_cost(graph: EGraph) -> float:
    """A bound that needs next to no time: the dearest path of some root's cheapest choice."""
    paths, _ = tree_costs(graph, combine=max)
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
