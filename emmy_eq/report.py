"""What the command line prints of a compiled program: views of each IR, the summary, the plans, the outcome of a run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from emmy_eq import loop_ir
from emmy_eq.text import quantity, table

if TYPE_CHECKING:
    from emmy_eq.pipeline import Compiled


def view(compiled: Compiled, ir: str) -> str:
    """The program in one of the IRs, or the e-graph; the same text on every run."""
    return _VIEWS[ir](compiled)


def _egraph(compiled: Compiled) -> str:
    """Size, the rules that matched, and how many equal forms each seam has; no seconds, so that the text is reproducible."""
    graph = compiled.egraph
    head = f"e-graph: {graph.report.rows} rows in {graph.report.classes} classes after {graph.report.rounds} rounds, {_end(compiled)}"
    fired = sorted(graph.report.matches.items(), key=lambda item: (-item[1], item[0]))
    rules = table(["rule", "matches"], [[name, str(n)] for name, n in fired])
    seams = table(
        ["seam", "axes", "equal forms", "by operation"],
        [
            [s.name, ", ".join(f"{a.name} < {a.extent}" for a in s.axes), str(len(graph.classes[s.cls])), _forms(compiled, s.cls)]
            for s in graph.seams
        ],
    )
    return f"{head}\n\n{rules}\n\n{seams}"


def _forms(compiled: Compiled, cls: int) -> str:
    count = Counter(node.op for node in compiled.egraph.classes[cls])
    return ", ".join(op if n == 1 else f"{n} {op}" for op, n in sorted(count.items()))


def _end(compiled: Compiled) -> str:
    stopped = compiled.egraph.report.stopped
    return "saturated" if stopped is None else f"stopped at the limit on {stopped}"
