"""The search with a solver: relax the program, and solve it whole on the nodes that the relaxation holds likely.

A choice with a node of reduced cost r costs at least the relaxation's bound + r.  So the program on the nodes with r <= s *
(known - bound) is small for a small share s, where it finds good choices, and for s = 1 nothing cheaper is left out.  Either way
it proves something: no choice costs less than both the program's own bound and bound + s * (known - bound).
"""

from __future__ import annotations

import time

from emmy_eq.extract.dag.egraph import closure
from emmy_eq.extract.dag.greedy import greedy
from emmy_eq.extract.dag.incumbent import CLOSE, Incumbent, leaning
from emmy_eq.extract.dag.loops import Separator
from emmy_eq.extract.dag.program import Program
from emmy_eq.extract.dag.reduce import Reduced

SHARES = (0.02, 0.15)
SMALL = 500  # nodes up to which the exact program is tried at once
BUILD = 15  # times the pace a node: what a program takes before its time limit counts
ROUNDS = 12  # of rows, for one relaxation
SLICE = 0.3  # of the time left, for one restricted program


def exact(known: Incumbent, level: Reduced, until: float) -> None:
    """Improve the choice and the bound until they meet or time is up; ``level`` holds all choices that may be cheaper."""
    while not known.done() and (left := until - time.perf_counter()) > BUILD * known.pace * len(level.graph.cost):
        program = Program(level.graph, level.must, known.cost)
        floor, excess = relax(known, program, level, 0.8 * left)
        if excess is None:
            return
        known.prove(floor)
        for share in SHARES if len(level.graph.cost) > SMALL else ():
            if known.done():
                return
            spare = share * (known.cost - floor)
            part = known.narrow(level, excess, spare)
            if part is not None:
                known.prove(min(floor + spare, whole(known, part, SLICE * (until - time.perf_counter()))))
        if known.done():
            return
        rest = known.narrow(level, excess, known.cost - floor)
        if rest is None:
            known.prove(known.cost)
        elif len(rest.graph.cost) > 0.7 * len(level.graph.cost):
            known.prove(whole(known, rest, until - time.perf_counter()))
            return
        else:
            level = rest


def relax(known: Incumbent, program: Program, level: Reduced, seconds: float) -> tuple[float, list[float] | None]:
    """The relaxation's bound and the nodes' reduced costs (None: no time), after rows that it broke were added for a while."""
    graph, until = level.graph, time.perf_counter() + seconds
    separator = Separator(graph, level.must)
    floor, excess = 0.0, None
    for turn in range(ROUNDS):
        if not program.relax(until - time.perf_counter()):
            break
        x, y = program.point()
        gain = program.objective() - floor
        floor, excess = program.objective(), program.reduced_costs()
        known.offer(closure(graph, greedy(graph, leaning(graph, x)), graph.roots), level)
        rows = separator.of_point(x, y) + separator.joins(x, y)
        if not rows or known.cost - floor <= CLOSE * known.cost or (turn > 0 and gain < 0.01 * (known.cost - floor)):
            break
        program.add(rows)
    return floor, excess


def whole(known: Incumbent, level: Reduced, seconds: float) -> float:
    """Solve the program of a level, offer what it finds, and return the bound that it proves for that level."""
    until = time.perf_counter() + seconds
    graph = level.graph
    program = Program(graph, level.must, known.cost)
    floor, _ = relax(known, program, level, 0.3 * seconds)
    separator = Separator(graph, level.must)
    while known.cost - floor > CLOSE * known.cost and time.perf_counter() < until:
        choice = program.whole(until - time.perf_counter(), known.cost)
        floor = max(floor, program.bound())
        if choice is None:
            break
        rows = separator.of_choice(choice)
        if not rows:
            known.offer(choice, level)
            break
        program.add(rows)
        near = [0.0] * len(graph.cost)
        for node in choice.values():
            near[node] = 1.0
        known.offer(closure(graph, greedy(graph, leaning(graph, near)), graph.roots), level)
    return floor
