"""Contractions of 16-bit values by warpgroups (wgmma), operands by the copy engine (TMA) in many buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from emmy_eq.codegen.families import matrix
from emmy_eq.codegen.families.contraction import Product, product
from emmy_eq.codegen.families.facts import Facts
from emmy_eq.codegen.families.matrix import Block, counts, divides, multiplied
from emmy_eq.codegen.lower import tma
from emmy_eq.codegen.schedule import DEPTHS, Schedule, Stage
from emmy_eq.extract.targets import Target

TRIED = 6  # tiles proposed
COLUMNS = 32  # steps of 8 columns, at most: of all accumulators of a warpgroup
SPLITS = (1, 2, 3, 4, 6, 8)
WARPS = (4, 8, 16)  # of 16 rows each
MOST = 8 * COLUMNS  # warps times steps of columns that an SM's registers have room for
K_STEPS = 4  # of 16: rows of 128 bytes
SPARE = 2048  # bytes of shared memory for mbarriers and alignment
TOGETHER = 16  # tiles along m that start together, if those are all
# Measured on H200, as far as the order of rows depends on it.
START_SECONDS = 1.5e-6  # of a block: its first boxes, its stores
JOIN_SECONDS = 5e-6  # of the parts of a split fold
ROWS_COLUMNS = 8  # columns whose products take as long as what a wgmma does beside its products
SM_BYTES = 1.5e11  # that an SM reads from L2 a second
L2_SHARE = 2.1  # boxes that come from one read of L2: neighbouring blocks ask for the same at the same time


def matches(facts: Facts) -> bool:
    """Both operands are tensors that the copy engine can read."""
    if not matrix.matches(facts) or (p := product(facts)) is None:
        return False
    found = [multiplied(facts, p, c) for c in p.fold.carries if p.n in facts.known[c.results[0]].axes]
    return all(f is not None and all(_reachable(facts, x, p) for x in f) for f in found)


def _reachable(facts: Facts, name: str, p: Product) -> bool:
    v = facts.known[name]
    found = tma.operand(v.stmt, facts.buffers, {a: facts.extents[a] for a in v.axes})
    return found is not None and tma.boxed(found, [a for a in v.axes if a in (p.m, p.n, p.k)])


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    p = product(facts)
    assert p is not None
    if not target.wgmma:
        return
    steps = range(8, COLUMNS // p.accumulators + 1, 8)
    sizes = [(warps, n) for warps in WARPS for n in steps if warps * n * p.accumulators <= MOST]
    blocks = [Block((warps, 1), (1, n, K_STEPS), _rate(n * p.accumulators)) for warps, n in sizes]
    choices = [(block, split) for block in blocks for split in SPLITS if divides(facts, p, block, split)]
    for block, split in sorted(choices, key=lambda c: _seconds(facts, target, p, *c))[:TRIED]:
        for resident in (1, 2):
            room = (target.shared_per_sm // resident - SPARE) // block.shared(p, 0)
            depth = min(room, max(DEPTHS["tma"]))
            if depth > 2:
                row = matrix.tiled(facts, p, block, split, Stage(depth, "tma"), TOGETHER)
                yield replace(row, resident=resident if resident > 1 else 0)


def _rate(steps: int) -> float:
    return 8 * steps / (8 * steps + ROWS_COLUMNS)


def _seconds(facts: Facts, target: Target, p: Product, block: Block, split: int) -> float:
    """Modelled time: waves of blocks, and the join of a split fold."""
    assert p.m is not None
    m, n = counts(facts, p, block)
    outputs = facts.points(tuple(a.name for a in facts.axes.outer))
    blocks = outputs // (facts.extents[p.m] * facts.extents[p.n]) * m * n * split
    depth = facts.points(tuple(a.name for a in p.fold.axes)) / split
    work = 2 * block.tile("m") * block.tile("n") * p.accumulators * depth
    boxes = (block.tile("m") + block.tile("n") * p.accumulators) * depth * block.itemsize
    seconds = max(work / (target.flops["f16"] / target.sms * block.rate), boxes / SM_BYTES) + START_SECONDS
    join = JOIN_SECONDS + 8 * split * outputs * p.accumulators / target.l2_bandwidth if split > 1 else 0.0
    return max(-(-blocks // target.sms) * seconds, blocks * boxes / (L2_SHARE * target.l2_bandwidth)) + join
