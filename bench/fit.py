"""``python -m bench.fit [FILE ...] [--write]``: the constants of the cost model from measured kernels, tried on kernels that were left out.

Each constant of `emmy_eq.extract.fitted` in turn is moved as long as the mean of ``|log(model/measured)|`` falls.  Left out are the
kernels of the sweeps' second sizes, and of every third workload.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from statistics import fmean, median

from bench.model import unit
from bench.plans import Record, read
from bench.sweep import points
from bench.workloads import workloads
from emmy_eq import loop_ir
from emmy_eq.extract import fitted
from emmy_eq.extract.cost import cost_of
from emmy_eq.extract.targets import Target, targets
from emmy_eq.extract.work import Work
from emmy_eq.text import table

FILES = (Path("bench/results/kernels-h200.jsonl"), Path("bench/results/sweeps-h200.jsonl"))
STEPS = (0.8, 0.9, 0.97, 1.03, 1.1, 1.25)  # that a constant is multiplied by
ROUNDS = 8  # over all constants, at most
CAP = 1.0  # of a kernel's share in the mean: one whose schedule is poor says little of the constants
LEAST = 1e-4  # that a step has to gain


@dataclass(frozen=True, slots=True)
class Sample:
    """One kernel; ``unit``: see `bench.model.unit`; ``seconds``: measured."""

    unit: str
    work: Work
    seconds: float
    left_out: bool


def samples(records: Mapping[str, Record]) -> list[Sample]:
    """Kernels, each once: of several measurements the median; left out are those of no program that the fit may see."""
    out = {*points(True), *list(workloads())[::3]}
    times: dict[str, list[float]] = {}
    kernels: dict[str, tuple[str, str]] = {}
    seen: set[str] = set()
    for program, record in records.items():
        for identity, k in record["kernels"].items():
            if k["us"] is not None:
                times.setdefault(identity, []).append(k["us"] * 1e-6)
                kernels[identity] = (k["loops"], k["schedule"])
                if program not in out:
                    seen.add(identity)
    found = []
    for identity, (loops, row) in kernels.items():
        kernel = loop_ir.parse(loops, loop_ir.Kernel)
        found.append(Sample(unit(kernel, row), Work(kernel), median(times[identity]), identity not in seen))
    return found


def ratio(sample: Sample, target: Target) -> float:
    return cost_of(sample.work, target).modelled / sample.seconds


def loss(of: Sequence[Sample], target: Target) -> float:
    return fmean(min(abs(log(ratio(s, target))), CAP) for s in of)


def fit(of: Sequence[Sample], target: Target) -> Target:
    """``target`` with the constants that fit ``of`` best, from its own on."""
    least = loss(of, target)
    for _ in range(ROUNDS):
        before = least
        for name in target.fitted:
            for step in STEPS:
                near = replace(target, fitted={**target.fitted, name: target.fitted[name] * step})
                found = loss(of, near)
                if found < least - LEAST:
                    target, least = near, found
        print(f"  {least:.4f}", file=sys.stderr, flush=True)
        if least > before - 10 * LEAST:
            break
    return target


def report(of: Sequence[Sample], before: Target, after: Target) -> str:
    """Median |model/measured - 1| by unit, of the kernels that the fit saw and of those left out."""
    rows = []
    for name in (*sorted({s.unit for s in of}), "all"):
        row = [name]
        for left_out in (False, True):
            some = [s for s in of if s.left_out == left_out and name in (s.unit, "all")]
            row += [str(len(some)), *(_error(some, t) for t in (before, after))]
        rows.append(row)
    return table(["unit", "fitted", "before", "after", "left out", "before", "after"], rows)


def _error(of: Sequence[Sample], target: Target) -> str:
    return f"{100 * median(abs(ratio(s, target) - 1) for s in of):.1f} %" if of else "-"


def written(text: str, values: Mapping[str, float]) -> str:
    """The module's ``text`` with other ``values``, to three digits."""
    for name, value in values.items():
        text = re.sub(rf'("{re.escape(name)}": )[^,]+,', rf"\g<1>{float(f'{value:.3g}')!r},", text)
    return text


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fit", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=FILES, metavar="FILE", help="of `bench --kernels` and `bench.sweep`")
    parser.add_argument("--write", action="store_true", help="put the constants into extract/fitted.py")
    options = parser.parse_args(argv)
    of = samples({name: r for file in options.files for name, r in read(file).items()})
    before = targets()["H200"]
    after = fit([s for s in of if not s.left_out], before)
    print(report(of, before, after))
    changed = [[n, f"{v:.3g}", f"{after.fitted[n]:.3g}"] for n, v in before.fitted.items() if v != after.fitted[n]]
    print(f"\n{table(['constant', 'before', 'after'], changed)}")
    if options.write:
        path = Path(fitted.__file__)
        path.write_text(written(path.read_text(), after.fitted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
