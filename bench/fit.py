"""``python -m bench.fit [FILE ...] [--write]``: the constants of the cost model from measured times, tried on kernels that were left out.

Each constant of `emmy_eq.extract.fitted` in turn is moved as long as the mean of ``|log(model/measured)|`` falls, over the kernels of
`bench --kernels` and `bench.sweep`, and over the rows of `bench.rows`, each modelled with its own tile.  Left out are the kernels of the
sweeps' second sizes, and of every third workload.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench import ended
from bench.lines import existing
from bench.model import unit
from bench.plans import merged
from bench.sweep import points
from bench.workloads import workloads
from emmy_eq import loop_ir, progress
from emmy_eq.codegen import schedule
from emmy_eq.extract import fitted
from emmy_eq.extract.cost import cost_of, cost_of_tile
from emmy_eq.extract.products import Tile, Unit, units
from emmy_eq.extract.targets import Target, targets
from emmy_eq.extract.work import Work
from emmy_eq.text import count, table

RESULTS = Path("bench/results")
FILES = tuple(RESULTS / f"{name}-h200.jsonl" for name in ("kernels", "sweeps", "rows"))
STEPS = (0.85, 0.95, 1.05, 1.18)  # that a constant is multiplied by
ROUNDS = 4  # over all constants, at most
CAP = 1.0  # of a sample's share in the mean: one whose schedule is poor says little of the constants
LEAST = 1e-3  # that a step has to gain, of the sum over samples
MOST_SHARE = 0.95  # of a unit's peak


@dataclass(frozen=True, slots=True)
class Sample:
    """A ``kernel`` under its default row, or another row; ``row``: unit, tile and parts of the fold, where the model knows the tile.
    ``unit``: of `bench.model.unit`; ``seconds``: measured."""

    unit: str
    work: Work
    seconds: float
    left_out: bool
    row: tuple[Unit, Tile, int] | None = None
    kernel: bool = True

    def modelled(self, target: Target, chosen: bool = False) -> float:
        """Of the row, or of what the model chooses."""
        if self.row is None or chosen:
            return cost_of(self.work, target).modelled
        found = cost_of_tile(self.work, target, *self.row)
        assert found is not None
        return found.modelled

    def off(self, target: Target) -> float:
        return min(abs(log(self.modelled(target) / self.seconds)), CAP)

    def depends(self, constant: str) -> bool:
        """Whether it may: rows have one unit and one tile."""
        kind = constant.partition(".")[0]
        if kind not in {u.kind for u in units().values()}:
            return True
        return kind == self.row[0].kind if self.row is not None else self.unit != "none"


def samples(lines: Sequence[dict[str, Any]]) -> list[Sample]:
    """Kernels, each once: of several measurements the median; and rows.  Left out are those of no program that the fit may see."""
    out = {*points(True), *list(workloads())[::3]}
    times: dict[str, list[float]] = {}
    kernels: dict[str, tuple[str, str]] = {}
    seen: set[str] = set()
    for program, record in merged(r for r in lines if "kernels" in r).items():
        for identity, k in record["kernels"].items():
            if k["us"] is not None:
                times.setdefault(identity, []).append(k["us"] * 1e-6)
                kernels[identity] = (k["loops"], k["schedule"])
                if program not in out:
                    seen.add(identity)
    found: list[Sample] = []
    for identity, (loops, row) in kernels.items():
        progress.note(f"{count(len(found), 'kernel')} of {len(kernels)}")
        kernel = loop_ir.parse(loops, loop_ir.Kernel)
        work = Work(kernel)
        found.append(Sample(unit(kernel, row), work, median(times[identity]), identity not in seen, _tile(row, work)))
    for n, record in enumerate(lines):
        if "rows" in record:
            progress.note(f"rows, line {n + 1} of {len(lines)}")
            found += _rows(record, record["program"] in out)
    return found


def _rows(record: Mapping[str, Any], left_out: bool) -> Iterator[Sample]:
    """Those in tiles that the model knows."""
    kernel = loop_ir.parse(record["loops"], loop_ir.Kernel)
    work = Work(kernel)
    for text, us in record["rows"].items():
        known = _tile(text, work) if us is not None else None
        if known is not None:
            yield Sample(f"{unit(kernel, text)} rows", work, us * 1e-6, left_out, known, False)


def _tile(text: str, work: Work) -> tuple[Unit, Tile, int] | None:
    row = schedule.parse(text)
    atoms = {*row.atoms.values()}
    halves = next((x.dtype for p in work.passes for x in p.products if x.dtype in ("f16", "bf16")), "f16")
    name = {"k16": halves, "k8": "tf32", "k8x3": "tf32x3"}.get(next((a for a in atoms if a.startswith("k")), ""), "fma")
    if row.stage.path == "tma":
        name = {"f16": "wgmma", "bf16": "wgmma", "tf32x3": "wgmma_f32"}.get(name, name)
    if name not in units() or len(row.tile) < 2:
        return None
    shape = (row.tile[-2][1].tile, row.tile[-1][1].tile, row.threads)
    tile = next((t for t in units()[name].tiles if (t.m, t.n, t.threads) == shape), None)
    if tile is None or cost_of_tile(work, targets()["H200"], units()[name], tile, 1) is None:
        return None
    return units()[name], tile, max(s.blocks for _, s in row.reduce)


def loss(of: Sequence[Sample], target: Target) -> float:
    return fmean(s.off(target) for s in of)


def fit(of: Sequence[Sample], target: Target) -> Target:
    """``target`` with the constants that fit ``of`` best, from its own on."""
    off = [s.off(target) for s in of]
    for turn in range(ROUNDS):
        before = sum(off)
        for name in target.fitted:
            progress.note(f"round {turn + 1}, {name}, off by {sum(off) / len(of):.4f}")
            some = [n for n, s in enumerate(of) if s.depends(name)]
            most = MOST_SHARE if "x" in name else float("inf")
            for step in STEPS:
                near = replace(target, fitted={**target.fitted, name: min(most, target.fitted[name] * step)})
                found = [of[n].off(near) for n in some]
                if sum(found) < sum(off[n] for n in some) - LEAST:
                    target = near
                    for n, value in zip(some, found, strict=True):
                        off[n] = value
        if sum(off) > 0.99 * before:
            break
    return target


def report(of: Sequence[Sample], before: Target, after: Target) -> str:
    """Median |model/measured - 1| by unit, of the kernels that the fit saw and of those left out."""
    lines = []
    for name in (*sorted({s.unit for s in of}), "kernels"):
        line = [name]
        for left_out in (False, True):
            some = [s for s in of if s.left_out == left_out and (s.unit == name or (name == "kernels" and s.kernel))]
            line += [str(len(some)), *(_error(some, t) for t in (before, after))]
        lines.append(line)
    return table(["products on", "fitted", "before", "after", "left out", "before", "after"], lines)


def _error(of: Sequence[Sample], target: Target) -> str:
    return f"{100 * median(abs(s.modelled(target, s.kernel) / s.seconds - 1) for s in of):.1f} %" if of else "-"


def written(text: str, values: Mapping[str, float]) -> str:
    """The module's ``text`` with other ``values``, to three digits."""
    for name, value in values.items():
        text = re.sub(rf'("{re.escape(name)}": )[^,]+,', rf"\g<1>{float(f'{value:.3g}')!r},", text)
    return text


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fit", description=__doc__)
    parser.add_argument(
        "files", nargs="*", type=existing, default=FILES, metavar="FILE", help="of `bench --kernels`, `bench.sweep`, `bench.rows`"
    )
    parser.add_argument("--write", action="store_true", help="put the constants into extract/fitted.py")
    options = parser.parse_args(argv)
    with progress.doing("reading measured kernels"):
        of = samples([json.loads(line) for file in options.files if file.exists() for line in file.read_text().splitlines()])
    before = targets()["H200"]
    with progress.doing("fitting"):
        after = fit([s for s in of if not s.left_out], before)
    print(report(of, before, after))
    changed = [[n, f"{v:.3g}", f"{after.fitted[n]:.3g}"] for n, v in before.fitted.items() if v != after.fitted[n]]
    print(f"\n{table(['constant', 'before', 'after'], changed)}")
    if options.write:
        path = Path(fitted.__file__)
        path.write_text(written(path.read_text(), after.fitted))
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
