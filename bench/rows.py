"""``python -m bench.rows [NAMES] [--json FILE]``: the schedule rows of kernels side by side; is the default row the fastest?

Kernels are those of the plans that are chosen for workloads and for the points of `bench.sweep`.  ``--read FILE`` compares today's order of
the rows with the times of such a file: a kernel a line, and by family how much slower the default is than the best row.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from itertools import islice
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from statistics import median
from typing import Any

import torch

import emmy_eq
from bench import ended, sweep
from bench.__main__ import device_target
from bench.lines import of_rows
from bench.plans import LONG
from bench.workloads import Workload, workloads
from emmy_eq import loop_ir
from emmy_eq.codegen import schedule, tile_ir
from emmy_eq.codegen.cuda import source
from emmy_eq.codegen.families import Family, families, normal, schedules
from emmy_eq.codegen.families.facts import Facts
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.codegen.runtime import Executable, Launch, Program
from emmy_eq.codegen.schedule import Schedule
from emmy_eq.errors import EmmyError
from emmy_eq.execute import require_cuda
from emmy_eq.extract.targets import Target
from emmy_eq.extract.targets import target as target_named
from emmy_eq.extract.work import Work
from emmy_eq.text import table
from emmy_eq.timing import together
from emmy_eq.torch_ir import torch_dtype

ROWS = 8  # of a family and kernel
APART = 0.05  # how far, of its norm, a result may be from the first row's: rows differ in rounding, a wrong one in much
SLOW = 1.05  # times the best row, from which a default is worth a line

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Made:
    """A kernel and the machine code of its rows."""

    program: str
    kernel: loop_ir.Kernel
    launches: Mapping[str, Launch]


def make(name: str, target: str, kinds: Sequence[str], place: str) -> list[Made]:
    """Of the kernels of program ``name`` at ``place`` whose family is in ``kinds`` (all, where that is empty)."""
    w = workload(name)
    compiled = emmy_eq.compile(w.skeleton(), tuple(spec.blank() for spec in w.inputs), target=target, place=place)
    chosen = [k for k in compiled.distinct if not kinds or family(k, target) in kinds]
    return [Made(name, k, dict(_launches(k, target))) for k in chosen]


def _launches(kernel: loop_ir.Kernel, target: str) -> Iterator[tuple[str, Launch]]:
    """The first rows of each family."""
    on, facts = target_named(target), _facts(kernel)
    proposed = {name: [normal(row, facts.extents) for row in islice(f.rows(facts, on), ROWS)] for name, f in _matching(facts).items()}
    legal = set(schedules(kernel, on))
    for row in dict.fromkeys(row for rows in proposed.values() for row in rows if row in legal):
        try:
            lowered = lower(tile_ir.to_tile(kernel, row), on)
            text = source(lowered, on)
            if text.count("\n") <= LONG:
                arguments = {p.name: p.name for p in lowered.params if p.kind not in ("scratch", "zeroed")}
                yield str(row), Launch(lowered, compile_cubin(text, on.arch), arguments)
        except EmmyError:
            continue  # rows after the first may not lower


def family(kernel: loop_ir.Kernel, target: str) -> str:
    """That which proposes the default row."""
    on, facts = target_named(target), _facts(kernel)
    default = schedules(kernel, on)[0]
    return next(name for name, f in _matching(facts).items() if default in (normal(row, facts.extents) for row in f.rows(facts, on)))


def _facts(kernel: loop_ir.Kernel) -> Facts:
    return Facts(tile_ir.to_tile(kernel, Schedule(32)))


def _matching(facts: Facts) -> dict[str, Family]:
    return {name: f for name, f in families().items() if f.matches(facts)}


@cache
def _names() -> dict[str, Workload]:
    return workloads()


def workload(name: str) -> Workload:
    return _names()[name] if name in _names() else sweep.point(name)


def measured(made: Made, target: str) -> Record:
    """Microseconds of each row; None of one whose result is another."""
    arch = target_named(target).arch
    torch.manual_seed(0)
    given = [_values(b) for b in made.kernel.inputs]
    runs: dict[str, Callable[[], object]] = {}
    times: dict[str, float | None] = {}
    first: list[torch.Tensor] = []
    for row, launch in made.launches.items():
        run = Executable(Program((launch,), made.kernel.inputs, (), made.kernel.outputs, arch))
        found = [x.double() for x in run(*given)]
        first = first or found
        times[row] = None
        if all(float((x - y).norm()) <= APART * float(y.norm()) for x, y in zip(found, first, strict=True)):
            runs[row] = lambda run=run: run(*given)  # type: ignore[misc]
    times |= together(runs)
    return {"program": made.program, "kernel": made.kernel.name, "target": target, "loops": loop_ir.show(made.kernel), "rows": times}


def _values(b: loop_ir.Buffer) -> torch.Tensor:
    dtype = torch_dtype(b.dtype)
    return torch.randn(b.shape, dtype=dtype, device="cuda") if dtype.is_floating_point else torch.zeros(b.shape, dtype=dtype, device="cuda")


def run(names: Sequence[str], kinds: Sequence[str], place: str, target: str) -> Iterator[Record]:
    """Records as they come; code is made by a process a core.  Kernels of several programs are measured once."""
    seen: set[str] = set()
    with ProcessPoolExecutor(max(1, (cpu_count() or 2) - 1), get_context("spawn")) as pool, torch.no_grad():
        for future in as_completed([pool.submit(make, name, target, kinds, place) for name in names]):
            try:
                for made in future.result():
                    if (identity := loop_ir.identity(made.kernel)) not in seen:
                        seen.add(identity)
                        yield measured(made, target)
            except Exception as error:  # one program's fault costs that program alone
                print(f"  {type(error).__name__}: {error}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """Of today's default row: None where it was not measured."""

    family: str
    us: float | None
    best: float
    default: str
    fastest: str


def choice(record: Record) -> Choice:
    kernel = loop_ir.parse(record["loops"], loop_ir.Kernel)
    default = str(schedules(kernel, target_named(record["target"]))[0])
    timed = {row: us for row, us in record["rows"].items() if us is not None}
    fastest = min(timed, key=lambda row: timed[row])
    return Choice(family(kernel, record["target"]), timed.get(default), timed[fastest], default, fastest)


def report(records: Sequence[Record]) -> str:
    choices = [(r, choice(r)) for r in records]
    slow = [
        [f"{r['program']} {r['kernel']}", c.family, "-" if c.us is None else f"{c.us:.2f}", f"{c.best:.2f}", c.default, c.fastest]
        for r, c in choices
        if c.us is None or c.us > SLOW * c.best
    ]
    parts = [table(["kernel", "family", "default us", "best us", "default", "best"], slow)] if slow else []
    names = sorted({c.family for _, c in choices})
    head = ["family", "kernels", "default not measured", "default/best, median", "largest"]
    parts.append(table(head, [_summary(n, choices) for n in names]))
    return "\n\n".join(parts)


def _summary(name: str, choices: Sequence[tuple[Record, Choice]]) -> list[str]:
    of = [c for _, c in choices if c.family == name]
    ratios = [c.us / c.best for c in of if c.us is not None]
    figures = [f"{median(ratios):.2f}", f"{max(ratios):.2f}"] if ratios else ["-", "-"]
    return [name, str(len(of)), str(len(of) - len(ratios)), *figures]


def tiles(records: Sequence[Record]) -> str:
    """By unit and tile of a block (m x n, threads): the share of the unit's peak that rows with it reach, of the products of a kernel."""
    shares: dict[tuple[str, str], list[float]] = {}
    for r in records:
        work, on = Work(loop_ir.parse(r["loops"], loop_ir.Kernel)), target_named(r["target"])
        flops = sum(2 * work.points(x.axes) for p in work.passes for x in p.products)
        for text, us in r["rows"].items():
            row = schedule.parse(text)
            if flops and us is not None and len(row.tile) > 1:
                unit, peak = _peak(row, on)
                tile = f"{row.tile[-2][1].tile} x {row.tile[-1][1].tile}, {row.threads}"
                shares.setdefault((unit, tile), []).append(flops / peak / (us * 1e-6 - on.launch_seconds))
    rows = [[unit, tile, str(len(found)), f"{median(found):.2f}", f"{max(found):.2f}"] for (unit, tile), found in sorted(shares.items())]
    return table(["unit", "tile, threads", "rows", "share of peak, median", "largest"], rows)


def _peak(row: Schedule, on: Target) -> tuple[str, float]:
    """The unit of a row's products, and its flops a second."""
    deep = next((atom for atom in row.atoms.values() if atom.startswith("k")), "")
    if not deep:
        return "fma", on.flops["fma"]
    unit = {"k16": "f16", "k8": "tf32", "k8x3": "tf32x3"}[deep]
    return (f"wgmma {unit}", on.flops[unit]) if row.stage.path == "tma" else (f"mma.sync {unit}", on.mma_sync(unit))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.rows", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of workloads and points (default: all)")
    parser.add_argument("--family", action="append", default=[], choices=families(), help="only kernels whose default row it proposes")
    parser.add_argument("--place", choices=("auto", "fuse", "cut"), default="auto", help="of the plans (default: auto)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append what is measured")
    parser.add_argument("--target", help="code is made for this target (default: this device's)")
    parser.add_argument("--read", type=of_rows, metavar="FILE", help="today's defaults against the times of such a file; needs no GPU")
    options = parser.parse_args(argv)
    if options.read is not None:
        chosen = [r for r in options.read if not options.names or any(n in r["program"] for n in options.names)]
        print(f"{report(chosen)}\n\n{tiles(chosen)}")
        return 0
    require_cuda("python -m bench.rows")
    every = [*workloads(), *sweep.points(False), *sweep.points(True)]
    names = [n for n in every if not options.names or any(part in n for part in options.names)]
    found = []
    for record in run(names, options.family, options.place, options.target or device_target()):
        found.append(record)
        print(f"  {record['program']} {record['kernel']}: {len(record['rows'])} rows", file=sys.stderr, flush=True)
        if options.json is not None:
            with options.json.open("a") as file:
                file.write(json.dumps(record) + "\n")
    print(f"{report(found)}\n\n{tiles(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
