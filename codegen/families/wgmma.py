"""Contractions by warpgroups (wgmma), operands by the copy engine (TMA) in many buffers: of 16-bit values, and of f32 ones as three
products of tf32 parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from emmy_eq.codegen.families import matrix
from emmy_eq.codegen.families.contraction import Product, product
from emmy_eq.codegen.families.facts import Facts
from emmy_eq.codegen.families.matrix import Block, counts, divides, multiplied
from emmy_eq.codegen.lower import tma, tma_store, wgmma_f32
from emmy_eq.codegen.schedule import ATOMS, DEPTHS, Schedule, Stage
from emmy_eq.extract.targets import Target
from emmy_eq.ops import itemsize

TRIED = 6  # tiles proposed
SPLITS = (1, 2, 3, 4, 6, 8)
K_STEPS = 4  # of 32 bytes: rows of 128
SPARE = 2048  # bytes of shared memory for mbarriers and alignment
TOGETHER = 16  # tiles along m that start together, if those are all
# Measured on H200, as far as the order of rows depends on it.
START_SECONDS = 1.5e-6  # of a block: its first boxes, its stores
SM_BYTES = 1.5e11  # that an SM reads from L2 a second
NARROW = 32  # rows that become columns, padded to 8 of them instead of 64 (16 x 4096 x 4096: 16.5 us, as columns 9.0)
L2_SHARE = 2.1  # boxes that come from one read of L2: neighbouring blocks ask for the same at the same time


@dataclass(frozen=True, slots=True)
class Kind:
    """How warpgroups multiply values of a type.  ``unit``: of the target; ``columns``: steps of 8 columns of all accumulators of a
    warpgroup; ``warps``: of 16 rows each; ``most``: warps times steps of columns that an SM's registers have room for, ``twice`` in each
    of two blocks; ``parts``: of an element of the right operand in shared memory; ``beside``: columns whose products take as long as
    what a step does beside them, of each of ``warps``; ``join``: seconds of adding up the parts of a split fold, and bytes of a part that
    L2 would bring meanwhile."""

    unit: str
    columns: Sequence[int]
    warps: tuple[int, ...]
    most: int
    twice: int
    parts: int
    beside: tuple[int, ...]
    join: tuple[float, int]
    persistent: bool  # whether blocks that take several tiles are faster (measured on H200)


HALVES = Kind("f16", range(8, 33, 8), (4, 8, 16), 256, 256, 1, (8, 8, 8), (5e-6, 8), True)
TURNED = replace(
    HALVES, columns=range(1, 33), warps=(4,), beside=(8,), join=(1.6e-6, 8), persistent=False
)  # halves, whose few rows are columns
FLOATS = Kind("tf32x3", range(2, 19, 2), (4, 8), 144, 16, 2, (186, 66), (1.5e-6, 32), False)


def matches(facts: Facts) -> bool:
    """Both operands are tensors that the copy engine can read."""
    return matrix.matches(facts) and (p := product(facts)) is not None and bool(_orders(facts, p))


def _orders(facts: Facts, p: Product) -> list[Product]:
    """``p``, and with m and n exchanged, as far as warpgroups take its operands so."""
    assert p.m is not None
    pairs = [multiplied(facts, p, c) for c in p.fold.carries if p.n in facts.known[c.results[0]].axes]
    if None in pairs:
        return []
    operands = [(a, x) for pair in pairs for x in pair or () for a in (p.m, p.n) if a in facts.known[x].axes]
    turned = replace(p, m=p.n, n=p.m)
    if matrix.operands(facts, p) != "f32":
        if not all(_contiguous(facts, x, (a, p.k)) for a, x in operands):
            return []
        along = all(_contiguous(facts, x, (a, p.k)) == p.k for a, x in operands if a == p.m)
        return [p, turned] if along and facts.extents[p.m] <= NARROW and p.others == 0 else [p]
    # The columns' operand lies along k as it is, the rows' is made of such that can be read; what else a fold carries takes the lanes
    # that the columns have.
    rows = {a for a, _ in operands if all(_made_of_boxes(facts, x, (a, p.k)) for b, x in operands if a == b)}
    columns = {a for a, _ in operands if all(_contiguous(facts, x, (a, p.k)) == p.k for b, x in operands if a == b)}
    return [q for q in (p, turned) if q.m in rows and q.n in columns and (q is p or p.others == 0)]


def _made_of_boxes(facts: Facts, name: str, axes: tuple[str, str]) -> bool:
    found = wgmma_f32.boxed(facts.known, name, axes)
    return bool(found) and not facts.known[name].folds and all(_contiguous(facts, x, axes) for x in found)


def _contiguous(facts: Facts, name: str, axes: tuple[str, str]) -> str:
    """That of ``axes`` along which a value lies in memory of which the copy engine can bring boxes along both; none: it cannot."""
    v = facts.known[name]
    found = tma.operand(v.stmt, facts.buffers, {a: facts.extents[a] for a in v.axes})
    return next(iter(found)).name if found and tma.boxed(found, axes) else ""


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    p = product(facts)
    assert p is not None
    f32 = matrix.operands(facts, p) == "f32"
    if not target.wgmma or (f32 and target.contraction_units["f32"] != "fma"):
        return
    kinds = [(q, FLOATS if f32 else HALVES if q is p else TURNED) for q in _orders(facts, p)]
    choices = [(kind, q, b, s) for q, kind in kinds for b in _blocks(facts, q, kind) for s in SPLITS if divides(facts, q, b, s)]
    for kind, q, block, split in sorted(choices, key=lambda c: _seconds(facts, target, *c))[:TRIED]:
        for resident in (1, 2):
            held = target.sms * resident
            for persistent in (held, 0) if kind.persistent and split == 1 and _tiles(facts, q, block) > held else (0,):
                results = _results(facts, q, block) if persistent else 0
                room = (target.shared_per_sm // resident - SPARE - results) // _shared(q, block, kind)
                depth = min(room, max(DEPTHS["tma"]))
                if depth > 2 and (resident == 1 or _held(q, block) <= kind.twice):
                    row = matrix.tiled(facts, q, block, split, Stage(depth, "tma"), TOGETHER)
                    yield replace(row, resident=resident if resident > 1 else 0, persistent=persistent)


def _tiles(facts: Facts, p: Product, block: Block) -> int:
    """Of the result."""
    assert p.m is not None
    others = facts.points(tuple(a.name for a in facts.axes.outer if a.name not in (p.m, p.n)))
    return others * prod(counts(facts, p, block))


def _results(facts: Facts, p: Product, block: Block) -> int:
    """Bytes of the boxes in which warps collect results of 16 bits."""
    panels = -(-block.tile("n") // tma_store.PANEL)
    halves = any(itemsize(facts.buffers[s.buffer].dtype) == tma_store.ITEM for s in facts.stores)
    return block.warps[0] * tma_store.slots(panels) * tma_store.BOX * tma_store.ITEM if halves else 0


def _blocks(facts: Facts, p: Product, kind: Kind) -> Iterator[Block]:
    few = -(-facts.extents[p.n] // ATOMS["n8"])
    for warps, beside in zip(kind.warps, kind.beside, strict=True):
        for n in (few,) if kind is TURNED else kind.columns:
            held = n * p.accumulators
            if held <= kind.columns[-1] and warps * held <= kind.most:
                yield Block((warps, 1), (1, n, K_STEPS), 8 * held / (8 * held + beside), kind.unit)


def _held(p: Product, block: Block) -> int:
    """Warps times steps of columns of all accumulators."""
    return block.warps[0] * block.steps[1] * p.accumulators


def _shared(p: Product, block: Block, kind: Kind) -> int:
    """Bytes of one buffer of the operands."""
    return _brought(p, block, kind, kind.parts) * block.tile("k") * block.itemsize


def _brought(p: Product, block: Block, kind: Kind, parts: int = 1) -> int:
    """Rows of the operands of a step: all sums have one of the left operand, or of few rows' right one."""
    m, n = block.tile("m"), block.tile("n")
    return m * p.accumulators + n if kind is TURNED else m + parts * p.accumulators * n


def _seconds(facts: Facts, target: Target, kind: Kind, p: Product, block: Block, split: int) -> float:
    """Modelled time: waves of blocks, and the join of a split fold."""
    outputs = facts.points(tuple(a.name for a in facts.axes.outer))
    blocks = _tiles(facts, p, block) * split
    depth = facts.points(tuple(a.name for a in p.fold.axes)) / split
    work = 2 * block.tile("m") * block.tile("n") * p.accumulators * depth
    boxes = _brought(p, block, kind) * depth * block.itemsize
    seconds = max(work / (target.flops[block.unit] / target.sms * block.rate), boxes / SM_BYTES) + START_SECONDS
    once, part = kind.join
    join = once + part * split * outputs * p.accumulators / target.l2_bandwidth if split > 1 else 0.0
    return max(-(-blocks // target.sms) * seconds, blocks * boxes / (L2_SHARE * target.l2_bandwidth)) + join
