"""Twisted contractions of few rows (flash-decoding): no tile of keys is shared, so they are read as a matrix-vector product reads.

The lanes of a group lie along a row of keys and again along a row of values, so that both are read once, in whole vectors; groups
walk their own keys, and the fold is split over blocks until they fill the machine.  Several rows of 16-bit values, as the queries of a
group have, are those of one step of a tensor core: threads then do nothing for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from emmy_eq.codegen.families.attention import DEPTH, MOST_REGISTERS, Chain, Warps, chain, rounds
from emmy_eq.codegen.families.facts import Facts, ceil_power, vector
from emmy_eq.codegen.schedule import ATOMS, WARP, Schedule, Split, Stage
from emmy_eq.codegen.tile_ir import Fold, walk
from emmy_eq.extract.targets import Target

ROWS = 8  # that share a key and are worth registers each; more are for a tile
THREADS = 256
WARPS = 4  # along columns of a row's result, on tensor cores
STEPS = 2  # of a block, at least: what pays for joining its part


def matches(facts: Facts) -> bool:
    c = chain(facts)
    return c is not None and len(c.inner) == 1 and len(_outer(facts)) == 1 and prod(facts.extents[a] for a in _shared(facts, c)) <= ROWS


def _outer(facts: Facts) -> list[Fold]:
    inside = {id(s) for f in facts.folds for s in walk(f.body)}
    return [f for f in facts.folds if id(f) not in inside]


def _shared(facts: Facts, c: Chain) -> list[str]:
    """The axes of rows that read the same keys and values."""
    read = [set(facts.known[s.name].axes) for s in facts.loads]
    other = {a for axes in read if c.j in axes and axes & {c.d, *c.inner} for a in axes}
    return [a.name for a in facts.axes.outer if a.name != c.d and a.name not in other]


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    c = chain(facts)
    assert c is not None
    (inner,) = c.inner
    shared = _shared(facts, c)
    tiles = prod(a.extent for a in facts.axes.outer if a.name != c.d and a.name not in shared)
    keys = facts.extents[c.j]
    if len(several := [a for a in shared if facts.extents[a] > 1]) == 1 and rounds(facts, c):
        yield from _on_tensor_cores(facts, target, c, several[0], tiles)
    for regs, blocks_per_sm in ((4, 2), (2, 2), (4, 4), (8, 1)):
        wide, deep = (_lanes(facts, axis) for axis in (c.d, inner))
        groups = THREADS // max(wide.threads, deep.threads)
        blocks = min(target.sms * blocks_per_sm // tiles, keys // (groups * regs * STEPS))
        tile = (*((a, Split(regs=facts.extents[a])) for a in shared if facts.extents[a] > 1), (c.d, wide))
        fold = Split(blocks=max(1, blocks), steps=0, regs=regs, threads=groups, slow=groups > 1)
        yield Schedule(THREADS, tile, tuple((a.name, fold if a.name == c.j else deep) for a in facts.axes.folded))


def _on_tensor_cores(facts: Facts, target: Target, c: Chain, i: str, tiles: int) -> Iterator[Schedule]:
    """One block an SM: joining more parts costs more than they hide (H200, 64 groups of 4, 4096 keys: 42.0 us, 6 blocks a group 45.0)."""
    (inner,) = c.inner
    d, e, keys = (facts.extents[a] for a in (c.d, inner, c.j))
    columns = -(-d // ATOMS["n8"])
    warps = min(WARPS, ceil_power(columns))
    tile = ((i, Split(atom="m16")), (c.d, Split(regs=-(-columns // warps), threads=warps, slow=warps > 1, atom="n8")))
    for w, resident in ((Warps(1, 1, 8, 1.0), 1), (Warps(1, 1, 4, 1.0), 2)):
        if w.registers(d // warps) > MOST_REGISTERS or w.shared(e, d) > target.shared_per_block:
            continue
        blocks = min(target.sms * resident // tiles, keys // (ATOMS["k16"] * w.keys * STEPS))
        outer, deep = Split(blocks=max(1, blocks), steps=0, regs=w.keys, atom="k16"), Split(regs=-(-e // ATOMS["k16"]), atom="k16")
        folds = tuple((a.name, outer if a.name == c.j else deep) for a in facts.axes.folded)
        yield Schedule(WARP * warps, tile, folds, Stage(DEPTH, "async"))


def _lanes(facts: Facts, axis: str) -> Split:
    """A row of ``axis`` over up to a warp."""
    n = facts.extents[axis]
    v = vector(n, facts.itemsize)
    threads = min(WARP, ceil_power(-(-n // v)))
    return Split(regs=-(-n // (threads * v)), threads=threads, vector=v)
