"""Tile to kernel: run the engine, put in barriers, check the machine's limits."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.kernel_ir.verify import dynamic_shared
from emmy_eq.codegen.lower import barriers, persistent, tma_store
from emmy_eq.codegen.lower.engine import Engine
from emmy_eq.codegen.tile_ir import Tile
from emmy_eq.errors import Unsupported

if TYPE_CHECKING:
    from emmy_eq.extract.targets import Target


@lru_cache(maxsize=64)  # a default row is lowered once to see that it can be, and once for use
def lower(tile: Tile, target: Target) -> k.Kernel:
    """The kernel that ``tile``'s schedule row makes of it; raises `Unsupported` where the row cannot be lowered."""
    if any(s.atom == "k8" for _, s in tile.schedule.reduce) and target.contraction_units["f32"] != "tf32":
        raise Unsupported("schedule", "k8 rounds f32 operands to tf32, which takes --accuracy fast")
    e = Engine(tile)
    persistent.run(e)
    if e.producer.results:
        tma_store.finish(e)
    body, threads = barriers.insert(tuple(e.b.levels[0].stmts), frozenset(e.doubled)), tile.schedule.threads
    resident = tile.schedule.resident
    if e.producer.body:
        resident = max(resident, 1)
        body, threads = e.producer.beside(body, threads, target.registers_per_sm, resident, e.rounds)
    groups = (("input", tile.inputs), ("output", tile.outputs))
    params = (*(k.Param(x.name, x.dtype, prod(x.shape), kind) for kind, group in groups for x in group), *e.b.scratch)
    kernel = k.Kernel(
        tile.name, params, (e.digits.grid, 1, 1), threads, tuple(e.b.shared), body, tuple(e.producer.maps), min_blocks=resident
    )
    size = dynamic_shared(kernel)
    if size > target.shared_per_block:
        raise Unsupported("schedule", f"it needs {size} bytes of shared memory; {target} has {target.shared_per_block}")
    return kernel
