"""What a kernel costs on a target: a roofline over its Loop IR.

Time is the launch plus the largest of DRAM traffic, L2 traffic and arithmetic, and a little of the rest.  Arithmetic counts
every statement at the points of the axes that its value depends on, times how often a tile-by-tile schedule recomputes it:
a block shares a value among at most `SHARED` iterations that do not change it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from emmy_eq import index as ix
from emmy_eq.extract.targets import Target
from emmy_eq.loop_ir import Axis, Carry, Fold, Kernel, Let, Load, Loop, Stmt
from emmy_eq.ops import HALVES, itemsize, monoids, ops, twists

SHARED = 256  # iterations of a block that use one value
TILE = 128  # rows and columns of a product that one block computes: how often its operands come from L2
ROW_BYTES = 128 << 10  # of a row that a block keeps between passes over it
BLOCK = 256  # threads
MATRIX_UNITS = ("f16", "bf16", "tf32", "tf32x3")
RESIDENT = 1024  # threads an SM needs to be busy
DRAM_EFFICIENCY = 0.9
UNHIDDEN = 0.25  # share of the work on the other units that the busiest one does not hide
DEEP = 4.0  # a fold in a fold in a fold has no tiled schedule
# Share of the fma peak that a product reaches with so many results a thread: registers reuse operands.
PRODUCT_EFFICIENCY = {1: 0.10, 4: 0.30, 8: 0.45, 16: 0.55, 32: 0.65, 64: 0.72}
# The same of mma.sync's peak; estimates, not measured yet.
MATRIX_EFFICIENCY = {2: 0.15, 4: 0.25, 8: 0.35, 16: 0.55, 64: 0.75, 128: 0.8}
SPLIT_STEPS = 256  # steps of a product's fold that are worth a block of their own
FEW_ROWS = 8  # that read the same keys: a fold of folds over them is split over blocks (flash-decoding)


@dataclass(frozen=True, slots=True)
class Cost:
    """``bytes`` move between DRAM and L2, ``l2_bytes`` between L2 and the SMs; ``flops`` by unit; ``bound`` is the roof met.

    ``seconds`` are what counts in a choice: ``measured`` ones where they are known, else ``modelled`` ones times the model's correction.
    """

    seconds: float
    bytes: int
    l2_bytes: int
    flops: Mapping[str, int]
    bound: str
    modelled: float
    measured: float | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """What stands in one block: loads as (bytes, axes), and operations."""

    loads: list[tuple[int, int]]
    lets: list[Let]


@dataclass(frozen=True, slots=True)
class _Product:
    """A sum of products of two values, each of which lacks a parallel axis of the other."""

    points: int  # multiply-adds
    outputs: int  # points of the kernel's parallel axes that they go to
    steps: int  # extent of the fold that blocks may split
    unit: str


def cost(kernel: Kernel, target: Target) -> Cost:
    """Modelled cost of ``kernel`` on ``target``."""
    return _Meter(kernel, target).total()


class _Meter:
    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.bits: dict[str, int] = {}
        self.extents: list[int] = []
        self.depends: dict[str, int] = {}  # axes, as bits, that each value varies along
        self.lets: dict[str, Let] = {}
        self.dtypes: dict[str, str] = {}
        self.flops: dict[str, int] = defaultdict(int)
        self.slots: dict[str, float] = defaultdict(float)  # issue slots by unit
        self.products: list[_Product] = []
        self.sizes = {b.name: _size(b.shape) * itemsize(b.dtype) for b in (*kernel.inputs, *kernel.outputs)}
        self.read: dict[str, dict[tuple[ix.Idx, ...], int]] = defaultdict(dict)  # distinct loads: bytes
        self.again = 0  # bytes that further passes read
        self.rows = 0  # axes that some fold binds: what a block walks along
        self.l2 = 0
        self.deep = 1.0
        self.lanes = float("inf")  # threads that a kernel can use at all
        self.alone: int | None = None  # axes of a fold's inner folds that are no products
        self.absorbed: set[str] = set()
        self.settle(self.block(kernel.body, 0, 0, 0), 0, 0)

    def points(self, mask: int) -> int:
        n = 1
        while mask:
            low = mask & -mask
            n *= self.extents[low.bit_length() - 1]
            mask ^= low
        return n

    def bind(self, axes: Sequence[Axis]) -> int:
        mask = 0
        for a in axes:
            if a.name not in self.bits:
                self.bits[a.name] = 1 << len(self.extents)
                self.extents.append(a.extent)
            mask |= self.bits[a.name]
        return mask

    def index(self, idxs: Sequence[ix.Idx]) -> int:
        mask = 0
        for x in idxs:
            for name in ix.variables(x):
                mask |= self.bits.get(name, 0)
        return mask

    def repeats(self, depends: int, parallel: int, shared: int = SHARED) -> int:
        return ceil(self.points(parallel & ~depends) / shared)

    def anew(self, depends: int, folded: int, depth: int) -> int:
        """How often a fold in two others is computed again: no tile keeps its results over the steps of those that do not change them."""
        return self.points(folded & ~depends) if depth >= 2 else 1

    def settle(self, work: _Work, parallel: int, used: int, folded: int = 0, depth: int = 0) -> None:
        """Count a block's ``work`` for values that vary along the axes ``used``: what a tile of those needs is shared in the tile."""
        again = self.repeats(used, parallel)
        for bytes_, depends in work.loads:
            self.l2 += bytes_ * self.repeats(depends, parallel & used, TILE) * again
        for let in work.lets:
            if let.name not in self.absorbed:
                depends = self.depends[let.name]
                times = again * self.repeats(depends, parallel & used) * self.anew(depends, folded, depth)
                self.count(let.op, let.dtype, self.points(depends) * times)

    def block(self, body: Sequence[Stmt], parallel: int, folded: int, depth: int) -> _Work:
        """``parallel``, ``folded``: axes of the loops and of the folds around; ``depth``: how many folds."""
        work = _Work([], [])
        for stmt in body:
            if isinstance(stmt, Loop):
                inner = parallel | self.bind(stmt.axes)
                self.settle(self.block(stmt.body, inner, folded, depth), inner, inner)
            elif isinstance(stmt, Fold):
                self.fold(stmt, parallel, folded, depth)
            elif isinstance(stmt, Load):
                work.loads.extend(self.load(stmt))
            elif isinstance(stmt, Let):
                self.let(stmt)
                if stmt.op != "lit":
                    work.lets.append(stmt)
            else:
                self.l2 += self.sizes[stmt.buffer]
        return work

    def let(self, stmt: Let) -> None:
        self.lets[stmt.name] = stmt
        self.dtypes[stmt.name] = stmt.dtype
        depends = self.index((stmt.attr,)) if stmt.op == "iota" else 0
        for a in stmt.args:
            depends |= self.depends[a]
        self.depends[stmt.name] = depends

    def count(self, op: str, dtype: str, points: int) -> None:
        row = ops().get(op)
        unit: str = row.unit if row is not None else "alu"
        slots, flops = (row.cost, row.flops) if row is not None else (1.0, 0)
        if dtype == "f64" and unit == "fma":
            unit = "fma_f64"
        self.slots[unit] += slots * points
        if flops and unit != "alu":
            self.flops[unit] += flops * points

    def load(self, stmt: Load) -> list[tuple[int, int]]:
        """Bytes and axes, unless an earlier pass has left them in the block."""
        depends = self.index(stmt.index)
        for a in stmt.indices:
            depends |= self.depends[a]
        self.depends[stmt.name] = depends
        self.dtypes[stmt.name] = stmt.dtype
        size = itemsize(stmt.dtype)
        bytes_ = min(self.points(depends) * size, self.sizes[stmt.buffer])
        known = self.read[stmt.buffer]
        if stmt.index in known:
            if self.points(depends & self.rows) * size <= ROW_BYTES:
                return []
            self.again += bytes_
        known[stmt.index] = bytes_
        return [(bytes_, depends)]

    def fold(self, stmt: Fold, parallel: int, folded: int, depth: int) -> None:
        bound = self.bind(stmt.axes)
        self.rows |= bound
        if depth >= 2:
            self.deep = DEEP
        work = self.block(stmt.body, parallel, folded | bound, depth + 1)
        products = len(self.products)
        used = results = 0
        for carry in stmt.carries:
            mask = bound
            for a in carry.args:
                mask |= self.depends[a]
            self.depends.update(dict.fromkeys(carry.results, mask if stmt.observer else mask & ~bound))
            self.dtypes.update(zip(carry.results, carry.dtypes, strict=True))
            used |= mask
            results |= mask & ~bound
            self.carry(carry, bound, parallel, folded, depth)
        if depth and len(self.products) - products < len(stmt.carries):
            self.alone = results if self.alone is None else self.alone & results
        if self.alone is not None and (depth > 1 or (depth == 0 and not results & ~self.alone)):
            # A fold in a fold that is no product, and that no columns share, has no schedule but a thread a point of the loops around both.
            self.lanes = min(self.lanes, self.points(parallel))
        if not depth:
            self.alone = None
        self.settle(work, parallel, used, folded, depth)
        self.settle(self.block(stmt.observer, parallel | bound, folded, depth), parallel, parallel)

    def carry(self, carry: Carry, bound: int, parallel: int, folded: int, depth: int) -> None:
        if carry.kind == "twist":
            self.twist(carry, bound, parallel, folded, depth)
            return
        (arg,) = carry.args
        depends = self.depends[arg] | bound
        let = self.lets.get(arg)
        if carry.name == "sum" and let is not None and let.op == "mul" and self.product(let.args, bound, parallel, folded, depth):
            self.absorbed.add(arg)  # the multiplication is part of the product
            return
        op = monoids()[carry.name].combine if carry.kind == "monoid" else "maximum"
        self.count(op, carry.dtypes[0], self.points(depends) * self.repeats(depends, parallel) * self.anew(depends, folded, depth))

    def twist(self, carry: Carry, bound: int, parallel: int, folded: int, depth: int) -> None:
        key, *sums = carry.args
        scores = self.depends[key] | bound
        points = self.points(scores) * self.repeats(scores, parallel) * self.anew(scores, folded, depth)
        self.count(monoids()[twists()[carry.name].key].combine, carry.dtypes[0], points)
        self.count("sub", carry.dtypes[0], points)
        self.count("exp", carry.dtypes[0], 2 * points)  # the weight, and the rescaling of what was summed so far
        for v in sums:
            if not self.product((key, v), bound, parallel, folded, depth):
                depends = scores | self.depends[v]
                points = self.points(depends) * self.repeats(depends, parallel) * self.anew(depends, folded, depth)
                self.count("fma", carry.dtypes[0], 2 * points)

    def product(self, operands: Sequence[str], bound: int, parallel: int, folded: int, depth: int) -> bool:
        """Note a sum of products; False where it is none: an operand must be shared along an axis that the other varies along."""
        da, db = (self.depends[x] for x in operands)
        around = parallel | folded
        if not (da & ~db & around and db & ~da & around):
            return False
        depends = da | db | bound
        points = self.points(depends) * self.repeats(depends, parallel) * self.anew(depends, folded, depth)
        dtype = self.operand_type(operands)
        # Inside a fold tensor cores take products of 16-bit values only.
        unit = self.target.contraction_units.get(dtype, "fma") if not depth or dtype in HALVES else "fma"
        if unit in HALVES:
            self.absorbed |= {x for x in operands if x in self.lets}  # casts of what tensor cores take as it is
        # A product inside a fold is computed by the blocks that the kernel has, a tile at a time.
        outputs = self.points(parallel if depth else depends & parallel)
        rows = self.points((da ^ db) & parallel)
        steps = self.points(bound) if not depth else self.points(folded) if rows <= FEW_ROWS else 1
        self.products.append(_Product(points, outputs, steps, unit))
        self.flops[unit] += 2 * points
        return True

    def operand_type(self, names: Sequence[str]) -> str:
        """The type that both operands have before their casts to f32; the second one's if that is narrower (a twist rounds its weights)."""
        if self.dtypes[names[1]] in HALVES:
            return self.dtypes[names[1]]
        types = {self.source_type(n) for n in names}
        return types.pop() if len(types) == 1 else "f32"

    def source_type(self, name: str) -> str:
        let = self.lets.get(name)
        return self.dtypes[let.args[0] if let is not None and let.op == "cast" else name]

    def total(self) -> Cost:
        t = self.target
        stored = sum(self.sizes[b.name] for b in self.kernel.outputs)
        distinct = sum(min(sum(loads.values()), self.sizes[buffer]) for buffer, loads in self.read.items())
        bytes_ = distinct + stored
        # What a further pass reads again comes from L2 where the kernel's data fit there.
        bytes_ += self.again if bytes_ > t.l2_bytes // 2 else 0
        busy = {unit: max(self.slots[unit], 0.0) for unit in self.slots}
        issue = (busy.get("fma", 0) + busy.get("alu", 0)) / (t.flops["fma"] / 2) + busy.get("fma_f64", 0) / (t.flops["fma_f64"] / 2)
        special = busy.get("sfu", 0) / t.sfu_rate
        products = sum(_product_seconds(p, t) for p in self.products)
        roofs = {
            "DRAM": bytes_ / (t.dram_bandwidth * DRAM_EFFICIENCY),
            "L2": self.l2 / t.l2_bandwidth,
            "arithmetic": (issue / self.occupancy(max(busy.values(), default=0.0)) + products) * self.deep,
            "special functions": special * self.deep,
        }
        idle = max(1.0, t.sms * RESIDENT / self.lanes)
        roofs = {name: seconds * idle for name, seconds in roofs.items()}
        bound = max(roofs, key=lambda name: roofs[name])
        flops = {unit: n for unit, n in sorted(self.flops.items()) if n > 0}
        # DRAM and L2 carry one stream, so the slower of them is all of it.
        units = [max(roofs["DRAM"], roofs["L2"]), roofs["arithmetic"], roofs["special functions"]]
        seconds = max(units) + (sum(units) - max(units)) * UNHIDDEN
        return Cost(t.launch_seconds + seconds, bytes_, self.l2, flops, bound, t.launch_seconds + seconds)

    def occupancy(self, work: float) -> float:
        """Share of the machine that ``work`` independent operations keep busy."""
        return min(1.0, max(work, 1.0) / (self.target.sms * RESIDENT))


def _size(shape: Sequence[int]) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


def _product_seconds(p: _Product, t: Target) -> float:
    """Over the register tiles and splits of the fold there are, the fastest: large tiles reuse operands, small ones fill the machine."""
    matrix = p.unit in MATRIX_UNITS
    rate = t.mma_sync(p.unit) if matrix else t.flops[p.unit]
    best = float("inf")
    split = max(1, p.steps // SPLIT_STEPS)
    for results, efficiency in (MATRIX_EFFICIENCY if matrix else PRODUCT_EFFICIENCY).items():
        blocks = max(1, ceil(p.outputs / (results * BLOCK))) * split
        waves = ceil(blocks / t.sms)
        best = min(best, 2 * p.points / (rate * efficiency) * (waves * t.sms / blocks))
    return best
