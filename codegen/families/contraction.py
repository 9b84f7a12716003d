"""Contractions: sums of products by fma, in register tiles fed from shared memory; and products with few rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from emmy_eq.codegen.families.facts import Facts, ceil_power, exact, floor_power, vector
from emmy_eq.codegen.schedule import Schedule, Split, Stage
from emmy_eq.codegen.tile_ir import Fold, sums_products
from emmy_eq.extract.products import FEW, FMA, Steps, Tile, Unit, units
from emmy_eq.extract.targets import Target
from emmy_eq.loop_ir import Let, Load

COLUMNS = 4  # of a thread, and of a block's warps, beside a few rows of 16 bits
TRIED = 8  # tiles proposed


@dataclass(frozen=True, slots=True)
class Product:
    """The largest contraction of a kernel: m and n are the axes that get register tiles, k the folded axis; n is written
    contiguously where it can be.  ``accumulators``: how many sums of m x n the fold carries; ``others``: its other carries."""

    m: str | None
    n: str
    k: str
    fold: Fold
    accumulators: int
    others: int


@dataclass(frozen=True, slots=True)
class Block:
    """A block's tile: splits of m and n, elements of k a step."""

    m: Split
    n: Split
    k: int

    @property
    def threads(self) -> int:
        return max(32, self.m.threads * self.n.threads)

    @property
    def tile(self) -> Tile:
        """What the cost model knows of it."""
        return next(t for t in FMA if (t.m, t.n, t.step, t.threads) == (self.m.tile, self.n.tile, self.k, self.threads))


BLOCKS = (
    Block(Split(regs=2, threads=16, vector=4), Split(regs=2, threads=16, vector=4), 16),  # 128 x 128
    Block(Split(regs=2, threads=16, vector=4), Split(threads=16, vector=4), 16),  # 128 x 64
    Block(Split(threads=16, vector=4), Split(regs=2, threads=16, vector=4), 16),  # 64 x 128
    Block(Split(threads=16, vector=4), Split(threads=16, vector=4), 16),  # 64 x 64
    Block(Split(threads=8, vector=4), Split(threads=16, vector=4), 16),  # 32 x 64
    Block(Split(threads=8, vector=4), Split(threads=8, vector=4), 32),  # 32 x 32
    Block(Split(threads=8, vector=2), Split(threads=16, vector=4), 32),  # 16 x 64
    Block(Split(threads=8, vector=2), Split(threads=8, vector=2), 32),  # 16 x 16
)
FEW_TAPS = 8  # elements of a folded axis of which a tile would be mostly empty, where another axis is longer
FOLD_STEP = 4  # elements a step of folds beside the product


def product(facts: Facts) -> Product | None:
    """The contraction whose fold is outermost."""
    for f, kind in zip(facts.folds, facts.kinds, strict=True):
        if kind == "contraction":
            return _of(facts, f)
    return None


def _of(facts: Facts, f: Fold) -> Product | None:
    outer = {a.name for a in facts.axes.outer}
    sums = [c for c in f.carries if sums_products(c, facts.known)]
    k = _walked(facts, f)
    for c in sums:
        left, right = (set(facts.known[a].axes) & outer for a in facts.known[c.args[0]].args)
        mine, other = left - right, right - left
        if facts.output_axis in mine:
            mine, other = other, mine
        if not other:
            continue
        n = facts.output_axis if facts.output_axis in other else _largest(facts, other)
        m = _largest(facts, mine) if mine else None
        accumulators = sum(n in facts.known[x.results[0]].axes for x in f.carries)
        return Product(m, n, k, f, accumulators, len(f.carries) - accumulators)
    return None


def _walked(facts: Facts, f: Fold) -> str:
    """The folded axis that gets the tile: one along which an operand is contiguous (and not a filter's few taps), else the largest."""
    along = {facts.contiguous(s) for s in facts.loads}
    inner = [a for a in f.axes if a.name in along and a.extent > FEW_TAPS]
    return max(inner or f.axes, key=lambda a: a.extent).name


def _largest(facts: Facts, names: set[str]) -> str:
    return max(sorted(names), key=lambda a: facts.extents[a])


def matches(facts: Facts) -> bool:
    return not any(f.observer for f in facts.folds) and product(facts) is not None


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    p = product(facts)
    assert p is not None
    if p.m is None or facts.extents[p.m] <= FEW:
        yield from _few_rows(facts, target, p)
    if p.m is None:
        return
    for block, split in sorted(_choices(facts, p), key=lambda c: _seconds(facts, target, p, *c))[:TRIED]:
        yield _tiled(facts, target, p, block, split, 2)
        yield _tiled(facts, target, p, block, split, 1)


def _choices(facts: Facts, p: Product) -> list[tuple[Block, int]]:
    return [(block, split) for block in BLOCKS for split in units()["fma"].parts if _divides(facts, p, block, split)]


def seconds(facts: Facts, target: Target, p: Product) -> float:
    """Modelled, of the best row of register tiles."""
    return min(_seconds(facts, target, p, *c) for c in _choices(facts, p))


def step_seconds(facts: Facts, target: Target, p: Product, unit: Unit) -> float:
    """That a step takes at least; longer where operands are no tensors as they lie in memory."""
    sums = [c for c in p.fold.carries if sums_products(c, facts.known)]
    stmts = [facts.known[_stem(facts, x)].stmt for c in sums for x in facts.known[c.args[0]].args]
    return unit.constant(target, "latency" if all(isinstance(s, Load) for s in stmts) else "computed")


def _stem(facts: Facts, name: str) -> str:
    """The value that ``name`` is a cast of."""
    stmt = facts.known[name].stmt
    return facts.known[name].args[0] if isinstance(stmt, Let) and stmt.op == "cast" else name


def _divides(facts: Facts, p: Product, block: Block, split: int) -> bool:
    """Only a kernel's one fold is split, along the axis of most steps, into parts of at least 8 steps."""
    if split == 1:
        return True
    steps = {a.name: a.extent // (block.k if a.name == p.k else 1) for a in p.fold.axes}
    return len(facts.folds) == 1 and max(steps.values()) >= split and prod(steps.values()) >= 8 * split


def _split_axis(p: Product, block: Block) -> str:
    return max(p.fold.axes, key=lambda a: a.extent // (block.k if a.name == p.k else 1)).name


def _tiles(facts: Facts, p: Product, block: Block) -> int:
    assert p.m is not None
    total = facts.points(tuple(a.name for a in facts.axes.outer))
    covered = facts.extents[p.m] * facts.extents[p.n]
    return total // covered * -(-facts.extents[p.m] // block.m.tile) * -(-facts.extents[p.n] // block.n.tile)


def _seconds(facts: Facts, target: Target, p: Product, block: Block, split: int) -> float:
    """By the cost model."""
    unit = units()["fma"]
    work = Steps(unit.rate(target, "f32"), p.accumulators, step_seconds(facts, target, p, unit))
    depth = facts.points(tuple(a.name for a in p.fold.axes))
    return work.seconds(target, unit, block.tile, _tiles(facts, p, block), depth, split)


def _tiled(facts: Facts, target: Target, p: Product, block: Block, split: int, depth: int) -> Schedule:
    assert p.m is not None
    reduce = []
    beside = p.others > 0 or any(p.k in {a.name for a in f.axes} for f in facts.folds if f is not p.fold)
    for f, kind in zip(facts.folds, facts.kinds, strict=True):
        last = p.k if p.k in {a.name for a in f.axes} else f.axes[-1].name
        step = block.k if kind == "contraction" else FOLD_STEP
        for a in f.axes:
            tile = min(step, ceil_power(a.extent)) if a.name == last else 1
            # Statistics beside the product vary with m alone: the threads along n share their part of k.
            t = min(block.n.threads, tile) if beside and a.name == p.k else 1
            v = min(4, tile // t)
            blocks = split if a.name == _split_axis(p, block) else 1
            reduce.append((a.name, Split(blocks=blocks, steps=0, regs=tile // t // v, threads=t, vector=v)))
    reduce = list(dict(reduce).items())
    results = block.tile.m * block.tile.n * p.accumulators // block.threads
    resident = 2 if block.threads == 256 and results == 64 else 0
    return Schedule(block.threads, ((p.m, block.m), (p.n, block.n)), tuple(reduce), Stage(depth, "shared"), resident=resident)


def _few_rows(facts: Facts, target: Target, p: Product) -> Iterator[Schedule]:
    """One operand has few rows: every element of the other is read once, by lanes along its contiguous axis."""
    tile = [(a.name, Split(regs=a.extent)) for a in facts.axes.outer if a.name == p.m and a.extent > 1]
    others = [(a.name, Split(steps=0)) for a in facts.axes.folded if a.name != p.k]
    large = [s for s in facts.loads if p.n in facts.known[s.name].axes and p.k in facts.known[s.name].axes]
    along = facts.contiguous(large[0]) if large else None
    n, k = facts.extents[p.n], facts.extents[p.k]
    if along == p.k:
        v = vector(k, facts.itemsize)
        lanes = min(32, ceil_power(-(-k // v)))
        r = exact(-(-k // (lanes * v)), 8 if p.m is None or facts.extents[p.m] < 4 else 4)
        rows_ = min(256 // lanes, ceil_power(n))
        several = COLUMNS // p.accumulators
        if p.m is not None and facts.extents[p.m] > 2 and facts.itemsize == 2 and several > 1 and n >= COLUMNS * COLUMNS * target.sms:
            # What a thread reads of the few rows serves several columns (H200, 4 x 4096 x 14336: 36.3 us, so 30.1).
            wide = (p.n, Split(regs=several, threads=COLUMNS))
            steps = Split(steps=0, regs=exact(-(-k // (lanes * v)), 2), threads=lanes, vector=v)
            yield Schedule(max(32, COLUMNS * lanes), (*tile, wide), (*others, (p.k, steps)))
        split = Split(steps=0, regs=r, threads=lanes, vector=v)
        yield Schedule(max(32, rows_ * lanes), (*tile, (p.n, Split(threads=rows_))), (*others, (p.k, split)))
        return
    v = vector(n, facts.itemsize, 4)
    lanes = min(32, ceil_power(-(-n // v)))
    warps = min(8, ceil_power(k))
    split = Split(steps=0, regs=min(4, floor_power(-(-k // warps))), threads=warps, slow=warps > 1)
    tiles = facts.points(tuple(a.name for a in facts.axes.outer if a.name not in (p.m, p.n))) * -(-n // (lanes * v))
    blocks = min(target.sms * 4 // max(tiles, 1), k // (split.tile * 4))
    columns = (*tile, (p.n, Split(threads=lanes, vector=v)))
    if blocks > 1 and len(facts.folds) == 1:
        yield Schedule(max(32, lanes * warps), columns, (*others, (p.k, replace(split, blocks=blocks))))
    yield Schedule(max(32, lanes * warps), columns, (*others, (p.k, split)))
