"""Random small e-graphs, with cycles, and the cheapest choice of each by trying all."""

from __future__ import annotations

import itertools
import math

from hypothesis import strategies as st

from emmy_eq.errors import VerifyError
from emmy_eq.extract.dag import EGraph, check
from emmy_eq.extract.dag.egraph import from_rows

COSTS = (0.0, 0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 7.0)


@st.composite
def egraphs(draw: st.DrawFn, costs: tuple[float, ...] = COSTS) -> EGraph:
    classes = draw(st.integers(1, 7))
    rows: list[tuple[int, float, list[int]]] = []
    for cls in range(classes):
        for _ in range(draw(st.integers(1, 3))):
            kids = draw(st.lists(st.integers(0, classes - 1), max_size=3))
            rows.append((cls, draw(st.sampled_from(costs)), kids))
    roots = draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=3))
    return from_rows(rows, roots, classes)


def cheapest(graph: EGraph) -> float:
    """Infinity if no choice is valid."""
    best = math.inf
    for nodes in itertools.product(*graph.members):
        try:
            best = min(best, check(graph, dict(enumerate(nodes))))
        except VerifyError:
            continue
    return best
