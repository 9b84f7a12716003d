"""The cost model against measured times: every kernel of the workloads, before and after the model is fitted to them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.plans import Record, Task, measure
from bench.workloads import Workload, named
from emmy_eq import loop_ir
from emmy_eq.extract import calibration
from emmy_eq.extract.cost import Cost, cost
from emmy_eq.extract.measured import Model
from emmy_eq.extract.targets import calibrated, target
from emmy_eq.extract.work import Work
from emmy_eq.text import table


def run(workloads: Sequence[Workload], target: str, file: Path) -> None:
    """Append a record a workload: the kernels of its plans, alone and together."""
    tasks = [Task(w.name, ("auto",) if "block" in w.name else ("auto", "fuse", "cut")) for w in workloads]
    for record in measure(named, tasks, target):
        print(f"  {record['program']}: {len(record['kernels'])} kernels", file=sys.stderr, flush=True)
        with file.open("a") as out:
            out.write(json.dumps(record) + "\n")


def unit(kernel: loop_ir.Kernel, row: str) -> str:
    """What computes the products of ``kernel`` under schedule ``row``; ``none`` without any."""
    if not any(p.products for p in Work(kernel).passes):
        return "none"
    return "wgmma" if "tma" in row and ".m16" in row else "mma.sync" if ".m16" in row else "fma"


def costs(records: Mapping[str, Record], calibrations: Path | None = None) -> dict[str, tuple[str, Cost]]:
    """Unit and today's model of every measured kernel, by name, with its measured time; ``calibrations``: a file of what `targets
    calibrate` measured."""
    measured = calibration.read(calibrations) if calibrations is not None else {}
    found = {}
    for program, record in records.items():
        on = calibrated(target(record["target"]), measured)
        for identity, k in record["kernels"].items():
            if k["us"] is not None:
                kernel = loop_ir.parse(k["loops"], loop_ir.Kernel)
                modelled = replace(cost(kernel, on), measured=k["us"] * 1e-6)
                found[f"{program} {k['name']} {identity[:6]}"] = unit(kernel, k["schedule"]), modelled
    return found


def report(records: Mapping[str, Record], calibrations: Path | None = None) -> str:
    """A line a kernel, then the median of |model / measured - 1| by unit: of the published figures, of those of ``calibrations``, and after
    the refit of `emmy_eq.extract.measured` to these kernels."""
    found = costs(records)
    rows = [
        [name, of, f"{c.measured * 1e6:.2f}", f"{c.modelled * 1e6:.2f}", f"{c.modelled / c.measured:.2f}", c.bound]
        for name, (of, c) in found.items()
        if c.measured is not None
    ]
    columns = {"published": list(found.values())}
    if calibrations is not None:
        columns["calibrated"] = list(costs(records, calibrations).values())
    errors = []
    for name in (*sorted({of for of, _ in found.values()}), "all"):
        line = [name, str(sum(name in (of, "all") for of, _ in found.values()))]
        for kernels in columns.values():
            line += [_error(Model(), kernels, name), _error(Model().refitted(c for _, c in kernels), kernels, name)]
        errors.append(line)
    head = ["products on", "kernels", *(part for name in columns for part in (name, "refitted"))]
    return (
        f"{table(['kernel', 'products on', 'measured us', 'model us', 'ratio', 'bound'], rows)}\n\n"
        f"median |model/measured - 1|\n\n{table(head, errors)}"
    )


def _error(model: Model, kernels: Sequence[tuple[str, Cost]], name: str) -> str:
    return f"{100 * (model.error(c for of, c in kernels if name in (of, 'all')) or 0):.1f} %"
