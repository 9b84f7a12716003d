"""Large neighbourhood search: choose again, with the solver, on a small part of the e-graph around the best choice, time and again.

The part holds the nodes of least excess: what a tree with the node costs above the cheapest tree of its class, where the best choice is
free, since it is paid for already.  Its size follows the solver: a part that was solved fast was too small.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Sequence

import numpy as np

from emmy_eq.extract.dag.egraph import EGraph
from emmy_eq.extract.dag.exact import whole
from emmy_eq.extract.dag.incumbent import Incumbent, reach, restricted, tree_excess
from emmy_eq.extract.dag.reduce import Reduced, compose, reduce

FIRST, LEAST, MOST = 1500, 100, 100_000  # nodes of a part, before its reduction
FAST, SLOW = 0.2, 1.5  # seconds that a part should take


class Neighbours:
    """What stays from part to part."""

    def __init__(self, known: Incumbent) -> None:
        self.known, self.chance, self.size = known, random.Random(0), FIRST

    def search(self, level: Reduced, until: float, turns: int) -> None:
        """Look at so many parts, as long as there is time to ``until`` (of perf_counter).

        First where trees are cheap in themselves; then around the whole of the best choice; then around parts of it, by chance.
        """
        known, graph = self.known, level.graph
        if until - time.perf_counter() < 3 * known.pace * len(graph.cost):
            return
        cost, excess, keep = math.inf, tree_excess(graph), list[int]()
        for turn in range(turns):
            if known.done() or time.perf_counter() > until:
                return
            if turn and known.cost < cost:
                used = set(known.best.values())
                keep = [n for n, full in enumerate(level.node_of) if full in used]
                free = set(keep)
                excess = tree_excess(graph, [0.0 if n in free else price for n, price in enumerate(graph.cost)])
                cost = known.cost
            start = time.perf_counter()
            part = self.around(level, excess if turn < 2 else self.elsewhere_fixed(graph, excess, keep), keep)
            if part is None:
                return
            whole(known, part, min(SLOW, until - time.perf_counter()))
            took = time.perf_counter() - start
            if took < FAST:
                self.size = min(MOST, self.size * 2)
            elif took >= SLOW:
                self.size = max(LEAST, self.size // 2)

    def elsewhere_fixed(self, graph: EGraph, excess: Sequence[float], keep: Sequence[int]) -> list[float]:
        """The excess with the choice fixed but for a connected part of it: from a class by chance, its neighbours in the choice first."""
        chosen = {graph.owners[n]: n for n in keep}
        beside: dict[int, list[int]] = {cls: [] for cls in chosen}
        for cls, node in chosen.items():
            for kid in graph.children[node]:
                if kid in chosen:
                    beside[cls].append(kid)
                    beside[kid].append(cls)
        most = max(3, int(len(chosen) * self.chance.choice((0.05, 0.1, 0.2, 0.4))))
        region = dict.fromkeys([self.chance.choice(list(chosen))])
        for cls in (pending := list(region)):
            if len(region) >= most:
                break
            new = [c for c in beside[cls] if c not in region]
            region |= dict.fromkeys(new)
            pending += new
        out = list(excess)
        for cls in chosen:
            if cls not in region:
                for node in graph.members[cls]:
                    out[node] = math.inf
        return out

    def around(self, level: Reduced, excess: Sequence[float], keep: Collection[int]) -> Reduced | None:
        """The largest part of at most ``size`` nodes that holds the best choice and the nodes up to some excess, reduced."""
        limits = np.unique(np.array(excess))
        limits = limits[np.isfinite(limits)]
        low, high = 0, len(limits) - 1
        part = reach(level.graph, excess, float(limits[0]), keep)
        while low < high:
            middle = (low + high + 1) // 2
            found = reach(level.graph, excess, float(limits[middle]), keep, self.size)
            if found is None:
                high = middle - 1
            else:
                low, part = middle, found
        small = restricted(level.graph, part)
        return compose(level, compose(small, reduce(small.graph, self.known.deadline))) if small is not None else None
