"""The integer program of DAG extraction, held in HiGHS.

``x_n`` is 1 where node n is chosen, ``y_c`` is 1 where class c is used: minimize the sum of cost * x, with y = 1 for roots, ``sum
of x_n = y_c`` over the nodes of c, and ``sum of x_n <= y_d`` over the nodes of c that have child d.  A class of one node needs no
column of its own.  What every choice for the roots stands on has y = 1, and what every choice for c stands on has at least c's y;
the rows above imply both for whole solutions only. Acyclicity is not in it: ``add`` takes the rows that a solution was found to
break.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import highspy
import numpy as np

from emmy_eq.extract.dag.egraph import Choice, EGraph, closure
from emmy_eq.extract.dag.loops import Row
from emmy_eq.extract.dag.must import below_node, bits

SIZE = 1000.0  # what the known cost is scaled to, so that the solver's absolute tolerances fit costs of any size
USED = 1e-9


class _Quiet(highspy.Highs):
    """HiGHS without its banner, which its own constructor prints to the standard output before any option can be set."""

    def __init__(self) -> None:
        super(highspy.Highs, self).__init__()
        self.setOptionValue("output_flag", False)


class Program:
    """Costs in and out are the e-graph's; ``known`` is the cost of a valid choice."""

    def __init__(self, graph: EGraph, must: Sequence[int], known: float) -> None:
        self.graph, self.must = graph, must
        self.scale = SIZE / known if known > 0 else 1.0
        self.forced = below_node(graph.roots, must)
        nodes = len(graph.cost)
        self.column = [0] * len(graph.members)
        self.width = nodes
        for cls, members in enumerate(graph.members):
            self.column[cls] = members[0] if len(members) == 1 else self.width
            self.width += len(members) != 1
        self.solver = _Quiet()
        self.solver.setOptionValue("mip_rel_gap", 1e-7)
        self.solver.passModel(self._model())
        self.add(self._implied())

    def _model(self) -> highspy.HighsLp:
        graph, nodes = self.graph, len(self.graph.cost)
        lp = highspy.HighsLp()
        rows = list(self._rows())
        starts = np.cumsum([0] + [len(columns) for columns, _, _ in rows])
        lp.num_col_, lp.num_row_ = self.width, len(rows)
        lp.col_cost_ = np.concatenate([np.array(graph.cost) * self.scale, np.zeros(self.width - nodes)])
        lower, upper = np.zeros(self.width), np.ones(self.width)
        lower[[self.column[cls] for cls in bits(self.forced)]] = 1.0
        upper[[n for cls, members in enumerate(graph.members) for n in members if cls in graph.children[n]]] = 0.0
        lp.col_lower_, lp.col_upper_ = lower, upper
        lp.row_lower_ = np.array([low for _, _, low in rows])
        lp.row_upper_ = np.zeros(len(rows))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = starts
        lp.a_matrix_.index_ = np.array([c for columns, _, _ in rows for c in columns], np.int32)
        lp.a_matrix_.value_ = np.array([v for _, values, _ in rows for v in values], float)
        return lp

    def _rows(self) -> Iterable[tuple[list[int], list[float], float]]:
        """(columns, coefficients, lower bound) of rows with upper bound 0."""
        for cls, members in enumerate(self.graph.members):
            if len(members) > 1:
                yield [*members, self.column[cls]], [1.0] * len(members) + [-1.0], 0.0
            users: dict[int, list[int]] = {}
            for node in members:
                for child in self.graph.children[node]:
                    users.setdefault(child, []).append(node)
            for child, nodes in users.items():
                left = [self.column[cls]] if len(nodes) == len(members) else nodes
                yield [*left, self.column[child]], [1.0] * len(left) + [-1.0], -math.inf

    def _implied(self) -> list[Row]:
        """y_c <= y_d for the topmost classes d that c always stands on, where no row of c's children says so."""
        out = []
        for cls, members in enumerate(self.graph.members):
            if len(members) == 1 or self.forced >> cls & 1:
                continue
            under = self.must[cls] & ~self.forced & ~(1 << cls)
            top = under
            for below in bits(under):
                top &= ~self.must[below] | 1 << below
            shared = set.intersection(*(set(self.graph.children[node]) for node in members))
            out += [Row(members, below, loop=False) for below in bits(top) if below not in shared]
        return out

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            sign = -1.0 if row.loop else 1.0
            amount = {self.column[row.cls]: -sign}
            for node in row.nodes:
                amount[node] = amount.get(node, 0.0) + sign
            self.solver.addRow(-math.inf, 0.0, len(amount), np.array(list(amount), np.int32), np.array(list(amount.values())))

    def relax(self, seconds: float) -> bool:
        """Solve without wholeness; whether it was solved in time."""
        if seconds <= 0:
            return False
        self.solver.setOptionValue("time_limit", self.solver.getRunTime() + seconds)
        self.solver.run()
        return bool(self.solver.getModelStatus() == highspy.HighsModelStatus.kOptimal)

    def point(self) -> tuple[list[float], list[float]]:
        """x of the nodes and y of the classes."""
        values = list(self.solver.getSolution().col_value)
        return values[: len(self.graph.cost)], [values[column] for column in self.column]

    def objective(self) -> float:
        return float(self.solver.getInfo().objective_function_value) / self.scale

    def reduced_costs(self) -> list[float]:
        """By how much a choice with the node is dearer than the relaxation, at least; 0 for nodes that the relaxation uses."""
        solution = self.solver.getSolution()
        pairs = zip(solution.col_dual, solution.col_value, strict=True)
        return [max(0.0, dual) / self.scale if value < USED else 0.0 for dual, value in pairs][: len(self.graph.cost)]

    def whole(self, seconds: float, known: float) -> Choice | None:
        """Solve the integer program; a choice that is closed but perhaps cyclic, None if none costs at most ``known``.

        The solver gets no start: HiGHS 1.16 maps one wrongly through its presolve (seen as an optimum below the cost of every solution).
        """
        nodes = np.arange(len(self.graph.cost), dtype=np.int32)
        self.solver.changeColsIntegrality(len(nodes), nodes, np.full(len(nodes), highspy.HighsVarType.kInteger))
        self.solver.setOptionValue("objective_bound", known * self.scale * (1 + 1e-6))
        self.solver.setOptionValue("time_limit", self.solver.getRunTime() + max(seconds, 0.01))
        self.solver.run()
        if self.solver.getInfo().primal_solution_status != highspy.kSolutionStatusFeasible:
            return None
        x, _ = self.point()
        best = {cls: max(members, key=lambda n: (x[n], -n)) for cls, members in enumerate(self.graph.members)}
        return closure(self.graph, best, self.graph.roots)

    def bound(self) -> float:
        """The proved lower bound of the last integer solve."""
        return float(self.solver.getInfo().mip_dual_bound) / self.scale
