"""Operands by the copy engine (TMA): a producer warp asks for boxes of them, mbarriers say when a buffer is full and when it is free.

A box's rows are 128 bytes along the axis that is contiguous in memory, their chunks of 16 bytes swizzled as wgmma reads them.
What lies beyond an axis's extent arrives as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import access
from emmy_eq.codegen.lower.layout import TID, Fragment, Scope, coordinates
from emmy_eq.codegen.schedule import WARP, WARPGROUP
from emmy_eq.codegen.tile_ir import Fold
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx, var
from emmy_eq.loop_ir import Buffer, Let, Load
from emmy_eq.ops import itemsize

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine, Placed

ITEM = 2  # bytes of an element
PANEL = 64  # elements of a row of a box
CHUNK = 8  # of them are swizzled as one
ALIGN = 1024  # bytes: 8 rows, over which the swizzle repeats
UNIT = 16  # bytes that base and strides of a tensor are multiples of (CUDA driver API, cuTensorMapEncodeTiled)
RANK = 5
BOX = 256  # most elements of a box along an axis
CONSUMERS = 1  # the named barrier of the warps that compute
REGISTERS = 8  # that setmaxnreg counts by
FEW, MANY = 24, 240  # of a thread that asks for boxes, and at most of one that computes (the rest of 255 is of no use)


def strides(index: tuple[Idx, ...], shape: tuple[int, ...], extents: Mapping[str, int], size: int) -> dict[str, int] | None:
    """Elements between neighbours along each axis of ``index``, the contiguous axis first; None where no tensor map describes them.

    ``shape`` and ``size`` (bytes of an element) are of the buffer, ``extents`` of the axes.
    """
    offset = ix.simplify(access.flat(index, shape), extents)
    found = {f.name: c for f, c in ix.terms(offset) if f.op == "var" and f.name in extents}
    first, *others = sorted(found, key=lambda a: found[a]) or [""]
    plain = len(found) == len(ix.terms(offset)) and len(found) <= RANK
    if not plain or found.get(first) != 1 or any(found[a] * size % UNIT for a in others):
        return None
    return {a: found[a] for a in (first, *others)}


def operand(s: Let | Load | Fold, buffers: Mapping[str, Buffer], extents: Mapping[str, int]) -> dict[str, int] | None:
    """`strides` of a 16-bit value that is loaded as it is; None where the copy engine cannot read it."""
    if not isinstance(s, Load) or s.indices or itemsize(buffers[s.buffer].dtype) != ITEM:
        return None
    return strides(s.index, buffers[s.buffer].shape, extents, ITEM)


@dataclass(slots=True)
class Producer:
    """What a warp beside those that compute does: mbarriers it needs, and the boxes that it asks for."""

    maps: list[k.TensorMap] = field(default_factory=list)
    boxes: list[k.Shared] = field(default_factory=list)  # that hold operands
    start: list[k.Stmt] = field(default_factory=list)
    body: list[k.Stmt] = field(default_factory=list)

    def map(self, name: str, buffer: str, dtype: str, scope: Scope, axes: tuple[str, ...], shape: Mapping[str, int], rows: int) -> None:
        """A tensor map whose boxes are ``rows`` rows along the second of ``axes``; ``shape``: the stride of each."""
        extents, found = tuple(scope[a].extent for a in axes), tuple(shape[a] for a in axes)
        self.maps.append(k.TensorMap(name, buffer, dtype, extents, found, (PANEL, rows, *(1 for _ in axes[2:])), ITEM * PANEL))

    def beside(self, body: tuple[k.Stmt, ...], threads: int, registers: int, resident: int) -> tuple[tuple[k.Stmt, ...], int]:
        """``body`` in ``threads`` threads, the producer's in those after them, and how many threads that is together.

        A block that has an SM's ``registers`` for itself gives its warpgroups more than the producer's; else that is one warp.
        """
        groups = threads // WARPGROUP + 1
        equal = registers // (groups * WARPGROUP) // REGISTERS * REGISTERS
        more = min(MANY, (equal * groups - FEW) // (groups - 1) // REGISTERS * REGISTERS)
        consumes, asks = _apart(body, threads), self._asks(threads // WARP)
        count = 1
        if resident == 1 and more > equal:
            consumes = (k.SetMaxRegs(more, increase=True), *consumes)
            asks = (k.SetMaxRegs(FEW, increase=False), *asks)
            count = WARPGROUP // WARP
        role = k.Role(((0, threads // WARP), (threads // WARP, count)), (consumes, asks))
        return (k.If((k.Cmp(TID, "==", ix.const(0)),), tuple(self.start)), k.Barrier(), role), threads + count * WARP

    def _asks(self, warp: int) -> tuple[k.Stmt, ...]:
        return (k.If((k.Cmp(TID // WARP, "==", ix.const(warp)), k.Elect()), tuple(self.body)),)


def _apart(body: tuple[k.Stmt, ...], threads: int) -> tuple[k.Stmt, ...]:
    """``body`` with barriers that only its own threads meet; what they would leave the kernel before is skipped."""
    out: list[k.Stmt] = []
    for n, s in enumerate(body):
        if isinstance(s, k.If) and s.body == (k.Return(),):
            (test,) = s.where
            assert isinstance(test, k.Test)
            return (*out, k.If((replace(test, negate=not test.negate),), _apart(body[n + 1 :], threads)))
        if isinstance(s, k.Barrier):
            s = k.Barrier(CONSUMERS, threads)
        elif isinstance(s, k.For):
            s = replace(s, body=_apart(s.body, threads))
        elif isinstance(s, k.If):
            s = replace(s, body=_apart(s.body, threads), orelse=_apart(s.orelse, threads))
        out.append(s)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class BoxTile:
    """A buffer of an operand: ``count`` panels, each ``rows`` rows along ``outer`` of 64 elements along ``inner``."""

    map: str
    array: str
    dtype: str
    inner: str
    outer: str
    rows: int
    count: int
    pitch: int  # elements from one panel to the next
    axes: tuple[str, ...]  # as the tensor map has them
    start: Idx
    buffer: int = 0  # elements from one buffer to the next

    @property
    def size(self) -> int:
        """Elements."""
        return self.rows * PANEL * self.count


@dataclass(slots=True)
class Pipeline:
    """The operands of one fold, in ``depth`` buffers each; see `emmy_eq.codegen.lower.pipeline`."""

    placed: list[Placed]
    depth: int
    tiles: dict[str, BoxTile]
    full: str
    empty: str
    read: bool  # by other instructions than wgmma
    step: Idx

    @staticmethod
    def start(e: Engine, placed: list[Placed], operands: Sequence[tuple[str, ...]], read: bool) -> Pipeline:
        """Buffers and mbarriers, and all that the producer warp does.  Operands of one group lie side by side."""
        if len(e.b.levels) > 1:
            raise Unsupported("schedule", "operands by the copy engine inside a serial loop")
        depth = e.row.stage.depth
        with e.bound(e.maps_at(placed, ix.const(0))):
            tiles = {name: tile for group in operands for name, tile in _allocate(e, group, depth)}
        full, empty = (_mbarriers(e, prefix, depth) for prefix in ("full", "empty"))
        steps = prod(p.steps for p in placed)
        step = var(e.b.fresh("ahead"))
        e.b.extents[step.name] = steps
        slot = step % depth
        with e.bound(e.maps_at(placed, step)):
            boxes = [
                k.TmaLoad(tile.map, point, tile.array, to, full, slot)
                for tile in tiles.values()
                for point, to in panels(e, _at(tile, step, depth))
            ]
        sizes = sum(t.size * ITEM for t in tiles.values())
        asks: tuple[k.Stmt, ...] = (
            k.MbarWait(empty, slot, (step // depth + 1) % 2),
            k.MbarExpect(full, slot, sizes),
            *boxes,
        )
        span = WARP if read else WARPGROUP
        for n in range(depth):
            e.producer.start += [k.MbarInit(full, ix.const(n), 1), k.MbarInit(empty, ix.const(n), e.row.threads // span)]
        e.producer.body.append(k.For(step.name, ix.const(0), ix.const(steps), 1, asks))
        return Pipeline(placed, depth, tiles, full, empty, read, ix.const(0))

    def run(self, e: Engine, multiply: Callable[[], None], totals: Sequence[Fragment]) -> None:
        """All steps, each with its axes bound.

        The last stands behind the loop: where wgmmas of a loop are still running at its end, and what they make is read under a
        condition, ptxas serializes them all (its warning C7514).
        """
        steps = prod(p.steps for p in self.placed)
        if steps > 1:
            name = e.b.fresh("step")
            with e.b.loop(name, steps - 1):
                self._step(e, var(name), multiply)
                self._release(e)
        self._step(e, ix.const(steps - 1), multiply)
        e.b.emit(k.WgmmaWait(0, tuple(str(x) for total in totals for x in total.atoms)))

    def _step(self, e: Engine, step: Idx, multiply: Callable[[], None]) -> None:
        self.step = step
        e.b.emit(k.MbarWait(self.full, step % self.depth, step // self.depth % 2))
        with e.bound(e.maps_at(self.placed, step)):
            multiply()

    def tile(self, name: str) -> BoxTile:
        return _at(self.tiles[name], self.step, self.depth)

    def _release(self, e: Engine) -> None:
        """The products of the step before are done: its buffers are free.  Those of this step go on."""
        e.b.emit(k.WgmmaWait(1))
        span = WARP if self.read else WARPGROUP
        if self.read:
            e.b.emit(k.WarpSync())
        before = (self.step + (self.depth - 1)) % self.depth
        where = (k.Cmp(self.step, ">", ix.const(0)), k.Cmp(TID % span, "==", ix.const(0)))
        e.b.emit(k.If(where, (k.MbarArrive(self.empty, before),)))


def _mbarriers(e: Engine, prefix: str, count: int) -> str:
    name = e.b.fresh(prefix)
    e.b.shared.append(k.Shared(name, "mbar", count, 8))
    return name


def _at(tile: BoxTile, step: Idx, depth: int) -> BoxTile:
    return replace(tile, start=tile.start + step % depth * tile.buffer)


def _allocate(e: Engine, names: tuple[str, ...], depth: int) -> Iterator[tuple[str, BoxTile]]:
    """One array: of each panel the rows of all operands, or where those are along k, all panels of one after those of another."""
    tiles = [_boxed(e, name) for name in names]
    stacked = e.row.atoms[tiles[0].outer][0] != "k"
    size = sum(t.size for t in tiles)
    array = k.Shared(e.b.fresh("box"), tiles[0].dtype, size * depth, ALIGN)
    e.b.shared.append(array)
    e.producer.boxes.append(array)
    start = 0
    for name, t in zip(names, tiles, strict=True):
        pitch = sum(x.rows for x in tiles) * PANEL if stacked else t.pitch
        yield name, replace(t, array=array.name, pitch=pitch, start=ix.const(start), buffer=size)
        start += t.rows * PANEL if stacked else t.size


def _boxed(e: Engine, name: str) -> BoxTile:
    """The tile of an operand, in no array yet, and its tensor map."""
    v, s = e.known[name], e.known[name].stmt
    shape = operand(s, e.buffers, {a: e.home[a].extent for a in v.axes})
    tiled = [a for a in v.axes if e.home[a].tile > 1]
    if not isinstance(s, Load) or shape is None or len(tiled) != 2 or next(iter(shape)) not in tiled:
        raise Unsupported("schedule", f"the copy engine reads 16-bit tensors as they are, in rows of multiples of 16 bytes, not {name}")
    inner = next(iter(shape))
    (outer,) = (a for a in tiled if a != inner)
    rows = e.home[outer].tile
    if rows > BOX:
        raise Unsupported("schedule", f"a box of {rows} rows; the copy engine brings {BOX}")
    order = (inner, outer, *(a for a in shape if a not in tiled))
    name = e.b.fresh("map")
    e.producer.map(name, s.buffer, v.dtype, e.home, order, shape, rows)
    return BoxTile(name, "", v.dtype, inner, outer, rows, -(-e.home[inner].tile // PANEL), rows * PANEL, order, ix.const(0))


def panels(e: Engine, tile: BoxTile) -> Iterator[tuple[tuple[Idx, ...], Idx]]:
    """Of each box of the tile: its coordinates, and where it lies in shared memory."""
    for n in range(tile.count):
        point = tuple(e.b.simplify(e.home[a].base + (n * PANEL if a == tile.inner else 0)) for a in tile.axes)
        yield point, e.b.simplify(tile.start + n * tile.pitch)


def get(e: Engine, tile: BoxTile, reader: Scope) -> Fragment:
    """The tile's elements in layout ``reader``, by ordinary loads."""
    axes = tuple(sorted((tile.inner, tile.outer)))
    counts = {a: reader[a].count for a in axes}
    width = reader[tile.inner].vector
    found: dict[tuple[int, ...], k.Atom] = {}
    for point in coordinates({**counts, tile.inner: counts[tile.inner] // width}):
        first = {**point, tile.inner: point[tile.inner] * width}
        names = tuple(e.b.fresh("v") for _ in range(width))
        along, row = (reader[a].coordinate(first[a]) - reader[a].base for a in (tile.inner, tile.outer))
        e.b.emit(k.Load(names, tile.dtype, "shared", tile.array, element(e, tile, along, row)))
        for n, name in enumerate(names):
            there = {**first, tile.inner: first[tile.inner] + n}
            found[tuple(there[a] for a in axes)] = name
    return Fragment(axes, tuple(counts.values()), tuple(found[tuple(p.values())] for p in coordinates(counts)), tile.dtype)


def element(e: Engine, tile: BoxTile, along: Idx, row: Idx) -> Idx:
    """Where an element lies (``along`` the inner axis): the number of its chunk in a row is xored with the row's."""
    b = e.b
    along, row = b.simplify(along), b.simplify(row)
    chunk, turn = b.index(along // CHUNK % (PANEL // CHUNK)), b.index(row % CHUNK)
    key = ("xor", chunk, turn)
    swizzled = b.find(key)
    if swizzled is None:
        swizzled = b.let("xor", "i32", chunk, turn)
        b.extents[swizzled] = PANEL // CHUNK
        b.remember(key, swizzled)
    return b.simplify(tile.start + along // PANEL * tile.pitch + row * PANEL + var(swizzled) * CHUNK + along % CHUNK)
