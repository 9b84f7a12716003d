"""``python -m bench.replay DIR``: writes the CUDA of every workload's kernels, and a hash a kernel.

A refactor shows that it changed no generated code: dump before and after, ``diff -r`` is empty.  Needs no GPU and draws
no values: code depends on shapes alone.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import emmy_eq
from bench import ended
from bench.workloads import Workload, select
from emmy_eq.text import table


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*", help="parts of workload names (default: all)")
    parser.add_argument("--more", action="store_true", help="the workloads of bench.more instead")
    parser.add_argument("--target", default="sm_90a")
    options = parser.parse_args(argv)
    options.directory.mkdir(parents=True, exist_ok=True)
    rows = []
    for workload in select(options.names, options.more):
        print(f"{workload.name} ...", file=sys.stderr, flush=True)
        for name, text in sources(workload, options.target):
            file = f"{workload.name}.{name}.cu".replace("^", "")
            (options.directory / file).write_text(text)
            rows.append([workload.name, name, hashlib.sha256(text.encode()).hexdigest()[:16], str(text.count("\n"))])
    report = table(["workload", "kernel", "sha256", "lines"], rows)
    (options.directory / "index.txt").write_text(report + "\n")
    print(report)
    return 0


def sources(workload: Workload, target: str) -> list[tuple[str, str]]:
    """(kernel name, CUDA text) of each kernel, or the reason why there is none."""
    inputs = tuple(spec.blank() for spec in workload.inputs)
    try:
        compiled = emmy_eq.compile(workload.skeleton(), inputs, target=target)
        return [(kernel.name, text) for kernel, text in zip(compiled.kernel_ir, compiled.cuda, strict=True)]
    except emmy_eq.EmmyError as error:
        return [("none", f"// {error}\n")]


if __name__ == "__main__":
    sys.exit(ended(main))
