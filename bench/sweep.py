"""``python -m bench.sweep [NAMES] [--json FILE]``: fuse against cut along sizes; does the model choose the plan that is faster?

Programs: a product of three matrices, a norm before a product, softmax before a product, and a gated MLP.  Every point is measured at
``--place fuse``, ``cut``, what the search chooses, with the natural seam stored, and at the next best plans; then it is tuned: searched
again with its kernels' measured times until nothing new comes up.  Kernels have their default rows.  ``--read FILE`` compares today's
choices, and those after tuning, with the times of such a file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import emmy_eq
from bench import ended
from bench.__main__ import device_target
from bench.lines import of_plans
from bench.plans import Record, Task, measure, merged
from bench.workloads import In, Workload, bf16, chain, f32, norm_linear, swiglu
from emmy_eq import loop_ir, progress
from emmy_eq.execute import require_cuda
from emmy_eq.text import table

TIE = 1.03  # plans within this factor of the fastest one are as good: the same plan's times differ as much from run to run
TUNINGS = 20  # searches with measured times, at most


def softmax_v(scores: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores, -1) @ v


def mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return swiglu(x, gate, up) @ down


@dataclass(frozen=True, slots=True)
class Family:
    """``shapes``: of the inputs, from a point's sizes; ``seam``: the tensor that is stored or not."""

    function: Callable[..., Any]
    shapes: Callable[..., tuple[tuple[int, ...], ...]]
    seam: str
    sizes: tuple[tuple[tuple[int, ...], ...], ...]


@cache
def families() -> dict[str, Family]:
    """By name; the sizes go from 16 to 4096."""
    return {
        "chain": Family(chain, _chain, "matmul", _CHAINS),  # m, k, n, p
        "norm_linear": Family(norm_linear, lambda m, k, n: ((m, k), (k,), (k, n)), "rms_norm", _NORMS),
        "softmax_v": Family(softmax_v, lambda m, n, p: ((m, n), (n, p)), "softmax", _SOFTMAXES),
        "mlp": Family(mlp, lambda m, k, n: ((m, k), (k, n), (k, n), (n, k)), "mul", _MLPS),
    }


def _chain(m: int, k: int, n: int, p: int) -> tuple[tuple[int, ...], ...]:
    return (m, k), (k, n), (n, p)


# The first line of each is what the model was fitted with, the second is held out.
_CHAINS = (
    ((16, 16, 16, 16), (64, 64, 64, 64), (256, 256, 256, 256), (1024, 1024, 1024, 1024), (4096, 64, 4096, 64), (64, 4096, 64, 4096),
     (16, 4096, 4096, 16), (4096, 16, 4096, 16), (512, 64, 512, 64), (16, 1024, 1024, 1024), (1024, 128, 1024, 128), (4096, 16, 16, 4096)),
    ((128, 128, 128, 128), (512, 512, 512, 512), (512, 64, 64, 512), (1024, 32, 1024, 32), (32, 2048, 2048, 64), (1024, 1024, 1024, 64)),
)  # fmt: skip
_NORMS = (
    ((16, 64, 16), (16, 1024, 1024), (16, 4096, 4096), (64, 512, 512), (128, 2048, 512), (512, 512, 64),
     (512, 4096, 128), (1024, 1024, 1024), (4096, 256, 256), (4096, 4096, 64), (2048, 2048, 2048), (4096, 4096, 16)),
    ((32, 2048, 2048), (256, 1024, 256), (1024, 4096, 4096), (2048, 512, 16), (4096, 1024, 128), (128, 128, 4096)),
)  # fmt: skip
_SOFTMAXES = (
    ((16, 16, 16), (64, 64, 64), (16, 4096, 64), (128, 128, 64), (512, 512, 64), (1024, 1024, 64),
     (1024, 1024, 1024), (4096, 4096, 64), (64, 4096, 1024), (4096, 256, 64), (2048, 128, 2048), (4096, 4096, 1024)),
    ((32, 1024, 128), (256, 256, 256), (2048, 2048, 128), (4096, 64, 64), (512, 2048, 512), (128, 4096, 4096)),
)  # fmt: skip
_MLPS = (
    ((16, 64, 64), (16, 256, 1024), (16, 1024, 4096), (64, 512, 2048), (128, 1024, 4096), (256, 256, 256),
     (512, 512, 2048), (1024, 128, 512), (1024, 1024, 4096), (4096, 64, 128), (4096, 256, 1024), (4096, 16, 64)),
    ((32, 512, 1024), (64, 64, 256), (2048, 512, 2048), (4096, 128, 256), (256, 1024, 2048), (2048, 32, 32)),
)  # fmt: skip


def point(name: str) -> Workload:
    """The program ``FAMILY_DTYPE_SIZES``."""
    family, dtype, sizes = name.rsplit("_", 2)
    made = families()[family]
    inputs = tuple(In(shape, {"f32": f32, "bf16": bf16}[dtype]) for shape in made.shapes(*map(int, sizes.split("x"))))
    return Workload(name, lambda: made.function, inputs)


def points(held_out: bool) -> list[str]:
    """Names of all points, of the sizes that the model was fitted with or of the others; families in turn."""
    sizes = {name: f.sizes[held_out] for name, f in families().items()}
    rounds = range(max(map(len, sizes.values())))
    return [f"{name}_{dtype}_{'x'.join(map(str, s[n]))}" for n in rounds for name, s in sizes.items() for dtype in ("f32", "bf16")]


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan chosen at a point; ``us``: measured, None where a kernel of it was not; ``best``: of all measured plans."""

    stored: tuple[str, ...]
    us: float | None
    best: float
    best_stored: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        return self.us is not None and self.us <= TIE * self.best

    @property
    def tie(self) -> bool:
        """It agrees, and another plan was measured to be faster."""
        return self.agrees and self.us != self.best


def choice(record: Record) -> Choice:
    """Of today's model, against the times of ``record``."""
    workload = point(record["program"])
    plan = emmy_eq.compile(workload.function("cpu"), tuple(spec.blank() for spec in workload.inputs), target=record["target"]).plan
    results = {r.name for r in plan.results}
    stored = tuple(o.buffer for k in plan.kernels for o in k.outputs if o.buffer not in results)
    return _chosen(record, [loop_ir.identity(k.loops) for k in plan.kernels], stored)


def tuned(record: Record) -> Choice:
    """After tuning, as ``record`` has it."""
    kernels = record.get("tuned", [])
    return _chosen(record, kernels, next((tuple(p["stored"]) for p in record["plans"] if p["kernels"] == kernels), ()))


def _chosen(record: Record, kernels: list[str], stored: tuple[str, ...]) -> Choice:
    timed = [p for p in record["plans"] if p["us"] is not None]
    best = min(timed, key=lambda p: p["us"])
    us = next((p["us"] for p in timed if p["kernels"] == kernels), None)
    if us is None and kernels and all(k in record["kernels"] for k in kernels):
        us = sum(record["kernels"][k]["us"] for k in kernels)
    return Choice(stored, us, best["us"], tuple(best["stored"]))


def report(records: Mapping[str, Record]) -> str:
    """A line a point where the model's choice is not the fastest; the share of agreement by family, by model and after tuning."""
    pairs: dict[str, tuple[Choice, Choice]] = {}
    with progress.doing("choosing plans"):
        for name, r in records.items():
            progress.note(f"{name}, {len(pairs) + 1} of {len(records)}")
            pairs[name] = choice(r), tuned(r)
    off = [
        [name, _words(c.stored), _us(c.us), _words(c.best_stored), _us(c.best), _words(t.stored), _us(t.us)]
        for name, (c, t) in pairs.items()
        if not (c.agrees and t.agrees)
    ]
    groups = {name: [n for n in pairs if n.startswith(name)] for name in families()}
    groups["fitted sizes"], groups["held out"] = ([n for n in points(held) if n in pairs] for held in (False, True))
    groups["all"] = list(pairs)
    shares = [[group, str(len(names)), *_shares([pairs[n] for n in names])] for group, names in groups.items() if names]
    head = ["point", "the model stores", "us", "the fastest stores", "us", "after tuning", "us"]
    parts = [table(head, off)] if off else []
    parts.append(table(["points", "", "the model chose the fastest", "ties", "after tuning", "ties"], shares))
    return "\n\n".join(parts) + f"\n\nfastest: within {100 * (TIE - 1):.0f} % of the fastest plan that was measured; a tie is not that plan"


def _shares(pairs: Sequence[tuple[Choice, ...]]) -> list[str]:
    found = []
    for column in zip(*pairs, strict=True):
        n = sum(c.agrees for c in column)
        found += [f"{n} ({100 * n / len(pairs):.0f} %)", str(sum(c.tie for c in column))]
    return found


def _words(stored: Sequence[str]) -> str:
    return ", ".join(stored) or "nothing"


def _us(us: float | None) -> str:
    return f"{us:.2f}" if us is not None else "-"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sweep", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of points' names (default: all)")
    parser.add_argument("--part", choices=("fitted", "held-out", "all"), default="all", help="sizes (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append what is measured")
    parser.add_argument("--target", help="code is made for this target (default: this device's)")
    parser.add_argument("--read", type=of_plans, metavar="FILE", help="today's choices against the times of such a file; needs no GPU")
    options = parser.parse_args(argv)
    wanted = [*points(False), *points(True)] if options.part == "all" else points(options.part == "held-out")
    chosen = [p for p in wanted if not options.names or any(n in p for n in options.names)]
    if not chosen:
        parser.error(f"no point has {' or '.join(options.names)} in its name")
    if options.read is not None:
        print(report({name: r for name, r in merged(options.read).items() if name in chosen}))
        return 0
    require_cuda("python -m bench.sweep")
    print(report(run(chosen, options.target or device_target(), options.json)))
    return 0


def run(names: Sequence[str], target: str, file: Path | None) -> dict[str, Record]:
    """Measure the plans of all points, then what searches with the measured times choose."""
    places = {name: ("auto", "fuse", "cut", f"{f.seam}=cut") for name, f in families().items()}
    tasks = [Task(name, places[name.rsplit("_", 2)[0]], 4, TUNINGS) for name in names]
    found = []
    for record in measure(point, tasks, target):
        found.append(record)
        line = ", ".join(f"{p['us']} us at {'+'.join(p['places'])}" for p in record["plans"]) or "tuned"
        print(f"  {record['program']}: {line}", file=sys.stderr, flush=True)
        if file is not None:
            with file.open("a") as out:
                out.write(json.dumps(record) + "\n")
    return merged(found)


if __name__ == "__main__":
    sys.exit(ended(main))
