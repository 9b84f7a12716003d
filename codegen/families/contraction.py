"""Contractions: sums of products by fma, in register tiles fed from shared memory; and products with few rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from emmy_eq.codegen.families.facts import Facts, ceil_power, floor_power, vector
from emmy_eq.codegen.schedule import Schedule, Split, Stage
from emmy_eq.codegen.tile_ir import Fold, is_product
from emmy_eq.extract.targets import Target

FEW_ROWS = 8  # rows of one operand up to which the other is read straight from memory, once


@dataclass(frozen=True, slots=True)
class Product:
    """The largest contraction of a kernel: m and n are the axes that get register tiles, k the folded axis; n is written
    contiguously where it can be.  ``accumulators``: how many sums of m x n the kernel carries."""

    m: str | None
    n: str
    k: str
    accumulators: int


@dataclass(frozen=True, slots=True)
class Block:
    """A block's tile: splits of m and n, elements of k a step; ``rate`` is the part of the fma peak that it reaches when the machine
    is full (from the ratio of shared-memory reads to fma, and the threads that hide latency)."""

    m: Split
    n: Split
    k: int
    rate: float

    @property
    def threads(self) -> int:
        return self.m.threads * self.n.threads


BLOCKS = (
    Block(Split(regs=2, threads=16, vector=4), Split(regs=2, threads=16, vector=4), 16, 1.0),  # 128 x 128
    Block(Split(regs=2, threads=16, vector=4), Split(threads=16, vector=4), 16, 0.85),  # 128 x 64
    Block(Split(threads=16, vector=4), Split(regs=2, threads=16, vector=4), 16, 0.85),  # 64 x 128
    Block(Split(threads=16, vector=4), Split(threads=16, vector=4), 16, 0.7),  # 64 x 64
    Block(Split(threads=8, vector=4), Split(threads=16, vector=4), 16, 0.6),  # 32 x 64
    Block(Split(threads=8, vector=4), Split(threads=8, vector=4), 32, 0.45),  # 32 x 32
    Block(Split(threads=8, vector=2), Split(threads=16, vector=4), 32, 0.4),  # 16 x 64
    Block(Split(threads=8, vector=2), Split(threads=8, vector=2), 32, 0.25),  # 16 x 16
)


def product(facts: Facts) -> Product | None:
    """The contraction whose fold is outermost."""
    for f, kind in zip(facts.folds, facts.kinds, strict=True):
        if kind == "contraction":
            return _of(facts, f)
    return None


def _of(facts: Facts, f: Fold) -> Product | None:
    outer = {a.name for a in facts.axes.outer}
    sums = [c for c in f.carries if c.name == "sum" and is_product(c.args[0], facts.known)]
    k = max(f.axes, key=lambda a: a.extent).name
    for c in sums:
        left, right = (set(facts.known[a].axes) & outer for a in facts.known[c.args[0]].args)
        mine, other = left - right, right - left
        if facts.output_axis in mine:
            mine, other = other, mine
        if not other:
            continue
        n = facts.output_axis if facts.output_axis in other else _largest(facts, other)
        m = _largest(facts, mine) if mine else None
        return Product(m, n, k, sum(n in facts.known[x.results[0]].axes for x in f.carries))
    return None


def _largest(facts: Facts, names: set[str]) -> str:
    return max(sorted(names), key=lambda a: facts.extents[a])


def matches(facts: Facts) -> bool:
    return not any(f.observer for f in facts.folds) and product(facts) is not None


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    p = product(facts)
    assert p is not None
    if p.m is None or facts.extents[p.m] <= FEW_ROWS:
        yield from _few_rows(facts, target, p)
    if p.m is None:
        return
    for block in sorted(BLOCKS, key=lambda b: _seconds(facts, target, p, b)):
        yield from _tiled(facts, target, p, block)


def _tiles(facts: Facts, p: Product, block: Block) -> int:
    assert p.m is not None
    total = facts.points(tuple(a.name for a in facts.axes.outer))
    covered = facts.extents[p.m] * facts.extents[p.n]
    return total // covered * -(-facts.extents[p.m] // block.m.tile) * -(-facts.extents[p.n] // block.n.tile)


def _seconds(facts: Facts, target: Target, p: Product, block: Block) -> float:
    """Relative time: waves of blocks by the time of one.  Sums that do not fit in registers count as spilled."""
    split = _split_k(facts, target, p, block)
    waves = -(-_tiles(facts, p, block) * split // target.sms)
    registers = block.m.regs * block.m.vector * block.n.regs * block.n.vector * p.accumulators
    spill = 4.0 if registers > 128 else 1.0
    return waves * block.m.tile * block.n.tile / split / block.rate * spill


def _split_k(facts: Facts, target: Target, p: Product, block: Block) -> int:
    """Blocks that share a fold, where tiles alone do not fill the machine and only one fold needs joining."""
    tiles = _tiles(facts, p, block)
    steps = facts.extents[p.k] // block.k
    if len(facts.folds) > 1 or tiles * 2 > target.sms:
        return 1
    return max(1, min(target.sms // tiles, steps // 8, 16))


def _tiled(facts: Facts, target: Target, p: Product, block: Block) -> Iterator[Schedule]:
    assert p.m is not None
    split = _split_k(facts, target, p, block)
    tile = ((p.m, block.m), (p.n, block.n))
    for depth in (2, 1):
        for blocks in dict.fromkeys((split, 1)):
            reduce = []
            for a in facts.axes.folded:
                if a.name == p.k:
                    reduce.append((a.name, Split(blocks=blocks, steps=0, regs=min(block.k, ceil_power(a.extent)))))
                else:
                    reduce.append((a.name, inner_fold(facts, a.name, a.extent, block)))
            yield Schedule(max(32, block.threads), tile, tuple(reduce), Stage(depth, "shared"))


def inner_fold(facts: Facts, name: str, extent: int, block: Block) -> Split:
    """A fold inside the product's operand, or beside it."""
    return Split(steps=0, regs=min(block.k, ceil_power(extent)))


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
        r = min(4 if p.m is None else 2, floor_power(-(-k // (lanes * v))))
        rows_ = min(256 // lanes, ceil_power(n))
        yield Schedule(max(32, rows_ * lanes), (*tile, (p.n, Split(threads=rows_))), (*others, (p.k, Split(steps=0, regs=r, threads=lanes, vector=v))))
        return
    v = vector(n, facts.itemsize, 4)
    lanes = min(32, ceil_power(-(-n // v)))
    warps = min(8, ceil_power(k))
    split = Split(steps=0, regs=min(4, floor_power(-(-k // warps))), threads=warps, slow=True)
    tiles = facts.points(tuple(a.name for a in facts.axes.outer if a.name not in (p.m, p.n))) * -(-n // (lanes * v))
    blocks = min(target.sms * 4 // max(tiles, 1), k // (split.tile * 4))
    columns = (*tile, (p.n, Split(threads=lanes, vector=v)))
    if blocks > 1 and len(facts.folds) == 1:
        yield Schedule(max(32, lanes * warps), columns, (*others, (p.k, replace(split, blocks=blocks))))
    yield Schedule(max(32, lanes * warps), columns, (*others, (p.k, split)))
