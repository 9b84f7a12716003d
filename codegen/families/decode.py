"""Twisted contractions of few rows (flash-decoding): no tile of keys is shared, so they are read as a matrix-vector product reads.

The lanes of a group lie along a row of keys and again along a row of values, so that both are read once, in whole vectors; groups
walk their own keys, and the fold is split over blocks until they fill the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from emmy_eq.codegen.families.attention import Chain, chain
from emmy_eq.codegen.families.facts import Facts, ceil_power, vector
from emmy_eq.codegen.schedule import WARP, Schedule, Split
from emmy_eq.codegen.tile_ir import Fold, walk
from emmy_eq.extract.targets import Target

ROWS = 8  # that share a key and are worth registers each; more are for a tile
THREADS = 256
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
    for regs, blocks_per_sm in ((4, 2), (2, 2), (4, 4), (8, 1)):
        wide, deep = (_lanes(facts, axis) for axis in (c.d, inner))
        groups = THREADS // max(wide.threads, deep.threads)
        blocks = min(target.sms * blocks_per_sm // tiles, keys // (groups * regs * STEPS))
        tile = (*((a, Split(regs=facts.extents[a])) for a in shared if facts.extents[a] > 1), (c.d, wide))
        fold = Split(blocks=max(1, blocks), steps=0, regs=regs, threads=groups, slow=groups > 1)
        yield Schedule(THREADS, tile, tuple((a.name, fold if a.name == c.j else deep) for a in facts.axes.folded))


def _lanes(facts: Facts, axis: str) -> Split:
    """A row of ``axis`` over up to a warp."""
    n = facts.extents[axis]
    v = vector(n, facts.itemsize)
    threads = min(WARP, ceil_power(-(-n // v)))
    return Split(regs=-(-n // (threads * v)), threads=threads, vector=v)
