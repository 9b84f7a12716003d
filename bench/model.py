"""The cost model against measured times: every kernel of the workloads, before and after the model is fitted to them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.plans import Record, Task, measure
from bench.workloads import Workload, named
from emmy_eq import loop_ir
from emmy_eq.extract.cost import Cost, cost
from emmy_eq.extract.measured import Model
from emmy_eq.extract.targets import target
from emmy_eq.text import table


def run(workloads: Sequence[Workload], target: str, file: Path) -> None:
    """Append a record a workload: the kernels of its plans, alone and together."""
    tasks = [Task(w.name, ("auto",) if "block" in w.name else ("auto", "fuse", "cut")) for w in workloads]
    for record in measure(named, tasks, target):
        print(f"  {record['program']}: {len(record['kernels'])} kernels", file=sys.stderr, flush=True)
        with file.open("a") as out:
            out.write(json.dumps(record) + "\n")


def costs(records: Mapping[str, Record]) -> dict[str, Cost]:
    """Today's model of every measured kernel, by name, with its measured time."""
    found = {}
    for program, record in records.items():
        for identity, k in record["kernels"].items():
            if k["us"] is not None:
                modelled = cost(loop_ir.parse(k["loops"], loop_ir.Kernel), target(record["target"]))
                found[f"{program} {k['name']} {identity[:6]}"] = replace(modelled, measured=k["us"] * 1e-6)
    return found


def report(records: Mapping[str, Record]) -> str:
    """A line a kernel, then the median of |model / measured - 1| before and after the refit of `emmy_eq.extract.measured`."""
    found = costs(records)
    before, after = Model(), Model().refitted(found.values())
    rows = [
        [name, f"{c.measured * 1e6:.2f}", f"{c.modelled * 1e6:.2f}", f"{c.modelled / c.measured:.2f}", c.bound]
        for name, c in found.items()
        if c.measured is not None
    ]
    ratios = [c.modelled / c.measured for c in found.values() if c.measured]
    errors = [f"{100 * (m.error(found.values()) or 0):.1f} %" for m in (before, after)]
    return (
        f"{table(['kernel', 'measured us', 'model us', 'ratio', 'bound'], rows)}\n\n"
        f"{len(found)} kernels, median ratio {median(ratios):.2f}; median |model/measured - 1| {errors[0]} before, {errors[1]} after refit"
    )
