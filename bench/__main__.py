"""``python -m bench [NAMES] [--json FILE]``: eager, torch.compile and emmy_eq side by side on this GPU."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from bench import ended, model, plans
from bench.compare import CONTENDERS, Row, compare
from bench.lines import existing, of_plans, of_runs
from bench.plot import plot
from bench.workloads import matches, select
from emmy_eq.execute import require_cuda
from emmy_eq.text import table


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of workload names (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append one JSON object a workload")
    parser.add_argument("--target", help="code is made for this target (default: this device's)")
    parser.add_argument("--read", type=of_runs, metavar="FILE", help="print the table of such a file and stop")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="--read: draw the speedups too, in the format of FILE's ending")
    parser.add_argument("--kernels", type=Path, metavar="FILE", help="append the times of every kernel, with its Loop IR, and stop")
    parser.add_argument(
        "--model-error", type=of_plans, metavar="FILE", help="today's cost model against the times of such a file, and stop"
    )
    parser.add_argument("--calibration", type=existing, metavar="FILE", help="--model-error: a targets.json of `emmy-eq targets calibrate`")
    parser.add_argument("--more", action="store_true", help="the workloads of bench.more, which no constant was fitted to, instead")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    options = parser.parse_args(argv)
    chosen = select(options.names, options.more)
    runs = [run for run in options.read or () if matches(run["workload"], options.names)]
    if not (runs if options.read is not None else chosen):
        parser.error(f"no workload has {' or '.join(options.names)} in its name")
    if options.list:
        print("\n".join(w.name for w in chosen))
        return 0
    if options.read is not None:
        rows = [Row.read(run) for run in runs]
        if options.plot is not None:
            plot(rows, options.plot, " and ".join(sorted({run["device"] for run in runs})))
        print(report(rows))
        return 0
    if options.model_error is not None:
        records = {name: r for name, r in plans.merged(options.model_error).items() if matches(name, options.names)}
        print(model.report(records, options.calibration))
        return 0
    require_cuda("python -m bench")
    target = options.target or device_target()
    if options.kernels is not None:
        model.run(chosen, target, options.kernels)
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, target {target}; medians in us, error against float64\n")
    rows = []
    for workload in chosen:
        start = time.perf_counter()
        with torch.no_grad():
            row = compare(workload, target)
        torch.cuda.empty_cache()
        rows.append(row)
        print(f"  {workload.name}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
        if options.json is not None:
            with options.json.open("a") as file:
                file.write(json.dumps(row.record() | {"target": target, "device": torch.cuda.get_device_name()}) + "\n")
    print(report(rows))
    return 0


def device_target() -> str:
    """The target name of the current device."""
    major, minor = torch.cuda.get_device_capability()
    return "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"


def report(rows: list[Row]) -> str:
    """One line a workload: hot and cold times, their ratio to ours (over 1: ours is faster), errors and how many times eager's ours is."""
    contenders = ["eager", "compile", "ours"]
    cold_and_error = [f"{c} {what}" for what in ("cold", "error") for c in contenders]
    head = ["workload", *contenders, "eager/ours", "compile/ours", *cold_and_error, "ours/eager"]
    body, notes = [], []
    for row in rows:
        eager, compiled, ours = (row.entries[name] for name in CONTENDERS)
        entries = (eager, compiled, ours)
        hot = [e.times.hot if e.times is not None else None for e in entries]
        cold = [e.times.cold if e.times is not None else None for e in entries]
        ratios = [f"{h / hot[2]:.2f}" if h is not None and hot[2] is not None else "-" for h in hot[:2]]
        errors = [f"{e.error:.1e}" if e.error is not None else "-" for e in entries]
        factor = f"{ours.error / eager.error:.2f}" if ours.error is not None and eager.error else "-"
        body.append([row.workload, *map(_us, hot), *ratios, *map(_us, cold), *errors, factor])
        notes += [f"{row.workload}: {name}: {e.failure}" for name, e in row.entries.items() if e.failure is not None]
    return table(head, body) + "".join(f"\n{note}" for note in notes)


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(ended(main))
