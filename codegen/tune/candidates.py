"""Which rows are worth a measurement: those that the families propose, in the model's order, then neighbours of the best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from math import prod
from typing import Any

from emmy_eq import loop_ir
from emmy_eq.codegen import kernel_ir, tile_ir
from emmy_eq.codegen.families import normal
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.schedule import DEPTHS, WARP, Schedule, Split, Stage, check
from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.extract.targets import Target


def legal(kernel: loop_ir.Kernel, row: Schedule, target: Target) -> bool:
    """Whether ``row`` fits the kernel, lowers, and passes the verifier of Kernel IR."""
    try:
        check(row)
        kernel_ir.verify(lower(tile_ir.to_tile(kernel, row), target))
    except (InvalidInput, Unsupported):
        return False
    return True


def neighbours(kernel: loop_ir.Kernel, row: Schedule, target: Target) -> Iterator[Schedule]:
    """Legal rows that differ from ``row`` by a factor of two in one place, each once."""
    roles = tile_ir.axes(tile_ir.to_tile(kernel, row).body)
    extents = {a.name: a.extent for a in (*roles.outer, *roles.folded)}
    seen = {row}
    for near in (normal(r, extents) for r in _moves(row)):
        if near not in seen and legal(kernel, near, target):
            yield near
        seen.add(near)


def _moves(row: Schedule) -> Iterator[Schedule]:
    lanes = WARP if row.atoms else 1
    tile, every = (lanes * prod(split.threads for _, split in splits) for splits in (row.tile, (*row.tile, *row.reduce)))
    for part in ("tile", "reduce"):
        splits: tuple[tuple[str, Split], ...] = getattr(row, part)
        # Where these splits fill a block, it grows and shrinks with them: no thread is left without work.
        follows = every == row.threads or (part == "tile" and tile == row.threads)
        for i, (axis, split) in enumerate(splits):
            for near in _scaled(split):
                changed: dict[str, Any] = {part: (*splits[:i], (axis, near), *splits[i + 1 :])}
                threads = row.threads * near.threads // split.threads if follows else row.threads
                yield replace(row, threads=threads, **changed)
    for threads in (row.threads * 2, row.threads // 2):
        yield replace(row, threads=threads)
    for resident in (row.resident * 2 or 1, row.resident // 2):
        yield replace(row, resident=resident)
    yield from (replace(row, stage=Stage(depth, path)) for path, depths in DEPTHS.items() for depth in depths)
    yield replace(row, stage=Stage())
    yield from (replace(row, raster=raster) for raster in ("row", "g4", "g8", "g16", "late", "late8"))


def _scaled(split: Split) -> Iterator[Split]:
    """One factor doubled or halved; ``steps`` 0 (as many as needed) stays."""
    for f in fields(split):
        value = getattr(split, f.name)
        if isinstance(value, bool) or not isinstance(value, int) or not value:
            continue
        for near in (value * 2, *([value // 2] if value % 2 == 0 else [])):
            changed: dict[str, Any] = {f.name: near}
            yield replace(split, **changed)
