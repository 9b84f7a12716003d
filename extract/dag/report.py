"""What ``emmy-eq extract`` prints, and the table of results in docs/extraction.md: ``python -m emmy_eq.extract.dag.report FILE...``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.dag.serialize import Serialized, read
from emmy_eq.extract.dag.solve import Extraction, extract

MARGIN = 0.3  # seconds kept for checking and printing


def extract_file(path: str, seconds: float) -> tuple[Serialized, Extraction]:
    """The e-graph of a file and its extraction; the seconds are for both, reading included."""
    if not 0 < seconds < float("inf"):
        raise InvalidInput(f"--time {seconds}", "it is a number of seconds above 0")
    start = time.perf_counter()
    serialized = read(path)
    spent = time.perf_counter() - start
    return serialized, extract(serialized.graph, max(0.0, seconds - spent - MARGIN), [f"class {name!r}" for name in serialized.classes])


def record(serialized: Serialized, found: Extraction) -> dict[str, object]:
    """What ``--json`` prints: costs in the file's unit, the choice as class -> node id."""
    choices = {serialized.classes[cls]: serialized.nodes[node].id for cls, node in sorted(found.choice.items())}
    return {
        "dag_cost": found.dag_cost,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "greedy_cost": found.greedy_cost,
        "seconds": found.seconds,
        "choices": choices,
    }


def text(serialized: Serialized, found: Extraction) -> str:
    size = f"{len(serialized.nodes)} nodes, {len(serialized.classes)} classes, {len(serialized.graph.roots)} roots"
    proof = "proved cheapest" if found.proved else f"at most {found.gap:.2%} above the cheapest"
    return (
        f"{size}\nDAG cost {found.dag_cost:.9g} ({proof}; lower bound {found.lower_bound:.9g})\n"
        f"greedy {found.greedy_cost:.9g}, {len(found.choice)} classes chosen, {found.seconds:.2f} s"
    )


def run(path: str, seconds: float, as_json: bool) -> int:
    serialized, found = extract_file(path, seconds)
    print(json.dumps(record(serialized, found), indent=1) if as_json else text(serialized, found))
    return 0


def table(paths: Sequence[str], seconds: float = 10.0) -> str:
    """One row a file, as markdown."""
    lines = ["| file | nodes | greedy | ours | lower bound | gap | seconds |", "|---|---|---|---|---|---|---|"]
    for path in paths:
        serialized, found = extract_file(path, seconds)
        name = Path(path).name.removesuffix(".gz").removesuffix(".json")
        costs = f"{found.greedy_cost:.9g} | {found.dag_cost:.9g} | {found.lower_bound:.9g} | {found.gap:.2%}"
        lines.append(f"| {name} | {len(serialized.nodes)} | {costs} | {found.seconds:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(sys.argv[1:]))
