"""What ``emmy-eq extract`` prints, and the table of results in docs/extraction.md: ``python -m emmy_eq.extract.dag.report FILE...``."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from emmy_eq.errors import InvalidInput
from emmy_eq.extract.dag.serialize import Serialized, read
from emmy_eq.extract.dag.solve import Extraction, extract

MARGIN = 0.2, 0.2  # seconds kept for checking and printing, and their share of the reading time: both grow with the file


def extract_file(path: str, seconds: float, spent: float = 0.0) -> tuple[Serialized, Extraction]:
    """The e-graph of a file and its extraction; the seconds are for both, reading included, and so much of them is gone."""
    if not 0 < seconds < float("inf"):
        raise InvalidInput(f"--time {seconds}", "it is a number of seconds above 0")
    start = time.perf_counter() - spent
    serialized = read(path)
    reading = time.perf_counter() - start - spent
    left = start + seconds - time.perf_counter() - MARGIN[0] - MARGIN[1] * reading
    found = extract(serialized.graph, max(0.0, left), [f"class {name!r}" for name in serialized.classes])
    return serialized, replace(found, seconds=time.perf_counter() - start)


def record(serialized: Serialized, found: Extraction) -> dict[str, object]:
    """What ``--json`` prints: costs in the file's unit, the choice as class -> node id."""
    choices = {serialized.classes[cls]: serialized.ids[node] for cls, node in sorted(found.choice.items())}
    return {
        "dag_cost": found.dag_cost,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "greedy_cost": found.greedy_cost,
        "seconds": found.seconds,
        "choices": choices,
    }


def text(serialized: Serialized, found: Extraction) -> str:
    size = f"{len(serialized.ids)} nodes, {len(serialized.classes)} classes, {len(serialized.graph.roots)} roots"
    proof = "proved cheapest" if found.proved else f"at most {found.gap:.2%} above the cheapest"
    return (
        f"{size}\nDAG cost {found.dag_cost:.9g} ({proof}; lower bound {found.lower_bound:.9g})\n"
        f"greedy {found.greedy_cost:.9g}, {len(found.choice)} classes chosen, {found.seconds:.2f} s"
    )


def run(path: str, seconds: float, as_json: bool, began: float | None = None) -> int:
    """``began``: when this process did (of perf_counter), if for nothing else: its start counts, and what it leaves behind does not."""
    if began is not None:
        gc.disable()  # a third of the reading time would be passes over objects that are all alive
    serialized, found = extract_file(path, seconds, time.perf_counter() - began if began is not None else 0.0)
    print(json.dumps(record(serialized, found), indent=1) if as_json else text(serialized, found))
    return 0


def table(paths: Sequence[str], seconds: float = 10.0) -> str:
    """One row a file, as markdown."""
    lines = ["| file | nodes | greedy | ours | lower bound | gap | seconds |", "|---|---|---|---|---|---|---|"]
    for path in paths:
        serialized, found = extract_file(path, seconds)
        name = Path(path).name.removesuffix(".gz").removesuffix(".json")
        costs = f"{found.greedy_cost:.9g} | {found.dag_cost:.9g} | {found.lower_bound:.9g} | {found.gap:.2%}"
        lines.append(f"| {name} | {len(serialized.ids)} | {costs} | {found.seconds:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(sys.argv[1:]))
