"""An independent judge of a choice: it shares no code with what makes choices."""

from __future__ import annotations

import math
from collections.abc import Mapping

from emmy_eq.errors import VerifyError
from emmy_eq.extract.dag.egraph import EGraph


def check(graph: EGraph, choice: Mapping[int, int]) -> float:
    """The DAG cost of a choice; VerifyError if it lacks a class that the roots need, picks a foreign node, or has a cycle."""
    done: dict[int, float] = {}
    path: set[int] = set()
    for root in graph.roots:
        stack = [(root, False)]
        while stack:
            cls, leaving = stack.pop()
            if leaving:
                path.discard(cls)
                done[cls] = graph.cost[choice[cls]]
                continue
            if cls in done:
                continue
            if cls in path:
                raise VerifyError("extraction", f"class {cls}", "it needs itself")
            if choice.get(cls) not in graph.members[cls]:
                raise VerifyError("extraction", f"class {cls}", "it has no node of its own chosen")
            path.add(cls)
            stack.append((cls, True))
            stack.extend((child, False) for child in graph.children[choice[cls]] if child not in done)
    total = math.fsum(done.values())
    if not math.isfinite(total):
        raise VerifyError("extraction", "the choice", "its cost is not finite")
    return total
