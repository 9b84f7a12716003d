"""The kernels of a plan on the simulator: under their default rows, and under some of the other rows proposed for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from emmy_eq import loop_ir
from emmy_eq.codegen import cuda, kernel_ir, nvrtc, schedule, simulate, tile_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.schedule import Schedule
from emmy_eq.errors import Unsupported
from emmy_eq.extract.targets import Target
from emmy_eq.ops import DTYPES

Array = np.ndarray[Any, Any]
OTHERS = 3  # rows beside the default
STEPS = 200_000  # of a plan under one choice of rows: seconds on the simulator.  Fused without regard to cost, one thread may do it all


@dataclass(frozen=True, slots=True)
class Run:
    """A plan's results with a row for each kernel."""

    rows: Mapping[str, Schedule]
    results: list[Array]

    def __str__(self) -> str:
        return "; ".join(f"{name} {row}" for name, row in self.rows.items())


def launched(loops: loop_ir.Program) -> list[loop_ir.Kernel]:
    """The kernels that write something."""
    return [k for k in loops.kernels if any(0 not in b.shape for b in k.outputs)]


def runs(loops: loop_ir.Program, inputs: Mapping[str, Array], on: Target, rng: Random, cubins: bool = False) -> Iterator[Run]:
    """The plan with default rows first, then with other rows drawn for each kernel; with ``cubins`` NVRTC must take the CUDA of the first.

    Those that take the simulator more than `STEPS` are left out.  Raises `emmy_eq.codegen.simulate.KernelFault` on a race, an access out
    of bounds, a barrier that not all reach; `Unsupported` where a kernel has no row that lowers.
    """
    proposed = {k.name: schedules(k, on) for k in launched(loops)}
    for n in range(1 + OTHERS):
        if n and all(len(found) <= n for found in proposed.values()):
            return
        rows = {name: rng.choice(found[1:]) if n and len(found) > 1 else found[0] for name, found in proposed.items()}
        try:
            made = [kernel(k, rows[k.name], on) for k in launched(loops)]
        except Unsupported:
            if n:
                continue  # a row after the first may be refused
            raise
        if sum(map(simulate.steps, made)) > STEPS:
            continue
        memory = buffers(loops, inputs)
        for lowered in made:
            simulate.run(lowered, memory)
            if cubins and n == 0 and nvrtc.available():
                nvrtc.compile_cubin(cuda.source(lowered, on), on.arch)
        yield Run(rows, [memory[name].reshape(shape) for name, shape, _, _ in loops.outputs])


def kernel(loops: loop_ir.Kernel, row: Schedule, on: Target) -> kernel_ir.Kernel:
    """Lowered and verified; the row's text reads back."""
    assert schedule.parse(str(row)) == row, row
    tile = tile_ir.to_tile(loops, row)
    tile_ir.verify(tile)
    made = lower(tile, on)
    kernel_ir.verify(made, on)
    assert kernel_ir.show(made)
    return made


def buffers(loops: loop_ir.Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Memory for every buffer of ``loops`` by name."""
    memory = {b.name: np.ascontiguousarray(inputs[b.name]) for b in loops.inputs}
    made = [(b.name, b.shape, b.dtype) for b in loops.temps] + [o[:3] for o in loops.outputs]
    return memory | {name: np.empty(shape, DTYPES[dtype]) for name, shape, dtype in made}
