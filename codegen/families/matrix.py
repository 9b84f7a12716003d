"""Contractions on tensor cores (mma.sync): tiles of warps, operands by cp.async through shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from emmy_eq.codegen.families import contraction
from emmy_eq.codegen.families.contraction import FOLD_STEP, Product, product, step_seconds
from emmy_eq.codegen.families.facts import Facts, ceil_power
from emmy_eq.codegen.lower.stage import MATRIX_ROW
from emmy_eq.codegen.schedule import ATOMS, DEPTHS, WARP, Schedule, Split, Stage
from emmy_eq.codegen.tile_ir import factors, sums_products
from emmy_eq.extract.products import Steps, Tile, few, units
from emmy_eq.extract.targets import Target
from emmy_eq.extract.work import Work
from emmy_eq.loop_ir import Carry, Kernel, Load

TRIED = 8  # tiles proposed
HELD = 32  # elements of the fold a step of operands that wait in registers: measured on H200, 20 % faster than 64
SPLIT_STEPS = 8  # steps of a part of a split fold, at least
DEEP = {"f16": "k16", "bf16": "k16", "tf32": "k8", "tf32x3": "k8x3"}  # the k atom, by the target's unit


@dataclass(frozen=True, slots=True)
class Block:
    """Warps along m and n, steps of mma.sync a warp along m, n and k.  ``rate``: of warpgroups, the part of the peak that they reach."""

    warps: tuple[int, int]
    steps: tuple[int, int, int]
    rate: float = 1.0
    unit: str = "f16"  # of the target
    resident: int = 0  # blocks that an SM must have registers for

    @property
    def deep(self) -> str:
        """The atom along k."""
        return DEEP[self.unit]

    def split(self, axis: str) -> Split:
        n = "mnk".index(axis)
        warps = (*self.warps, 1)[n]
        return Split(regs=self.steps[n], threads=warps, slow=warps > 1, atom=("m16", "n8", self.deep)[n])

    def tile(self, axis: str) -> int:
        return self.split(axis).tile

    @property
    def known(self) -> Tile:
        """What the cost model knows of it."""
        shape = (*map(self.tile, "mnk"), self.threads)
        return next(t for t in units()[self.unit].tiles if (t.m, t.n, t.step, t.threads) == shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an operand's element: a step along k is of 32 bytes."""
        return 32 // ATOMS[self.deep]

    @property
    def threads(self) -> int:
        return WARP * self.warps[0] * self.warps[1]

    def sums(self, p: Product) -> int:
        """Accumulators of a thread."""
        return 4 * self.steps[0] * self.steps[1] * p.accumulators

    def shared(self, p: Product, pad: int = MATRIX_ROW) -> int:
        """Bytes of one buffer of the operands, whose rows are followed by ``pad`` bytes."""
        return (self.tile("m") + p.accumulators * self.tile("n")) * (self.tile("k") * self.itemsize + pad)


BLOCKS = (
    Block((2, 4), (4, 8, 2)),  # 128 x 256
    Block((4, 2), (4, 8, 2)),  # 256 x 128
    Block((2, 2), (4, 8, 2)),  # 128 x 128
    Block((2, 4), (4, 4, 2)),  # 128 x 128
    Block((2, 2), (4, 4, 2)),  # 128 x 64
    Block((2, 2), (2, 8, 2)),  # 64 x 128
    Block((2, 2), (2, 4, 4)),  # 64 x 64
    Block((2, 2), (1, 4, 4)),  # 32 x 64
    Block((1, 4), (1, 4, 4)),  # 16 x 128
    Block((1, 4), (1, 2, 4)),  # 16 x 64
    Block((1, 4), (1, 1, 4)),  # 16 x 32
)


# Of f32 operands.
F32_BLOCKS = (
    Block((2, 4), (4, 4, 4), unit="tf32x3", resident=2),  # 128 x 128
    Block((2, 2), (4, 8, 4), unit="tf32x3"),  # 128 x 128
    Block((2, 2), (4, 4, 4), unit="tf32x3"),  # 128 x 64
    Block((1, 4), (2, 4, 4), unit="tf32x3"),  # 32 x 128
    Block((1, 4), (2, 2, 4), unit="tf32x3"),  # 32 x 64
    Block((2, 2), (1, 4, 4), unit="tf32x3"),  # 32 x 64
    Block((1, 4), (1, 1, 4), unit="tf32x3"),  # 16 x 32
)


def matches(facts: Facts) -> bool:
    """One operand of few rows is read straight from memory instead, by rows of the contraction family."""
    if facts.nested or any(f.observer for f in facts.folds) or (p := product(facts)) is None:
        return False
    dtype = operands(facts, p)
    return p.m is not None and dtype is not None and facts.extents[p.m] > few(dtype)


def operands(facts: Facts, p: Product) -> str | None:
    """The type of what tensor cores may multiply for some sum."""
    found = (multiplied(facts, p, c) for c in p.fold.carries)
    return next((facts.known[f[0]].dtype for f in found if f is not None), None)


def multiplied(facts: Facts, p: Product, c: Carry) -> tuple[str, str] | None:
    """The values that tensor cores may multiply for ``c``: they vary along m and k, and along n and k."""
    found = factors(c.args[0], facts.known) if c.name == "sum" else None
    axes = [{p.m, p.n, p.k} & set(facts.known[x].axes) for x in found or ()]
    return found if axes in ([{p.m, p.k}, {p.n, p.k}], [{p.n, p.k}, {p.m, p.k}]) else None


def rows(facts: Facts, target: Target) -> Iterator[Schedule]:
    p = product(facts)
    assert p is not None
    if not _behind_fma(facts, target, p):
        yield from _rows(facts, target, p)


def rows_behind_fma(facts: Facts, target: Target) -> Iterator[Schedule]:
    """Rows that come after those of fma, for tuning."""
    p = product(facts)
    assert p is not None
    if _behind_fma(facts, target, p):
        yield from _rows(facts, target, p)


def _behind_fma(facts: Facts, target: Target, p: Product) -> bool:
    """Whether three tf32 products are modelled slower."""
    if p.m is None or _unit(facts, target, p) != "tf32x3":
        return False
    return min(_seconds(facts, target, p, *c) for c in _choices(facts, p, "tf32x3")) > contraction.seconds(facts, target, p)


def _unit(facts: Facts, target: Target, p: Product) -> str:
    unit = target.contraction_units[operands(facts, p) or "f32"]
    return "tf32x3" if unit == "fma" and target.in_parts else unit


def _rows(facts: Facts, target: Target, p: Product) -> Iterator[Schedule]:
    unit = _unit(facts, target, p)
    if unit not in DEEP:
        return
    for block, split in sorted(_choices(facts, p, unit), key=lambda c: _seconds(facts, target, p, *c))[:TRIED]:
        block = _shallow(facts, p, block)
        most = max(DEPTHS["async"]) if _copied(facts, p) else min(DEPTHS["async"])
        depths = [d for d in DEPTHS["async"] if d <= most and d * block.shared(p) * _resident(target, p, block) <= target.shared_per_sm]
        for depth in (*depths[::-1], *([] if depths else [min(DEPTHS["async"])])):
            yield tiled(facts, p, block, split, Stage(depth, "async"))


def _shallow(facts: Facts, p: Product, block: Block) -> Block:
    """``block``, with no steps of mma.sync beyond a short fold, nor more elements a step than threads have registers for on the way."""
    m, n, k = block.steps
    deep = facts.extents[p.k] if _copied(facts, p) else min(facts.extents[p.k], HELD)
    return replace(block, steps=(m, n, min(k, ceil_power(-(-deep // ATOMS[block.deep])))))


def _copied(facts: Facts, p: Product) -> bool:
    """Whether an operand comes by cp.async, several steps ahead: others wait in registers for one."""
    sums = [c for c in p.fold.carries if sums_products(c, facts.known)]
    stmts = [facts.known[x].stmt for c in sums for x in factors(c.args[0], facts.known) or ()]
    return any(isinstance(s, Load) and facts.contiguous(s) in (p.m, p.n, p.k) for s in stmts)


def _choices(facts: Facts, p: Product, unit: str) -> list[tuple[Block, int]]:
    blocks = [replace(b, unit=unit) for b in (BLOCKS if DEEP[unit] == "k16" else F32_BLOCKS)]
    return [(block, split) for block in blocks for split in units()[unit].parts if divides(facts, p, block, split)]


def divides(facts: Facts, p: Product, block: Block, split: int) -> bool:
    """Only a kernel's one fold is split, along the axis of most steps."""
    steps = _steps(p, block)
    return split == 1 or (len(facts.folds) == 1 and max(steps.values()) >= split and prod(steps.values()) >= SPLIT_STEPS * split)


def _steps(p: Product, block: Block) -> dict[str, int]:
    """Whole ones along each axis of the fold."""
    return {a.name: max(1, a.extent // block.tile("k")) if a.name == p.k else a.extent for a in p.fold.axes}


def counts(facts: Facts, p: Product, block: Block) -> tuple[int, int]:
    """Tiles along m and n."""
    assert p.m is not None
    return -(-facts.extents[p.m] // block.tile("m")), -(-facts.extents[p.n] // block.tile("n"))


def _resident(target: Target, p: Product, block: Block) -> int:
    """Blocks of an SM: as registers (about 50 for operands and addresses beside the sums) and two buffers allow."""
    registers = min(255, 50 + block.sums(p))
    found = min(target.registers_per_sm // (registers * block.threads), target.shared_per_sm // (2 * block.shared(p)), 2)
    return max(1, found)


def _seconds(facts: Facts, target: Target, p: Product, block: Block, split: int) -> float:
    """By the cost model."""
    assert p.m is not None
    unit = units()[block.unit]
    outputs = facts.points(tuple(a.name for a in facts.axes.outer))
    blocks = outputs // (facts.extents[p.m] * facts.extents[p.n]) * prod(counts(facts, p, block))
    depth = facts.points(tuple(a.name for a in p.fold.axes))
    work = Steps(unit.rate(target, block.unit), p.accumulators, step_seconds(facts, target, p, unit))
    traffic = blocks * (block.tile("m") + block.tile("n") * p.accumulators) * depth * block.itemsize / target.l2_bandwidth
    return max(work.seconds(target, unit, block.known, blocks, depth, split), traffic)


def tiled(facts: Facts, p: Product, block: Block, split: int, stage: Stage, together: int = 0) -> Schedule:
    """``together``: all tiles along m start together if they are no more than that."""
    assert p.m is not None
    reduce = {}
    for f, kind in zip(facts.folds, facts.kinds, strict=True):
        for a in f.axes:
            step = min(FOLD_STEP, ceil_power(a.extent)) if kind != "contraction" and a == f.axes[-1] else 1
            reduce[a.name] = Split(steps=0, regs=step)
    reduce[p.k] = replace(block.split("k"), steps=0)
    steps = _steps(p, block)
    longest = max(steps, key=lambda a: steps[a])
    reduce[longest] = replace(reduce[longest], blocks=split)
    tile = ((p.m, block.split("m")), (p.n, block.split("n")))
    return Schedule(block.threads, tile, tuple(reduce.items()), stage, _raster(facts, p, block, together), block.resident)


def _raster(facts: Facts, p: Product, block: Block, together: int) -> str:
    """Blocks that run together share operands in L2: 8 tiles along the outer one of m and n (or all), then one along the other."""
    assert p.m is not None
    tiles = dict(zip((p.m, p.n), counts(facts, p, block), strict=True))
    last = [a.name for a in facts.axes.outer[-2:]]
    if set(last) != set(tiles):
        return "row"
    m, n = (tiles[a] for a in last)
    group = m if 1 < m <= together else 8
    return f"g{group}" if m % group == 0 and n >= 8 else "row"


def flops_by_unit(kernel: Kernel, flops: Mapping[str, int], row: Schedule) -> dict[str, int]:
    """The model's ``flops`` of ``kernel``, with f32 products on the unit that ``row`` has for them."""
    units = {atom: unit for unit, atom in DEEP.items() if unit.startswith("tf32")}
    unit = next((units[s.atom] for _, s in row.reduce if s.atom in units), "fma")
    beside = Work(kernel).flops.get("fma", 0)
    products = sum(flops.get(name, 0) for name in ("fma", *units.values())) - beside
    found = {**flops, **dict.fromkeys(units.values(), 0), "fma": beside}
    found[unit] += products
    return {name: n for name, n in sorted(found.items()) if n}
