"""The search with a solver: each round relaxes the program, and solves it whole on the nodes that the relaxation holds likely.

A choice with a node of reduced cost r costs at least the relaxation's bound + r.  So the program on the nodes with r <= s * (known - bound) is small
for a small share s, where it finds good choices, and for s = 1 nothing cheaper is left out.  Either way it proves something: no choice costs
less than both the program's own bound and bound + s * (known - bound).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from emmy_eq.extract.dag.egraph import Choice, EGraph, closure, cyclic_classes, dag_cost, from_rows, tree_costs
from emmy_eq.extract.dag.greedy import greedy
from emmy_eq.extract.dag.loops import Separator
from emmy_eq.extract.dag.program import Program
from emmy_eq.extract.dag.reduce import Reduced, compose, reduce

CLOSE = 1e-9  # relative difference of costs that counts as none
SHARES = (0.0, 0.01, 0.04, 0.15)
SMALL = 500  # nodes up to which the exact program is tried at once
ROUNDS = 12  # of rows, for one relaxation
SLICE = 0.3  # of the time left, for one restricted program


class Search:
    """The best choice so far, in the numbers of ``graph``, its cost and the bound; ``deadline`` is a time of perf_counter."""

    def __init__(self, graph: EGraph, best: Choice, bound: float, deadline: float) -> None:
        self.graph, self.best, self.bound, self.deadline = graph, best, bound, deadline
        self.cost = dag_cost(graph, best)

    def run(self, level: Reduced) -> None:
        """Improve the choice and the bound until they meet or time is up; ``level`` holds all choices that may be cheaper."""
        while not self.done():
            program = Program(level.graph, level.must, self.cost)
            floor, excess = self.relax(program, level, 0.5 * self.left())
            self.prove(floor)
            for share in SHARES if len(level.graph.cost) > SMALL else ():
                if self.done():
                    return
                spare = share * (self.cost - floor)
                part = self.narrow(level, excess, spare)
                if part is not None:
                    self.prove(min(floor + spare, self.whole(part, SLICE * self.left())))
            if self.done():
                return
            rest = self.narrow(level, excess, self.cost - floor)
            if rest is None:
                self.prove(self.cost)
            elif len(rest.graph.cost) > 0.7 * len(level.graph.cost):
                self.prove(self.whole(rest, self.left()))
                return
            else:
                level = rest

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

    def relax(self, program: Program, level: Reduced, seconds: float) -> tuple[float, list[float]]:
        """The relaxation's bound and the nodes' reduced costs, after rows that it broke were added for a while."""
        graph, until = level.graph, time.perf_counter() + seconds
        separator = Separator(graph, level.must)
        floor, excess = 0.0, [0.0] * len(graph.cost)
        for turn in range(ROUNDS):
            if not program.relax(until - time.perf_counter()):
                break
            x, y = program.point()
            gain = program.objective() - floor
            floor, excess = program.objective(), program.reduced_costs()
            self.offer(closure(graph, greedy(leaning(graph, x)), graph.roots), level)
            rows = separator.of_point(x, y) + separator.joins(x, y)
            if not rows or self.cost - floor <= CLOSE * self.cost or (turn > 0 and gain < 0.01 * (self.cost - floor)):
                break
            program.add(rows)
        return floor, excess

    def narrow(self, level: Reduced, excess: Sequence[float], spare: float) -> Reduced | None:
        """The nodes of at most so much reduced cost, and those of the best choice; None if they have no choice for the roots."""
        used = set(self.best.values())
        owner, limit = level.graph.owners(), spare + 1e-6 * self.cost
        rows = [
            (owner[n] if over <= limit or level.node_of[n] in used else -1, cost, kids)
            for n, (over, cost, kids) in enumerate(zip(excess, level.graph.cost, level.graph.children, strict=True))
        ]
        part = from_rows(rows, level.graph.roots, len(level.graph.members))
        _, finite = tree_costs(part)
        return compose(level, reduce(part)) if all(root in finite for root in part.roots) else None

    def whole(self, level: Reduced, seconds: float) -> float:
        """Solve the program of a level, offer what it finds, and return the bound that it proves for that level."""
        until = time.perf_counter() + seconds
        graph, used = level.graph, set(self.best.values())
        program = Program(graph, level.must, self.cost)
        floor, _ = self.relax(program, level, 0.3 * seconds)
        separator = Separator(graph, level.must)
        near = [1.0 if level.node_of[n] in used else 0.0 for n in range(len(graph.cost))]
        while self.cost - floor > CLOSE * self.cost and time.perf_counter() < until:
            start = closure(graph, greedy(leaning(graph, near)), graph.roots)
            choice = program.whole(until - time.perf_counter(), start)
            floor = max(floor, program.bound())
            if choice is None:
                break
            rows = separator.of_choice(choice)
            if not rows:
                self.offer(choice, level)
                break
            program.add(rows)
            near = [0.0] * len(graph.cost)
            for node in choice.values():
                near[node] = 1.0
            self.offer(closure(graph, greedy(leaning(graph, near)), graph.roots), level)
        return floor


def leaning(graph: EGraph, x: Sequence[float]) -> EGraph:
    """The same e-graph with nodes made cheap as far as a point of the program chooses them."""
    return replace(graph, cost=tuple(cost * max(0.0, 1.0 - amount) for cost, amount in zip(graph.cost, x, strict=True)))
