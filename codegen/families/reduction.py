"""Reductions along rows (the folded axis is contiguous), down columns, and over whole tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from emmy_eq.codegen.families.contraction import FEW_TAPS
from emmy_eq.codegen.families.facts import Facts, ceil_power, floor_power, vector
from emmy_eq.codegen.schedule import MAX_THREADS, Schedule, Split
from emmy_eq.extract.targets import Target

WARP_ROW = 2048  # elements of a row that one warp holds in registers, 64 a lane (softmax of 57344x2048: 228 us, a block 243 us)
LANE = 32  # elements a lane holds of a longer row
HELD = 1 << 15  # elements of a row that a block of up to 512 threads holds in 64 registers a thread (of 1024: half the registers)
ROW_THREADS = 128  # of a block whose rows take fewer (softmax of 57344x2048: 230 us, with 256 threads 253 us)
SPLIT_FROM = 1 << 15  # elements of a fold from which splitting it over blocks pays for the second stage
BLOCKS_PER_SM = 4


def matches(facts: Facts) -> bool:
    return bool(facts.folds) and not facts.nested and not any(f.observer for f in facts.folds) and facts.main_load is not None


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    assert facts.main_load is not None
    along = facts.contiguous(facts.main_load)
    folded = {a.name for a in facts.axes.folded}
    if along is None:
        yield from _row(facts, target, max(facts.axes.folded, key=lambda a: a.extent).name, 1)
    elif along in folded:
        yield from _row(facts, target, along, vector(facts.extents[along], facts.itemsize))
    else:
        yield from _column(facts, target, along)


def _others(facts: Facts, axis: str) -> list[tuple[str, Split]]:
    """The remaining folded axes: serial steps."""
    return [(a.name, Split(steps=0)) for a in facts.axes.folded if a.name != axis]


def _passes(facts: Facts) -> int:
    """How often a row is walked."""
    return len(facts.folds) + bool(facts.axes.inner)


def _row(facts: Facts, target: Target, axis: str, v: int) -> Iterator[Schedule]:
    n, outputs = facts.extents[axis], facts.points(tuple(a.name for a in facts.axes.outer))
    per_row = ceil_power(-(-n // v))
    t = 32 if n <= WARP_ROW else ceil_power(-(-n // LANE))
    while t < 256 and outputs * t < target.sms * 512 and t * 2 <= per_row:
        t *= 2
    t = min(t, per_row, MAX_THREADS)
    held = -(-n // (t * v))
    if _passes(facts) == 1:
        yield from _split(facts, target, axis, v, outputs)
    streams = _passes(facts) == 1 and n > WARP_ROW
    if len(facts.axes.folded) == 1 and held * v * max(t, 512) <= HELD and not streams:
        yield _with_rows(facts, target, axis, Split(regs=held, threads=t, vector=v))
    for threads, r in ((256, 4), (512, 4), (128, 4), (MAX_THREADS, 2), (32, 4), (1, 1)):
        threads = min(threads, per_row)
        r = min(r, floor_power(-(-n // (threads * v))))
        yield _with_rows(facts, target, axis, Split(steps=0, regs=r, threads=threads, vector=v))


def _with_rows(facts: Facts, target: Target, axis: str, split: Split) -> Schedule:
    """Several rows a block where a row leaves threads idle."""
    threads = max(split.threads, ROW_THREADS)
    tile: list[tuple[str, Split]] = []
    left = threads // split.threads
    for a in reversed(facts.axes.outer):
        t = min(left, ceil_power(a.extent))
        if t > 1:
            tile.insert(0, (a.name, Split(threads=t)))
        left //= t
    threads = max(32, threads // left)
    return Schedule(threads, tuple(tile), (*_others(facts, axis), (axis, split)))


def _split(facts: Facts, target: Target, axis: str, v: int, outputs: int) -> Iterator[Schedule]:
    """Few outputs of long folds: every block takes a part of the fold."""
    n = facts.extents[axis]
    blocks = min(target.sms * BLOCKS_PER_SM // max(outputs, 1), n // (256 * v * 4))
    if blocks > 1 and n >= SPLIT_FROM:
        yield Schedule(256, (), (*_others(facts, axis), (axis, Split(blocks=blocks, steps=0, regs=4, threads=256, vector=v))))


def _column(facts: Facts, target: Target, along: str) -> Iterator[Schedule]:
    """Warps walk down columns, each over its own rows; 512 contiguous bytes a warp."""
    extent = facts.extents[along]
    v = vector(extent, facts.itemsize, 4)
    lanes = min(32, ceil_power(-(-extent // v)))
    down = max(facts.axes.folded, key=lambda a: a.extent)
    warps = min(8, ceil_power(down.extent)) if down.extent > FEW_TAPS else 1
    regs = min(8, floor_power(-(-down.extent // warps))) if warps > 1 else ceil_power(down.extent)
    split = Split(steps=0, regs=regs, threads=warps, slow=warps > 1)
    tile = [(along, Split(threads=lanes, vector=v))]
    left = 256 // (lanes * warps)
    for a in reversed(facts.axes.outer):
        if a.name != along and left > 1:
            t = min(left, ceil_power(a.extent))
            tile.insert(0, (a.name, Split(threads=t)))
            left //= t
    threads = max(32, 256 // left)
    reduce = (*_others(facts, down.name), (down.name, split))
    tiles = facts.points(tuple(a.name for a in facts.axes.outer)) // max(1, extent) * -(-extent // (lanes * v))
    blocks = min(target.sms * BLOCKS_PER_SM // max(tiles, 1), down.extent // (split.tile * 2))
    if _passes(facts) == 1 and blocks > 1:
        yield Schedule(threads, tuple(tile), (*reduce[:-1], (down.name, replace(split, blocks=blocks))))
    yield Schedule(threads, tuple(tile), reduce)
