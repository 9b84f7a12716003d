"""Greedy DAG extraction: classes are settled in the order of their DAG cost, given what was settled before.

The cost of a node over settled children is at least that of its dearest child, so each class is settled once, as in Knuth's
algorithm, and no choice has a cycle.  A settled class holds the set of classes below it as the bits of one integer, numbered in
the order of settling.  Where those sets outgrow the memory or the time, the classes that are left take their cheapest trees: these
stand on settled classes or on each other, in the order of Knuth's algorithm, so there still is no cycle.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence

import numpy as np

from emmy_eq.extract.dag.egraph import Choice, EGraph, tree_costs

FEW = 24  # from here on numpy sums a set of bits faster than a loop does
MOST_BITS = 1 << 32  # of all sets together: half a GiB


def greedy(graph: EGraph, prices: Sequence[float] | None = None, until: float = math.inf) -> Choice:
    """A choice for every class that has one.  ``prices`` stand in for the nodes' costs; ``until`` is a time of perf_counter."""
    owner, users, cost_of = graph.owners, graph.users, graph.cost if prices is None else prices
    waits = [len(children) for children in graph.children]
    order: dict[int, int] = {}
    below: list[int] = []
    total: list[float] = []
    price = np.zeros(len(graph.members) + 7)  # whole bytes of flags
    choice: Choice = {}

    def union(node: int) -> tuple[float, int]:
        """Cost and set of all that stands below a node whose children are settled."""
        places = sorted((order[child] for child in graph.children[node]), key=total.__getitem__, reverse=True)
        if not places:
            return 0.0, 0
        cost, bits = total[places[0]], below[places[0]]
        for place in places[1:]:
            extra = below[place] & ~bits
            if extra:
                cost += weight(extra)
                bits |= extra
        return cost, bits

    def weight(bits: int) -> float:
        if bits.bit_count() < FEW:
            out = 0.0
            while bits:
                top = bits.bit_length() - 1
                out += price[top]
                bits ^= 1 << top
            return out
        flags = np.unpackbits(np.frombuffer(bits.to_bytes(-(-bits.bit_length() // 8), "little"), np.uint8), bitorder="little")
        return float(price[: len(flags)][flags.view(bool)].sum())

    heap = [(cost_of[n], n, 0) for n, own in enumerate(owner) if own >= 0 and not graph.children[n] and cost_of[n] < math.inf]
    heapq.heapify(heap)
    size = 0
    while heap:
        cost, node, bits = heapq.heappop(heap)
        cls = owner[node]
        if cls in choice:
            continue
        choice[cls] = node
        place = order[cls] = len(below)
        price[place] = cost_of[node]
        size += place if bits else 0
        if size > MOST_BITS or (not place & 255 and time.perf_counter() > until):
            return tree_costs(graph, prices)[1] | choice
        below.append(bits | 1 << place)
        total.append(cost)
        for user in users[cls]:
            waits[user] -= 1
            if waits[user] == 0 and owner[user] not in choice:
                base, under = union(user)
                if base + cost_of[user] < math.inf:
                    heapq.heappush(heap, (base + cost_of[user], user, under))
    return choice
