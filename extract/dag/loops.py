"""Rows that cyclic choices break, found where an integer program's (fractional) solution breaks them.

A loop formula, as in answer-set programming: for a set U of classes and any j in U, ``y_j <= sum of x_n`` over the nodes n of U's
classes that have nothing of U below them in every derivation.  Of the classes of U that an acyclic choice uses, the lowest one
has such a node.  All loop formulas together are exactly acyclicity; a program starts with none and gets those that it breaks.

A join: ``sum of x_n <= y_d`` over the nodes n of one class that always stand on d.  The program's own rows imply it for whole
solutions only.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from emmy_eq.extract.dag.egraph import Choice, EGraph, cyclic_classes
from emmy_eq.extract.dag.must import below_node, bits

SLACK = 0.02  # a row that is broken by less is not worth adding
LONGEST = 40  # classes on a cycle; longer ones are rare and give weak rows


@dataclass(frozen=True, slots=True)
class Row:
    """``sum of x over nodes <= y of classes``: a class stands on the left (loop formula, negated) or on the right (join)."""

    nodes: tuple[int, ...]
    cls: int
    loop: bool  # y_cls <= sum x; else sum x <= y_cls


class Separator:
    """What stays the same from round to round: the e-graph and what each node always stands on."""

    def __init__(self, graph: EGraph, must: Sequence[int]) -> None:
        self.graph = graph
        self.owner, self.users = graph.owners, graph.users
        self.below = [below_node(children, must) for children in graph.children]

    def loop(self, classes: Collection[int], value: Sequence[float]) -> Row:
        """The loop formula of a set of classes, for its class of the greatest value."""
        shut = set(classes)  # what cannot be derived without the given classes: they too, and what stands on them
        touched: set[int] = set()
        count: dict[int, int] = {}
        pending = sorted(shut)
        while pending:
            for user in self.users[pending.pop()]:
                if user not in touched:
                    touched.add(user)
                    cls = self.owner[user]
                    count[cls] = count.get(cls, 0) + 1
                    if count[cls] == len(self.graph.members[cls]) and cls not in shut:
                        shut.add(cls)
                        pending.append(cls)
        supports = tuple(n for cls in sorted(classes) for n in self.graph.members[cls] if n not in touched)
        return Row(supports, max(sorted(classes), key=lambda cls: value[cls]), loop=True)

    def of_choice(self, choice: Choice) -> list[Row]:
        """Formulas that a cyclic choice breaks, one for each strongly connected part of it."""
        left = cyclic_classes(self.graph, choice)
        steps = {cls: [kid for kid in self.graph.children[choice[cls]] if kid in left] for cls in left}
        value = [1.0] * len(self.graph.members)
        return [self.loop(part, value) for part in components(steps) if len(part) > 1 or part[0] in steps[part[0]]]

    def of_point(self, x: Sequence[float], y: Sequence[float]) -> list[Row]:
        """Formulas that a fractional point breaks, found as short cycles: a step c -> d is as long as c's value without d."""
        steps: dict[int, dict[int, float]] = {}
        for node, amount in enumerate(x):
            if amount > 1e-6:
                step = steps.setdefault(self.owner[node], {})
                for child in self.graph.children[node]:
                    step[child] = step.get(child, 0.0) + amount
        flow = {c: {d: max(0.0, y[c] - amount) for d, amount in s.items()} for c, s in steps.items()}
        rows: dict[tuple[int, ...], Row] = {}
        for part in components({c: [d for d in s if d in flow] for c, s in flow.items()}):
            if len(part) == 1:
                continue
            inside = set(part)
            local = {c: [(d, w) for d, w in sorted(flow[c].items()) if d in inside] for c in part}
            for cls in part:
                cycle = shortest_cycle(local, cls, y[cls] - SLACK)
                key = tuple(sorted(cycle))
                if cycle and key not in rows:
                    row = self.loop(cycle, y)
                    if y[row.cls] - sum(x[n] for n in row.nodes) > SLACK:
                        rows[key] = row
        return list(rows.values())

    def joins(self, x: Sequence[float], y: Sequence[float]) -> list[Row]:
        """Joins that a fractional point breaks, the worst one of each class."""
        rows = []
        for cls, nodes in enumerate(self.graph.members):
            used = [n for n in nodes if x[n] > 1e-6]
            if len(used) < 2:
                continue
            amount: dict[int, float] = {}
            for node in used:
                for below in bits(self.below[node] & ~(1 << cls)):
                    amount[below] = amount.get(below, 0.0) + x[node]
            worst = max(sorted(amount), key=lambda d: amount[d] - y[d], default=None)
            if worst is not None and amount[worst] - y[worst] > SLACK:
                rows.append(Row(tuple(n for n in nodes if self.below[n] >> worst & 1), worst, loop=False))
        return rows


def shortest_cycle(steps: dict[int, list[tuple[int, float]]], start: int, limit: float) -> list[int]:
    """Classes on the shortest cycle through ``start`` that is shorter than ``limit``; empty if there is none."""
    dist = {start: 0.0}
    previous: dict[int, int] = {}
    heap = [(0.0, 0, start)]
    while heap:
        length, hops, cls = heapq.heappop(heap)
        if length > dist.get(cls, math.inf) or hops >= LONGEST:
            continue
        for child, step in steps[cls]:
            total = length + step
            if total >= limit:
                continue
            if child == start:
                out = [cls]
                while cls != start:
                    cls = previous[cls]
                    out.append(cls)
                return out
            if total < dist.get(child, math.inf):
                dist[child], previous[child] = total, cls
                heapq.heappush(heap, (total, hops + 1, child))
    return []


def components(steps: dict[int, list[int]]) -> Iterable[list[int]]:
    """Strongly connected components (Tarjan, without recursion), each sorted."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[int] = []
    is_open: set[int] = set()
    for start in steps:
        if start in number:
            continue
        work = [(start, iter(steps[start]))]
        number[start] = low[start] = len(number)
        open_.append(start)
        is_open.add(start)
        while work:
            cls, children = work[-1]
            child = next(children, None)
            if child is not None:
                if child not in number:
                    number[child] = low[child] = len(number)
                    open_.append(child)
                    is_open.add(child)
                    work.append((child, iter(steps[child])))
                elif child in is_open:
                    low[cls] = min(low[cls], number[child])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[cls])
            if low[cls] == number[cls]:
                cut = open_.index(cls)
                part, open_[cut:] = open_[cut:], []
                is_open.difference_update(part)
                yield sorted(part)
