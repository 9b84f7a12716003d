"""Attention of 16-bit values by warpgroups (wgmma), operands by the copy engine (TMA)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, sqrt

import numpy as np

from emmy_eq.codegen.families import attention
from emmy_eq.codegen.families.attention import Chain
from emmy_eq.codegen.families.facts import Facts
from emmy_eq.codegen.lower import tma, tma_store
from emmy_eq.codegen.schedule import ATOMS, WARP, WARPGROUP, Schedule, Split, Stage
from emmy_eq.codegen.tile_ir import halves
from emmy_eq.extract.products import FEW
from emmy_eq.extract.targets import Target

ITEM = 2  # bytes of an element
ROWS = 64  # of a warpgroup
MOST_COLUMNS = 256  # of a wgmma
DEPTH = 2  # buffers of keys and of values
SPARE = 2048  # bytes of shared memory for mbarriers and alignment
ADDRESSES = 40  # registers of a thread beside scores, weights and sums
EVEN = 1.04  # times the mean that a persistent block may have to do: it is 6 % faster (measured on H200)
KEPT = 1 / 3  # part of L2 for the keys and values of heads that start together
LINE = 128  # bytes of L2
STRADDLING = 70  # rows of scores that an SM works through while the copy engine brings a row of a box, if some lie in two lines (H200)


@dataclass(frozen=True, slots=True)
class Block:
    """``groups`` warpgroups of 64 rows, ``keys`` a step, ``resident`` blocks of an SM.  ``rate``: speed of a full machine beside
    that of 2 x 128 (measured on H200)."""

    groups: int
    keys: int
    resident: int
    rate: float

    @property
    def height(self) -> int:
        return ROWS * self.groups

    def registers(self, d: int) -> int:
        """Of a thread: sums, scores, and weights as left operands."""
        return ADDRESSES + d // 2 + 3 * self.keys // 4

    def shared(self, e: int, d: int) -> int:
        """Bytes; ``e``: the inner fold's extent."""
        panel = tma.ROW // ITEM
        e, d = (-(-n // panel) * panel for n in (e, d))
        return ITEM * (self.height * e + DEPTH * self.keys * (e + d)) + SPARE

    def results(self, d: int) -> int:
        """Bytes, where a block goes on with another tile."""
        return ITEM * self.height // ATOMS["m16"] * tma_store.slots(-(-d // tma_store.PANEL)) * tma_store.BOX

    def fits(self, target: Target, e: int, d: int) -> bool:
        threads = self.groups * WARPGROUP
        # A block alone gives its warpgroups the registers of the producer's.
        alone = tma.registers_of(target.registers_per_sm, self.groups)[1]
        most = alone if self.resident == 1 else target.registers_per_sm // (self.resident * (threads + WARP))
        return self.registers(d) <= most and self.resident * self.shared(e, d) <= target.shared_per_sm


BLOCKS = (
    Block(1, 128, 2, 1.06),
    Block(1, 64, 3, 1.01),
    Block(2, 128, 1, 1.0),
    Block(4, 64, 1, 0.95),
    Block(1, 64, 2, 0.87),
    Block(2, 64, 1, 0.83),
    Block(1, 128, 1, 0.68),
    Block(1, 64, 1, 0.6),
)


def matches(facts: Facts) -> bool:
    """Both products are of tensors that the copy engine can read."""
    c = attention.chain(facts)
    if c is None or c.i is None or not attention.rounds(facts, c):
        return False
    twisted = all(x.kind == "twist" for f in facts.folds if f.axes[0].name == c.j for x in f.carries)
    return twisted and all(_boxed(facts, n, {c.i, c.d, c.j, *c.inner}) for n in _operands(facts, c))


def _operands(facts: Facts, c: Chain) -> list[str]:
    """Of both products, without the weights."""
    scores = [n for f in facts.folds if f.axes[0].name in c.inner for x in f.carries for n in halves(x.args[0], facts.known) or ()]
    carries = [x for f in facts.folds if f.axes[0].name == c.j for x in f.carries]
    return scores + [n for x in carries for n, r in zip(x.args, x.results, strict=True) if c.d in facts.known[r].axes]


def _boxed(facts: Facts, name: str, tiled: set[str | None]) -> bool:
    v = facts.known[name]
    shape = tma.operand(v.stmt, facts.buffers, {a: facts.extents[a] for a in v.axes})
    return shape is not None and tma.boxed(shape, [a for a in v.axes if a in tiled])


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    c = attention.chain(facts)
    assert c is not None
    assert c.i is not None
    height, d, (e, *_) = facts.extents[c.i], facts.extents[c.d], (facts.extents[a] for a in c.inner)
    if not target.wgmma or height <= FEW or d > MOST_COLUMNS:
        return
    others = facts.points(tuple(a.name for a in facts.axes.outer if a.name not in (c.i, c.d)))
    copied = STRADDLING * _straddling(facts, c)

    def seconds(b: Block) -> tuple[float, float]:
        blocks = others * -(-height // b.height)
        held = min(b.resident, -(-blocks // target.sms))
        turns = -(-blocks // (target.sms * held)) * held
        computed = b.height / (b.rate * sqrt(held / b.resident))
        return turns * max(copied, computed), turns * computed

    for b in sorted((b for b in BLOCKS if b.fits(target, e, d)), key=seconds):
        warps = b.height // ATOMS["m16"]
        tile = ((c.i, Split(threads=warps, slow=True, atom="m16")), (c.d, Split(regs=-(-d // ATOMS["n8"]), atom="n8")))
        keys, inner = Split(steps=0, regs=b.keys // ATOMS["k16"], atom="k16"), Split(regs=-(-e // ATOMS["k16"]), atom="k16")
        folds = tuple((a.name, keys if a.name == c.j else inner) for a in facts.axes.folded)
        row = Schedule(WARP * warps, tile, folds, Stage(DEPTH, "tma"), "row", b.resident if b.resident > 1 else 0)
        groups = _groups(facts, target, c, others) if attention.causal(facts, c) else []
        down = -(-height // b.height)
        if b.resident == 1 and others * down > target.sms and target.shared_per_sm >= b.shared(e, d) + b.results(d):
            even = {g: _uneven(down, others, g, target.sms) for g in groups}
            best = min(even, key=lambda g: even[g], default=None)
            if best is None or even[best] < EVEN:
                yield replace(row, raster=_late(best, others), persistent=target.sms)
        yield replace(row, raster=_late(next(iter(groups), None), others))


def _groups(facts: Facts, target: Target, c: Chain, heads: int) -> list[int]:
    """Numbers of heads for whose keys and values L2 has room at a time, the largest first."""
    moving = [n for n in _operands(facts, c) if c.j in facts.known[n].axes]
    size = ITEM * sum(facts.points(facts.known[n].axes) for n in moving)
    most = max(1, int(KEPT * target.l2_bytes * heads / size))
    return [n for n in range(min(most, heads), 0, -1) if heads % n == 0]


def _straddling(facts: Facts, c: Chain) -> int:
    """Rows of boxes that a key takes, of operands of which some rows lie in two lines of L2."""
    found = 0
    for n in _operands(facts, c):
        v = facts.known[n]
        (inner, _), *others = (tma.operand(v.stmt, facts.buffers, {a: facts.extents[a] for a in v.axes}) or {}).items()
        size = ITEM * facts.extents[inner.name]
        if c.j in v.axes and min(size, LINE) > gcd(LINE, *(ITEM * stride for _, stride in others)):
            found += -(-size // tma.ROW)
    return found


def _late(group: int | None, heads: int) -> str:
    """Under a causal mask, blocks with most keys first, of a group of heads at a time."""
    return "row" if group is None else "late" if group == heads else f"late{group}"


def _uneven(down: int, heads: int, group: int, blocks: int) -> float:
    """What the busiest of ``blocks`` persistent blocks has to do beside the mean, of ``down`` tiles a head whose work falls."""
    tile = np.arange(heads * down)
    work = down - tile // group % down
    turn, place = tile // blocks, tile % blocks
    loads = np.bincount(np.where(turn % 2 == 1, blocks - 1 - place, place), work, blocks)
    return float(loads.max() / loads.mean())
