"""How long sums of products take on each unit: the tiles that schedule families make of them, and what a step of each takes.

A new way to multiply is one row of `units`.  What was measured of it is in `emmy_eq.extract.fitted`: it describes code generation, not
a shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import ceil

from emmy_eq.extract.targets import Target
from emmy_eq.ops import HALVES

FULL_WARPS = 8  # of an SM that keep it busy with attention
ADDRESSES = 60  # registers of a thread beside its results
MOST_REGISTERS = 255
SPILLS = 160  # results of a thread from which registers do not suffice
WARP = 32
PARTIAL = 4  # bytes of a part of a sum
FEW = 8  # rows of an operand up to which threads read the other straight from memory, once
FEW_HALVES = 4  # so of 16-bit values: with more, tensor cores are faster (H200, 8 x 4096 x 4096: 15.6 us, on them 8.6)
PARTS = (1, 2, 3, 4, 6, 8, 16)  # that a fold is split into
LEAST_STEPS = 8  # of a part of a split fold


@dataclass(frozen=True, slots=True)
class Tile:
    """A block's results, m x n, and elements of the fold a step."""

    m: int
    n: int
    step: int
    threads: int


@dataclass(frozen=True, slots=True)
class Unit:
    """``kind``: before the unit's constants in `emmy_eq.extract.fitted`: of each tile the share of the unit's peak that it reaches where
    blocks fill an SM; ``warps`` (of an SM that keep it busy), ``latency`` (seconds of a step of a block alone, at least, or ``computed``
    where an operand is computed from what memory holds), ``result`` (of storing a thread's result), ``join`` (of adding up the parts of a
    fold that is split over blocks) and ``part`` (its traffic in L2, times that of writing and reading each part once).
    ``parts``: over how many; ``blocks``: of an SM, at most: what shared memory has room for."""

    name: str
    kind: str
    tiles: tuple[Tile, ...]
    parts: tuple[int, ...]
    blocks: int

    def constant(self, target: Target, name: str) -> float:
        return target.fitted[f"{self.kind}.{name}"]

    def share(self, target: Target, tile: Tile, sums: int = 1) -> float:
        """Products that share an operand reuse it as one with so many more columns does."""
        wide = f"{self.kind}.{tile.m}x{tile.n * sums}.{tile.threads}"
        return target.fitted[wide] if wide in target.fitted else self.constant(target, f"{tile.m}x{tile.n}.{tile.threads}")

    def peak(self, target: Target, dtype: str) -> float:
        """Flops a second of products of operands of ``dtype``, as published."""
        if self.name in ("fma", "fma_f64", "wgmma"):
            return target.flops[dtype if self.name == "wgmma" else self.name]
        if self.name == "wgmma_f32":
            return target.flops["tf32x3"]
        return target.mma_sync(self.name)

    def rate(self, target: Target, dtype: str) -> float:
        """As measured on this device, where a large product of ``dtype`` was; the peaks of all its units are off by the same factor."""
        reached = target.sustained.get(dtype)
        if reached is None:
            return self.peak(target, dtype)
        expected = max(u.peak(target, dtype) * max(u.share(target, t) for t in u.tiles) for u in units_of(target, dtype, True))
        return self.peak(target, dtype) * reached / expected


FMA = (
    Tile(128, 128, 16, 256), Tile(128, 64, 16, 256), Tile(64, 128, 16, 256), Tile(64, 64, 16, 256), Tile(32, 64, 16, 128),
    Tile(32, 32, 32, 64), Tile(16, 64, 32, 128), Tile(16, 16, 32, 64),
)  # fmt: skip
MMA = (
    Tile(128, 256, 32, 256), Tile(256, 128, 32, 256), Tile(128, 128, 32, 128), Tile(128, 128, 32, 256), Tile(128, 64, 32, 128),
    Tile(64, 128, 32, 128), Tile(64, 64, 64, 128), Tile(32, 64, 64, 128), Tile(16, 128, 64, 128), Tile(16, 64, 64, 128),
    Tile(16, 32, 64, 128),
)  # fmt: skip
MMA_F32 = (
    Tile(128, 128, 32, 256), Tile(128, 128, 32, 128), Tile(128, 64, 32, 128), Tile(32, 128, 32, 128), Tile(32, 64, 32, 128),
    Tile(16, 32, 32, 128),
)  # fmt: skip
WGMMA = (
    Tile(128, 256, 64, 256), Tile(256, 128, 64, 512), Tile(128, 128, 64, 256), Tile(64, 256, 64, 128), Tile(64, 128, 64, 128),
    Tile(128, 64, 64, 256), Tile(64, 64, 64, 128),
)  # fmt: skip
WGMMA_F32 = (
    Tile(128, 128, 32, 256), Tile(128, 64, 32, 256), Tile(64, 128, 32, 256), Tile(64, 64, 32, 128),
    Tile(32, 128, 32, 256), Tile(16, 128, 32, 256),
)  # fmt: skip


@cache
def units() -> dict[str, Unit]:
    """By the names that `Target.contraction_units` has; and ``wgmma`` and ``wgmma_f32``, which take tensors as they lie in memory."""
    fma = [Unit(n, "fma", FMA, (1, 2, 4, 8, 16), 8) for n in ("fma", "fma_f64")]
    mma = [Unit(n, "mma", MMA, PARTS, 2) for n in ("f16", "bf16")]
    tf32 = [Unit(n, "tf32", MMA_F32, PARTS, 2) for n in ("tf32", "tf32x3")]
    wgmma = Unit("wgmma", "wgmma", WGMMA, PARTS[:-1], 2)
    wgmma_f32 = Unit("wgmma_f32", "wgmma_f32", WGMMA_F32, PARTS[:-1], 1)
    return {u.name: u for u in (*fma, *mma, *tf32, wgmma, wgmma_f32)}


def units_of(target: Target, dtype: str, loaded: bool) -> tuple[Unit, ...]:
    """Those on which code generation computes products of operands of ``dtype``, whichever is the fastest for a kernel; ``loaded``:
    tensors as they lie in memory."""
    name = target.contraction_units.get(dtype, "fma")
    by_warpgroups = {("f16", "f16"): "wgmma", ("bf16", "bf16"): "wgmma", ("f32", "fma"): "wgmma_f32"}
    found = [by_warpgroups[dtype, name]] if loaded and target.wgmma and (dtype, name) in by_warpgroups else []
    in_parts = dtype == "f32" and target.in_parts
    return tuple(units()[n] for n in (*found, name, *(["tf32x3"] if in_parts else [])))


def resident(target: Target, unit: Unit, tile: Tile, sums: int) -> int:
    """Blocks that an SM holds at a time; ``sums``: results of a place of the tile."""
    registers = min(MOST_REGISTERS, ADDRESSES + tile.m * tile.n * sums // tile.threads)
    found = min(target.registers_per_sm // (registers * tile.threads), target.max_threads_per_sm // tile.threads, unit.blocks)
    return max(1, found)


@dataclass(frozen=True, slots=True)
class Steps:
    """What a block does a step.  ``rate``: flops of the unit a second; ``sums``: results of a place of the tile; ``latency``: seconds of a
    step of a block alone, at least; ``beside``: seconds of other work that a step brings to an SM."""

    rate: float
    sums: int
    latency: float
    beside: float = 0.0

    def seconds(self, target: Target, unit: Unit, tile: Tile, blocks: int, depth: int, parts: int = 1) -> float:
        """Of ``blocks`` tiles, whose folds of ``depth`` elements are split over ``parts`` blocks each."""
        steps = ceil(ceil(depth / tile.step) / parts)
        held = min(ceil(blocks * parts / target.sms), resident(target, unit, tile, self.sums))
        waves = blocks * parts / (target.sms * held)
        results = tile.m * tile.n * self.sums
        full = min(1.0, held * tile.threads / WARP / unit.constant(target, "warps"))
        busy = 2 * results * tile.step * target.sms / (self.rate * unit.share(target, tile, self.sums) * full)
        spilled = 4.0 if results > SPILLS * tile.threads else 1.0
        step = max(self.latency, held * (busy * spilled + self.beside))
        block = steps * step + results / tile.threads * unit.constant(target, "result")
        # The last block to come to a tile reads what the others of its parts wrote.
        moved = 2 * PARTIAL * results * blocks * parts / target.l2_sustained
        join = unit.constant(target, "join") + unit.constant(target, "part") * moved if parts > 1 else 0.0
        return (ceil(waves) if waves < 4 else waves) * block + join


def few(dtype: str) -> int:
    """Rows of an operand up to which the other is read straight from memory."""
    return FEW_HALVES if dtype in HALVES else FEW


def splits(unit: Unit, tile: Tile, depth: int) -> Iterator[int]:
    """Parts that a fold of ``depth`` elements is split into."""
    yield from (parts for parts in unit.parts if parts == 1 or depth >= LEAST_STEPS * parts * tile.step)


@dataclass(frozen=True, slots=True)
class Shape:
    """A block's tile of attention: threads and vector along rows, columns and keys; registers of rows and of keys; elements of the inner
    folds a step (0: all).  ``share``: of the fma peak, where such blocks fill an SM."""

    threads: int
    vector: int
    rows: int
    keys: int
    inner: int
    share: float

    def height(self, extent: int) -> int:
        """Rows of a block."""
        return self.rows * min(self.threads * self.vector, ceil_power(extent))

    def width(self) -> int:
        """Keys of a step."""
        return self.keys * self.threads * self.vector


SHAPES = (
    Shape(16, 4, 2, 2, 16, 0.57), Shape(16, 4, 2, 1, 0, 0.5), Shape(16, 4, 1, 1, 0, 0.47), Shape(16, 4, 2, 1, 32, 0.52),
    Shape(16, 4, 1, 1, 32, 0.4), Shape(16, 2, 1, 1, 0, 0.3), Shape(16, 2, 1, 1, 16, 0.25), Shape(8, 2, 1, 1, 16, 0.2),
)  # fmt: skip
MATRIX_ROWS = 128  # of attention's tiles on tensor cores
MOST_INNER = 256  # elements of an inner fold that are unrolled


@dataclass(frozen=True, slots=True)
class Walk:
    """Attention, or any product whose operand an inner fold makes: ``height`` rows and ``width`` columns of the result, ``others`` times;
    ``keys`` of the outer fold, ``inner`` extents of the folds in it, ``inside`` of those of their products together."""

    height: int
    width: int
    others: int
    keys: int
    inner: tuple[int, ...]
    inside: int

    def shapes(self, target: Target) -> list[Shape]:
        """Those that code generation makes, the fastest first; last those that registers have no room for."""
        fitting = [
            s for s in SHAPES if (s.rows == 1 or self.height >= s.height(self.height)) and (s.inner or max(self.inner) <= MOST_INNER)
        ]
        return sorted(fitting, key=lambda s: (self.results(s) > MOST_REGISTERS, self.seconds(target, s)))

    def matrix_seconds(self, target: Target, unit: Unit, dtype: str) -> float:
        """Of both products on tensor cores."""
        keys, resident, of = (128, 1, "wgmma") if unit.name == "wgmma" else (64, 2, "matrix")
        blocks = self.others * ceil(self.height / MATRIX_ROWS)
        held = min(ceil(blocks / target.sms), resident)
        flops = 2 * MATRIX_ROWS * keys * (self.inside + self.width)
        rate = unit.rate(target, dtype) * target.fitted[f"attention.{of}_share"]
        step = max(target.fitted[f"attention.{of}_latency"], held * flops * target.sms / rate)
        return ceil(blocks / (target.sms * held)) * ceil(self.keys / keys) * step

    def threads(self, s: Shape) -> int:
        return max(WARP, s.height(self.height) // s.rows // min(s.vector, s.height(self.height)) * s.threads)

    def results(self, s: Shape) -> float:
        """Of a thread."""
        return s.height(self.height) * self.width / self.threads(s)

    def seconds(self, target: Target, s: Shape) -> float:
        tall, threads = s.height(self.height), self.threads(s)
        blocks = self.others * ceil(self.height / tall)
        held = min(ceil(blocks / target.sms), max(1, FULL_WARPS * WARP // threads))
        inside = sum(ceil(n / s.inner) if s.inner else 1 for n in self.inner)
        flops = 2 * tall * s.width() * (self.inside + self.width)
        share = s.share * target.fitted["attention.share"] * min(1.0, held * threads / WARP / FULL_WARPS)
        busy = flops * target.sms / (target.flops["fma"] * share)
        spilled = 4.0 if self.results(s) > SPILLS else 1.0
        step = max((inside + 1) * target.fitted["attention.latency"], held * busy) * spilled
        return ceil(blocks / (target.sms * held)) * ceil(self.keys / s.width()) * step


def ceil_power(n: int) -> int:
    """The smallest power of two from ``n`` on."""
    return 1 << max(n - 1, 0).bit_length()
