"""What a kernel costs on a target: a roofline over its Loop IR, under the schedule that code generation makes for its kind.

Time is the launch, plus the largest of DRAM traffic, L2 traffic and arithmetic, and a little of the rest; or the steps of the blocks
of a product, one after the other, where there are too few blocks to hide what a step waits for.  Times are of runs back to back: data
that fit the L2 cache are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2, prod

from emmy_eq.extract.products import FEW, MATRIX_ROWS, WARP, Steps, Tile, Unit, Walk, ceil_power, few, splits, units_of
from emmy_eq.extract.targets import Target
from emmy_eq.extract.work import Pass, Product, Read, Work
from emmy_eq.loop_ir import Kernel

SHARED = 256  # iterations of a block that use one value
THREADS = 256  # of a block
HELD_BYTES = 128 << 10  # of a row that a block of a reduction keeps between passes over it
ROW_THREADS = 128  # of a block whose rows take fewer
LANE = 8  # elements of a row that a thread takes
WARP_ROW = 2048  # elements of a row that a warp holds
VECTOR = 16  # bytes that a thread reads at a time
FILLING = 512  # threads of an SM up to which rows get more
SPLIT_FROM = 1 << 15  # elements of a row that is split over blocks
LEAST_ALONG, LEAST_DOWN = 1 << 12, 1 << 7  # elements of its parts; of those of a fold down columns
BLOCKS = 4  # of an SM, of split folds
RESIDENT = 1024  # threads an SM needs to be busy
IN_L2 = 0.8  # of the L2 cache that data may fill and still be found there
SECTOR = 32  # bytes that one element costs where neighbouring threads read it far apart


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


def cost(kernel: Kernel, target: Target) -> Cost:
    """Modelled cost of ``kernel`` on ``target``."""
    return cost_of(Work(kernel), target)


def cost_of(w: Work, target: Target) -> Cost:
    """Of a kernel that does ``w``."""
    if any(p.around for p in w.passes):
        outer = max((p for p in w.passes if not p.around and p.products), key=lambda p: w.points(p.bound), default=None)
        return _Nested(w, target, outer).cost() if outer is not None else _Untiled(w, target).cost()
    tiled = _tiled(w, target)
    return tiled.cost() if tiled is not None else _Rows(w, target).cost()


def cost_of_tile(w: Work, target: Target, unit: Unit, tile: Tile, split: int) -> Cost | None:
    """Of a kernel whose product runs on ``unit`` in tiles of ``tile``, its fold split over so many blocks; None where it has no product."""
    tiled = _tiled(w, target) if not any(p.around for p in w.passes) else None
    return tiled.tiled(unit, tile, split) if tiled is not None else None


def unit_of(w: Work, target: Target) -> str:
    """Of `emmy_eq.extract.products.units`, that on which the product of a kernel is fastest; none of a kernel without."""
    tiled = _tiled(w, target) if not any(p.around for p in w.passes) else None
    return tiled.fastest()[0].name if tiled is not None else ""


def _tiled(w: Work, target: Target) -> _Tiled | None:
    products = [(p, x) for p in w.passes for x in p.products if not x.twisted and min(w.sides(x)) > few(x.dtype)]
    if not products or w.scans:
        return None
    return _Tiled(w, target, *max(products, key=lambda found: w.points(found[1].axes)))


class _Kernel:
    """What kinds of kernels have in common; each says how its blocks tile the parallel axes."""

    def __init__(self, work: Work, target: Target) -> None:
        self.w, self.t = work, target
        self.tiles: dict[int, int] = {}  # points of a parallel axis that a block covers, where more than one
        self._times: dict[int, int] = {}

    def tiled_by(self, tiles: dict[int, int]) -> None:
        self.tiles = tiles
        self._times = {}

    @property
    def blocks(self) -> int:
        return self.times(0)

    def times(self, axes: int) -> int:
        """How many blocks compute a value that varies along ``axes``."""
        axes &= self.w.parallel
        if axes not in self._times:
            free = self.w.split(self.w.parallel & ~axes)
            self._times[axes] = prod(ceil(self.w.points(a) / self.tiles.get(a, 1)) for a in free)
        return self._times[axes]

    def traffic(self, read: Read) -> float:
        """Bytes of ``read`` from L2 to the SMs."""
        return read.bytes * self.times(read.axes)

    def factor(self, at: Pass) -> float:
        """How often an operation of ``at`` is done again for one result."""
        return 1.0

    def kept(self, read: Read) -> bool:
        """Whether a block still has what an earlier fold read."""
        return False

    def memory(self) -> tuple[int, float]:
        """Bytes from and to DRAM, and between L2 and the SMs."""
        reads = [r for p in (self.w.outside, *self.w.passes) for r in p.reads if not (r.again and self.kept(r))]
        touched = self.w.distinct + self.w.stored
        again = sum(r.bytes for r in reads if r.again) if touched > self.t.l2_bytes * IN_L2 else 0
        return touched + again, sum(map(self.traffic, reads)) + self.w.stored

    def ordinary(self) -> tuple[float, float]:
        """Seconds of arithmetic outside of products, and of special functions, on a full machine."""
        t, w = self.t, self.w
        slots: dict[str, float] = {}
        for p in (w.outside, *w.passes):
            factor = self.factor(p)
            for (unit, axes), n in p.ops.items():
                slots[unit] = slots.get(unit, 0.0) + n * w.points(axes) * self.times(axes) * factor
        fma = t.sustained.get("fma", t.flops["fma"]) / 2
        issue = (slots.get("fma", 0.0) + slots.get("alu", 0.0)) / fma + slots.get("fma_f64", 0.0) / (t.flops["fma_f64"] / 2)
        return issue, slots.get("sfu", 0.0) / t.sfu_rate

    def settled(self, arithmetic: float, special: float, waiting: float, idle: float = 1.0) -> Cost:
        """``waiting``: seconds that nothing hides; ``idle``: how many times a full machine would be faster."""
        t = self.t
        bytes_, l2 = self.memory()
        roofs = {
            "DRAM": bytes_ / t.dram_sustained if bytes_ > t.l2_bytes * IN_L2 else 0.0,
            "L2": l2 / t.l2_sustained,
            "arithmetic": arithmetic,
            "special functions": special,
        }
        # DRAM and L2 carry one stream, so the slower of them is all of it.
        units = [max(roofs["DRAM"], roofs["L2"]), arithmetic, special]
        seconds = t.launch_seconds + waiting + (max(units) + (sum(units) - max(units)) * t.fitted["unhidden"]) * idle
        return Cost(seconds, bytes_, round(l2), self.flops(), max(roofs, key=lambda name: roofs[name]), seconds)

    def flops(self) -> dict[str, int]:
        """By unit, as often as blocks compute them."""
        found = dict(self.w.flops)
        for p in self.w.passes:
            for x in p.products:
                name = self.unit(x)
                found[name] = found.get(name, 0) + 2 * self.w.points(x.axes) * self.times(x.axes)
        return {unit: n for unit, n in sorted(found.items()) if n > 0}

    def unit(self, p: Product) -> str:
        return "fma"


class _Rows(_Kernel):
    """Maps, reductions, scans, and products with few rows: threads lie along a row, or along columns."""

    def __init__(self, work: Work, target: Target) -> None:
        super().__init__(work, target)
        w = work
        main = max(w.passes, key=lambda p: max((w.points(r.axes) for r in p.reads), default=0), default=w.outside)
        largest = max(main.reads, key=lambda r: w.points(r.axes), default=None)
        outer = w.split(w.parallel)
        self.main, self.threads = main.bound, THREADS
        self.lanes = main.bound or (outer[-1] if outer else 0)
        tiles: dict[int, int] = {}
        if main.bound and largest is not None and largest.last & w.parallel:
            self.lanes = largest.last & w.parallel
            tiles[self.lanes] = min(ROW_THREADS, w.points(self.lanes))
        elif main.bound:
            self.threads = self.along(w.points(main.bound), largest.size if largest is not None else SECTOR)
            left = max(1, ROW_THREADS // self.threads)
            for a in reversed(outer):
                tiles[a] = min(left, w.points(a))
                left //= tiles[a]
        elif outer:
            tiles = {a: min(n, w.points(a)) for a, n in zip(reversed(outer), (THREADS * LANE // 2, LANE // 2), strict=False)}
        for x in (x for p in w.passes for x in p.products):  # of few rows, which stay in registers
            for side in (x.left & ~x.right & w.parallel, x.right & ~x.left & w.parallel):
                if w.points(side) <= FEW:
                    tiles |= {a: w.points(a) for a in w.split(side)}
        self.tiled_by(tiles)

    def along(self, extent: int, size: int) -> int:
        """Threads of a row of ``extent`` elements of ``size`` bytes: a warp, or more where rows are long or few."""
        most = min(THREADS, ceil_power(ceil(extent * size / VECTOR)))
        threads = WARP if extent <= WARP_ROW else THREADS if len(self.w.passes) == 1 else ceil_power(ceil(extent / WARP))
        while threads < most and self.w.points(self.w.parallel) * threads < self.t.sms * FILLING:
            threads *= 2
        return min(threads, most)

    @property
    def parts(self) -> int:
        """Blocks that a fold is split over: the only one, in a kernel of few blocks; a scan is not split."""
        down = self.lanes != self.main
        extent = self.w.points(self.main)
        if len(self.w.passes) != 1 or self.w.scans or not self.main or (extent < SPLIT_FROM and not down):
            return 1
        return max(1, min(self.t.sms * BLOCKS // self.blocks, extent // (LEAST_DOWN if down else LEAST_ALONG)))

    def factor(self, at: Pass) -> float:
        """A fold beside the one that threads lie along is done by each of them."""
        beside = at.bound & ~self.w.inner and not at.bound & (self.main | self.w.inner)
        return self.threads if beside else 1.0

    def traffic(self, read: Read) -> float:
        # A map turns tiles around in shared memory.
        apart = self.main and read.axes & self.lanes and not read.last & self.lanes
        return super().traffic(read) * (SECTOR / read.size if apart else 1.0)

    def kept(self, read: Read) -> bool:
        return self.w.points(read.axes & ~self.w.parallel) * read.size <= HELD_BYTES

    def cost(self) -> Cost:
        w, t = self.w, self.t
        issue, special = self.ordinary()
        issue += sum(2 * w.points(x.axes) for p in w.passes for x in p.products) / t.flops["fma"]
        # Threads of a row put together what each has of a fold, two by two: all of them in every step.  The next pass waits for the last.
        steps = log2(self.threads) if self.main and self.lanes == self.main else 0.0
        special += sum(p.joins for p in w.passes) * w.points(w.parallel) * self.threads * steps / t.sfu_rate
        waiting = t.fitted["pass"] + (sum(p.joined for p in w.passes) * steps + max(0, len(w.passes) - 1)) * t.fitted["join"]
        waiting += t.fitted["fma.join"] if self.parts > 1 else 0.0
        threads = self.blocks * self.parts * max(self.threads, ROW_THREADS)
        return self.settled(issue, special, waiting, max(1.0, t.sms * ROW_THREADS / threads))


class _Tiled(_Kernel):
    """A product in tiles: a block computes m x n results, with a part of the operands in shared memory a step."""

    def __init__(self, work: Work, target: Target, at: Pass, main: Product) -> None:
        super().__init__(work, target)
        left, right = main.left & ~main.right & work.parallel, main.right & ~main.left & work.parallel
        rows, columns = (right, left) if left & work.columns else (left, right)
        self.at, self.main = at, main
        self.m, self.n = (max(work.split(side), key=work.points) for side in (rows, columns))
        beside = at.carries > len(at.products)  # whose operand warpgroups have in registers: the other one has to lie along the fold
        self.loaded = all(x.loaded and not (beside and x.across) for x in at.products)
        self.units = units_of(target, main.dtype, self.loaded and len(work.passes) == 1)

    def unit(self, p: Product) -> str:
        return "tf32x3" if self.units[0].name == "wgmma_f32" else self.t.contraction_units.get(p.dtype, "fma")

    def traffic(self, read: Read) -> float:
        """A copy's bandwidth is half of what goes to the SMs: tiles only come."""
        return super().traffic(read) / 2

    def cost(self) -> Cost:
        return self.fastest()[1]

    def fastest(self) -> tuple[Unit, Cost]:
        return min(((u, self.tiled(u, tile)) for u in self.units for tile in u.tiles), key=lambda found: found[1].seconds)

    def tiled(self, unit: Unit, tile: Tile, split: int | None = None) -> Cost:
        """``split``: over so many blocks, None: the best."""
        w, t = self.w, self.t
        self.tiled_by({self.m: tile.m, self.n: tile.n})
        depth = w.points(self.at.bound)
        issue, special = self.ordinary()
        work = Steps(
            rate=unit.rate(t, self.main.dtype),
            sums=len(self.at.products),
            latency=unit.constant(t, "latency" if self.loaded else "computed"),
            beside=max(issue, special) * t.sms / (self.blocks * ceil(depth / tile.step)),
        )
        others = [p for p in w.passes if p is not self.at]
        parts = (split,) if split is not None else splits(unit, tile, depth) if not others else (1,)
        product = min(work.seconds(t, unit, tile, self.blocks, depth, n) for n in parts)
        # A fold before the product goes through the same steps with nothing to hide its loads.
        before = sum(ceil(w.points(p.bound) / tile.step) for p in others) * t.fitted["before"]
        before *= max(1.0, tile.m * tile.step / tile.threads / LANE) * ceil(self.blocks / (2 * t.sms))
        return self.settled(product, special, t.fitted["pass"] + before)


class _Nested(_Kernel):
    """A product whose operand is made by a fold of its own, as in attention: a block keeps rows, and walks the outer fold in tiles."""

    def __init__(self, work: Work, target: Target, outer: Pass) -> None:
        super().__init__(work, target)
        w, main = work, outer.products[0]
        self.outer, self.inside = outer, [p for p in w.passes if p.around]
        made = sum({x.axes for p in self.inside for x in p.products}) & w.parallel
        left, right = main.left & ~main.right & w.parallel, main.right & ~main.left & w.parallel
        rows, columns = (left, right) if left & made or not right & made else (right, left)
        self.rows, self.columns = (max(w.split(side), key=w.points) for side in (rows, columns))

    def cost(self) -> Cost:
        w, t = self.w, self.t
        walk = Walk(
            height=w.points(self.rows),
            width=w.points(self.columns),
            others=w.points(w.parallel & ~self.rows & ~self.columns),
            keys=w.points(self.outer.bound),
            inner=tuple(w.points(p.bound) for p in self.inside),
            inside=sum(w.points(p.bound) * len(p.products) for p in self.inside),
        )
        if walk.height <= FEW:
            return self.flat(walk)
        if self.matrix:
            self.tiled_by({self.rows: MATRIX_ROWS, self.columns: walk.width})
            products = walk.matrix_seconds(t, self.matrix, self.outer.products[0].dtype)
        else:
            shape = walk.shapes(t)[0]
            self.tiled_by({self.rows: shape.height(walk.height), self.columns: walk.width})
            products = walk.seconds(t, shape)
        issue, special = self.ordinary()
        kept = 1 - self.outer.products[0].skipped
        # Warpgroups multiply while they compute weights.
        arithmetic = max(products, issue) if self.matrix and self.matrix.name == "wgmma" else products + issue
        return self.settled(arithmetic * kept, special * kept, t.fitted["pass"])

    def traffic(self, read: Read) -> float:
        """Of steps that a mask empties nothing is read."""
        return super().traffic(read) * (1 - self.outer.products[0].skipped if read.axes & self.outer.bound else 1.0)

    def flat(self, walk: Walk) -> Cost:
        """Of few rows: keys are read as a matrix-vector product reads, by as many blocks as fill the machine (flash-decoding)."""
        self.tiled_by({self.rows: walk.height, self.columns: walk.width})
        issue, special = self.ordinary()
        issue += sum(2 * self.w.points(x.axes) for p in self.w.passes for x in p.products) / self.t.flops["fma"]
        threads = self.blocks * max(THREADS, walk.keys)
        return self.settled(issue, special, 2 * self.t.fitted["pass"], max(1.0, self.t.sms * RESIDENT / threads))

    @property
    def matrix(self) -> Unit | None:
        """The tensor cores that take both products, of 16-bit values, if those are all."""
        products = [x for p in self.w.passes for x in p.products]
        types = {x.dtype for x in products}
        if not (types < {"f16", "bf16"} and len(types) == 1 and self.outer.products[0].twisted):
            return None
        return units_of(self.t, products[0].dtype, all(x.loaded for x in products))[0]

    def unit(self, p: Product) -> str:
        return self.matrix.name if self.matrix else "fma"


class _Untiled(_Kernel):
    """A fold in a fold that is no product has no schedule but a thread a point of the loops around both."""

    def cost(self) -> Cost:
        w, t = self.w, self.t
        issue, special = self.ordinary()
        issue += sum(2 * w.points(x.axes) * self.times(x.axes) for p in w.passes for x in p.products) / t.flops["fma"]
        return self.settled(issue, special, t.fitted["pass"] * len(w.passes), max(1.0, t.sms * RESIDENT / w.points(w.parallel)))
