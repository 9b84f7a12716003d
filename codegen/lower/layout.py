"""Layouts: where the elements of a value live.  An `AxisMap` places one axis; a `Fragment` is a value's registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from emmy_eq.codegen.kernel_ir import Atom
from emmy_eq.index import Idx, var

TID = var("tid")


@dataclass(frozen=True, slots=True)
class AxisMap:
    """One axis over blocks and steps (``base``, in elements), threads, registers and vector lanes.

    Register ``e`` of a thread holds coordinate base + warp*chunk + thread*vector + offset(e), where the elements of a warp
    (``chunk``) are adjacent; see `emmy_eq.codegen.schedule`.
    """

    axis: str
    extent: int
    base: Idx
    regs: int = 1
    threads: int = 1
    stride: int = 1  # of the axis's digit in the thread number
    vector: int = 1
    warps: int = 1
    warp_stride: int = 1  # of the warps' digit in the thread number

    @property
    def count(self) -> int:
        """Registers a thread holds along the axis."""
        return self.regs * self.vector

    @property
    def tile(self) -> int:
        """Elements along the axis that the block holds at a time."""
        return self.warps * self.chunk

    @property
    def chunk(self) -> int:
        """Elements along the axis that one of ``warps`` holds."""
        return self.regs * self.threads * self.vector

    @property
    def bits(self) -> int:
        """The bits of the thread number that tell elements of the axis apart."""
        return (self.threads - 1) * self.stride | (self.warps - 1) * self.warp_stride

    def thread(self) -> Idx:
        """This thread's digit."""
        return TID // self.stride % self.threads

    def warp(self) -> Idx:
        """Where the elements of this thread's warp begin."""
        return self.base + TID // self.warp_stride % self.warps * self.chunk if self.warps > 1 else self.base

    def first(self) -> Idx:
        """The coordinate of register 0."""
        return self.warp() + self.thread() * self.vector

    def offset(self, e: int) -> int:
        return e // self.vector * self.threads * self.vector + e % self.vector

    def coordinate(self, e: int) -> Idx:
        return self.first() + self.offset(e)


# What a lane holds of one step of mma.sync, along each of its axes: registers, lanes, their stride, vector.  Rows 16 x 8 of the
# result: row lane//4 + 8*register, column 2*(lane%4) + {0, 1}.  The left operand has the result's rows, and k as the result has
# columns (twice 8): so a result can be the left operand of another product.
_LANES = {"m16": (2, 8, 4, 1), "n8": (1, 4, 1, 2), "k16": (2, 4, 1, 2), "k8": (2, 4, 1, 1), "k8x3": (2, 4, 1, 1)}


def atom_map(atom: str, axis: str, extent: int, base: Idx, steps: int, warps: int, warp_stride: int) -> AxisMap:
    """``steps`` of mma.sync a warp along ``axis``."""
    regs, threads, stride, vector = _LANES[atom]
    return AxisMap(axis, extent, base, steps * regs, threads, stride, vector, warps, warp_stride)


def operand_map(n: AxisMap) -> AxisMap:
    """The right operand's columns, of an axis whose map is that of the result's columns: a lane has one of 8, not two."""
    return replace(n, threads=8, stride=4, vector=1)


Scope = Mapping[str, AxisMap]


def bits(scope: Scope, axes: tuple[str, ...]) -> int:
    """The bits of the thread number that ``axes`` use."""
    out = 0
    for a in axes:
        out |= scope[a].bits
    return out


def coordinates(counts: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Every register coordinate, the last axis fastest."""
    for point in product(*(range(n) for n in counts.values())):
        yield dict(zip(counts, point, strict=True))


@dataclass(frozen=True, slots=True)
class Fragment:
    """A value's registers: one atom per register coordinate of ``axes`` (sorted), the last fastest."""

    axes: tuple[str, ...]
    counts: tuple[int, ...]
    atoms: tuple[Atom, ...]
    dtype: str

    def at(self, point: Mapping[str, int]) -> Atom:
        """The atom at a register coordinate; axes that the value does not vary with are ignored."""
        n = 0
        for axis, count in zip(self.axes, self.counts, strict=True):
            n = n * count + point[axis]
        return self.atoms[n]

    def shape(self) -> dict[str, int]:
        return dict(zip(self.axes, self.counts, strict=True))

    def slice(self, point: Mapping[str, int]) -> Fragment:
        """The part at ``point``, without point's axes."""
        rest = {a: n for a, n in self.shape().items() if a not in point}
        atoms = tuple(self.at({**point, **p}) for p in coordinates(rest))
        return Fragment(tuple(rest), tuple(rest.values()), atoms, self.dtype)


def scalar(atom: Atom, dtype: str) -> Fragment:
    """A value that does not vary."""
    return Fragment((), (), (atom,), dtype)


def join(*shapes: Mapping[str, int]) -> dict[str, int]:
    """The axes of all ``shapes``, sorted."""
    out = {a: n for shape in shapes for a, n in shape.items()}
    return {a: out[a] for a in sorted(out)}
