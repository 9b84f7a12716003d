"""Operands by the copy engine (TMA): a producer warp asks for boxes of them, mbarriers say when a buffer is full and when it is free.

A box's rows are 128 bytes along the axis that is contiguous in memory, their chunks of 16 bytes swizzled as wgmma reads them.
What lies beyond an axis's extent arrives as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import access
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import TID, Fragment, Scope, coordinates
from emmy_eq.codegen.lower.persistent import Rounds, around
from emmy_eq.codegen.schedule import WARP, WARPGROUP
from emmy_eq.codegen.tile_ir import Fold
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx, var
from emmy_eq.loop_ir import Buffer, Let, Load
from emmy_eq.ops import HALVES, itemsize

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine, Placed

ROW = 128  # bytes of a row of a box
ALIGN = 1024  # bytes: 8 rows, over which the swizzle repeats
UNIT = 16  # bytes: of what is swizzled as one; base and strides of a tensor are multiples (CUDA driver API, cuTensorMapEncodeTiled)
RANK = 5
BOX = 256  # most elements of a box along an axis
CONSUMERS = 1  # the named barrier of the warps that compute
UNROLLED = 2  # steps of a loop of products, whose addresses are then found together
REGISTERS = 8  # that setmaxnreg counts by
FEW, SOME, MANY = 24, 56, 240  # of a thread that asks for boxes, that splits, at most of one that computes (255 are of no use)


def panel(dtype: str) -> int:
    """Elements of a row of a box."""
    return ROW // itemsize(dtype)


def chunk(dtype: str) -> int:
    """Elements that are swizzled as one."""
    return UNIT // itemsize(dtype)


def strides(index: tuple[Idx, ...], shape: tuple[int, ...], extents: Mapping[str, int], size: int) -> dict[Idx, int] | None:
    """Elements between neighbours along each part of ``index``, the contiguous one first; None where no tensor map describes them.

    A part is an axis, or what an index makes of axes (the keys' head of a group of heads); the last may be the constant 1, with the
    elements before the first one read (values beside queries and keys).  ``shape`` and ``size`` (bytes of an element) are of the
    buffer, ``extents`` of the axes.
    """
    found = dict(ix.terms(ix.simplify(access.flat(index, shape), extents)))
    start = found.pop(ix.const(1), 0)
    if start * size % UNIT or any(not ix.variables(f) or not ix.variables(f) <= set(extents) for f in found) or not 0 < len(found) <= RANK:
        return None
    first, *others = sorted(found, key=lambda f: found[f])
    if first.op != "var" or found[first] != 1 or any(found[f] * size % UNIT for f in others):
        return None
    return {f: found[f] for f in (first, *others)} | ({ix.const(1): start} if start else {})


def operand(s: Let | Load | Fold, buffers: Mapping[str, Buffer], extents: Mapping[str, int]) -> dict[Idx, int] | None:
    """`strides` of a value for tensor cores that is loaded as it is; None where the copy engine cannot read it."""
    if not isinstance(s, Load) or s.indices or (dtype := buffers[s.buffer].dtype) not in (*HALVES, "f32"):
        return None
    return strides(s.index, buffers[s.buffer].shape, extents, itemsize(dtype))


def boxed(shape: Mapping[Idx, int], tiled: Collection[str]) -> bool:
    """Whether boxes can extend along the axes ``tiled``: each is a part of its own, the contiguous one among them."""
    parts = [f for f in shape if ix.variables(f) & set(tiled)]
    return next(iter(shape)) in parts and sorted(f.name for f in parts if f.op == "var") == sorted(tiled) and len(parts) == len(tiled)


def ordered(shape: Mapping[Idx, int], inner: str, outer: str) -> tuple[Idx, ...]:
    """The parts of an index as a tensor map has them."""
    return (var(inner), var(outer), *(f for f in shape if ix.variables(f) and f not in (var(inner), var(outer))))


@dataclass(slots=True)
class Producer:
    """What warps beside those that compute do: mbarriers they need, the boxes that one asks for, and what a warpgroup makes of those."""

    maps: list[k.TensorMap] = field(default_factory=list)
    boxes: list[k.Shared] = field(default_factory=list)  # that hold operands
    results: list[k.Shared] = field(default_factory=list)  # that hold results alone
    start: list[k.Stmt] = field(default_factory=list)
    carried: list[k.Declare] = field(default_factory=list)  # from one round to the next
    body: list[k.Stmt] = field(default_factory=list)
    splits: tuple[k.Stmt, ...] = ()

    def map(self, name: str, buffer: str, dtype: str, scope: Scope, parts: tuple[Idx, ...], shape: Mapping[Idx, int], rows: int) -> None:
        """A tensor map whose boxes are ``rows`` rows along the second of ``parts``; ``shape``: the stride of each."""
        axes = {a: m.extent for a, m in scope.items()}
        extents, found = tuple(ix.bounds(f, axes)[1] + 1 for f in parts), tuple(shape[f] for f in parts)
        box, start = (panel(dtype), rows, *(1 for _ in parts[2:])), shape.get(ix.const(1), 0)
        self.maps.append(k.TensorMap(name, buffer, dtype, extents, found, box, ROW, start))

    def beside(
        self, body: tuple[k.Stmt, ...], threads: int, registers: int, resident: int, rounds: Rounds | None
    ) -> tuple[tuple[k.Stmt, ...], int]:
        """``body`` in ``threads`` threads, the others' in those after them, and how many threads that is together.

        A block that has an SM's ``registers`` for itself gives its warpgroups more than the others; else one warp asks for boxes.
        """
        computing, splitting = threads // WARPGROUP, int(bool(self.splits))
        equal, more = registers_of(registers, computing, splitting)
        alone = resident == 1 and more > equal
        roles = [(threads, more, _apart(body, threads))]
        roles += [(WARPGROUP, SOME, around(rounds, self.splits))] if splitting else []
        first = sum(count for count, _, _ in roles)
        roles.append((WARPGROUP if alone else WARP, FEW, self._asks(first // WARP, (*self.carried, *around(rounds, tuple(self.body))))))
        warps, bodies, start = [], [], 0
        for count, most, does in roles:
            warps.append((start, count // WARP))
            bodies.append((k.SetMaxRegs(most, increase=most > equal), *does) if alone else does)
            start += count // WARP
        role = k.Role(tuple(warps), tuple(bodies))
        return (k.If((k.Cmp(TID, "==", ix.const(0)),), tuple(self.start)), k.Barrier(), role), start * WARP

    def _asks(self, warp: int, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        return (k.If((k.Cmp(TID // WARP, "==", ix.const(warp)), k.Elect()), body),)


def registers_of(total: int, computing: int, splitting: int = 0) -> tuple[int, int]:
    """Of a thread of the one block of an SM with ``total``: as it starts, and at most of one of the ``computing`` warpgroups then."""
    groups = computing + splitting + 1
    equal = total // (groups * WARPGROUP) // REGISTERS * REGISTERS
    return equal, min(MANY, (equal * groups - FEW - SOME * splitting) // computing // REGISTERS * REGISTERS)


def _apart(body: tuple[k.Stmt, ...], threads: int) -> tuple[k.Stmt, ...]:
    """``body`` with barriers that only its own threads meet; what they would leave the kernel before is skipped."""
    out: list[k.Stmt] = []
    for n, s in enumerate(body):
        if isinstance(s, k.If) and s.body == (k.Return(),):
            (test,) = s.where
            assert isinstance(test, k.Test)
            return (*out, k.If((replace(test, negate=not test.negate),), _apart(body[n + 1 :], threads)))
        if s == k.Barrier():
            s = k.Barrier(CONSUMERS, threads)
        elif isinstance(s, k.For):
            s = replace(s, body=_apart(s.body, threads))
        elif isinstance(s, k.If):
            s = replace(s, body=_apart(s.body, threads), orelse=_apart(s.orelse, threads))
        out.append(s)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class BoxTile:
    """A buffer of an operand: ``count`` panels, each ``rows`` rows of 128 bytes along ``inner``, one below the other along ``outer``.

    ``small``: another array of the same form, for the small parts of its elements (`emmy_eq.codegen.lower.wgmma_f32`)."""

    map: str
    array: str
    dtype: str
    inner: str
    outer: str
    rows: int
    count: int
    pitch: int  # elements from one panel to the next
    parts: tuple[Idx, ...]  # of the index, as the tensor map has them
    start: Idx
    buffer: int = 0  # elements from one buffer to the next
    small: str = ""

    @property
    def size(self) -> int:
        """Elements."""
        return self.rows * panel(self.dtype) * self.count


@dataclass(frozen=True, slots=True)
class Stream:
    """Operands that come together, in ``depth`` buffers each; turn n of them is in buffer n % depth.

    ``full`` and ``empty`` are mbarriers of each buffer; one of ``span`` threads says for all that a buffer is free.
    """

    depth: int
    span: int
    tiles: dict[str, BoxTile]
    full: str
    empty: str

    @staticmethod
    def start(
        e: Engine, operands: Sequence[tuple[str, ...]], depth: int, span: int = WARPGROUP, split: Container[tuple[str, ...]] = ()
    ) -> Stream:
        """Operands of one group lie side by side; those in ``split`` get room for small parts."""
        tiles = {name: tile for group in operands for name, tile in _allocate(e, group, depth, group in split)}
        full, empty = (mbarriers(e, prefix, depth) for prefix in ("full", "empty"))
        for n in range(depth):
            e.producer.start += [k.MbarInit(full, ix.const(n), 1), k.MbarInit(empty, ix.const(n), e.row.threads // span)]
        return Stream(depth, span, tiles, full, empty)

    def asks(self, e: Engine, turn: Idx) -> tuple[k.Stmt, ...]:
        """What the producer does for a turn, whose axes are bound."""
        slot = turn % self.depth
        tiles = [self.tile(name, turn) for name in self.tiles]
        boxes = [k.TmaLoad(tile.map, point, tile.array, to, self.full, slot) for tile in tiles for point, to in _panels(e, tile)]
        size = sum(t.size * itemsize(t.dtype) for t in tiles)
        return k.MbarWait(self.empty, slot, (turn // self.depth + 1) % 2), k.MbarExpect(self.full, slot, size), *boxes

    def tile(self, name: str, turn: Idx) -> BoxTile:
        tile = self.tiles[name]
        return replace(tile, start=tile.start + turn % self.depth * tile.buffer)

    def wait(self, e: Engine, turn: Idx) -> None:
        e.b.emit(k.MbarWait(self.full, *self.phase(turn)))

    def phase(self, turn: Idx) -> tuple[Idx, Idx]:
        """The mbarrier of a turn, and the phase that is waited for."""
        return turn % self.depth, turn // self.depth % 2

    def release(self, e: Engine, turn: Idx, where: k.Predicate = ()) -> None:
        if self.span == WARP:
            e.b.emit(k.WarpSync())
        one = k.Cmp(TID % self.span, "==", ix.const(0))
        e.b.emit(k.If((*where, one), (k.MbarArrive(self.empty, turn % self.depth),)))


@dataclass(slots=True)
class Pipeline:
    """The operands of one fold; see `emmy_eq.codegen.lower.pipeline`.  ``turn``: that of the step at hand."""

    placed: list[Placed]
    stream: Stream
    turn: Idx

    @property
    def steps(self) -> int:
        return prod(p.steps for p in self.placed)

    @staticmethod
    def start(
        e: Engine, placed: list[Placed], operands: Sequence[tuple[str, ...]], read: bool, split: Container[tuple[str, ...]] = ()
    ) -> Pipeline:
        """Buffers, mbarriers, and all that the producer warp does.  ``read``: by other instructions than wgmma; ``split``: see `Stream`."""
        once(e)
        with e.bound(e.maps_at(placed, ix.const(0))):
            stream = Stream.start(e, operands, e.row.stage.depth, WARP if read else WARPGROUP, split)
        steps = prod(p.steps for p in placed)
        step = var(e.b.fresh("ahead"))
        e.b.extents[step.name] = steps
        with e.bound(e.maps_at(placed, step)):
            e.producer.body.append(k.For(step.name, ix.const(0), ix.const(steps), 1, stream.asks(e, e.turn(step, steps))))
        return Pipeline(placed, stream, ix.const(0))

    def run(self, e: Engine, multiply: Callable[[], None], totals: Sequence[Fragment]) -> None:
        """All steps, each with its axes bound.

        The last stands behind the loop: where wgmmas of a loop are still running at its end, and what they make is read under a
        condition, ptxas serializes them all (its warning C7514).
        """
        steps, results = self.steps, tuple(str(x) for total in totals for x in total.atoms)
        if steps > 1:
            name = e.b.fresh("step")
            with e.b.loop(name, steps - 1, UNROLLED):
                self._step(e, var(name), multiply)
                self._release(e, (k.Cmp(var(name), ">", ix.const(0)),))
        self._step(e, ix.const(steps - 1), multiply)
        if e.rounds is not None and steps > 1:
            self._release(e)
        e.b.emit(k.WgmmaWait(0, results))
        if e.rounds is not None:
            self.stream.release(e, self.turn)

    def run_apart(
        self, e: Engine, read: Collection[str], begin: Callable[[], None], wait: Callable[[], None], add: Callable[[], None]
    ) -> None:
        """All steps, each with its axes bound.  ``begin`` starts products; while they run, the next step's operands ``read`` go to
        registers; ``wait`` is for the products, after which ``add`` needs no operands any more."""
        held = self._registers(e, read)
        ahead = len(held) == 1  # registers have no room for a step more of several

        def step(at: Idx, following: bool) -> None:
            if not ahead:
                self._read(e, at, held)
            with e.bound(e.maps_at(self.placed, at)):
                for name, frag in held.items():
                    e.bind(name, e.home, frag)
                self.turn = e.turn(at, self.steps)
                begin()
            if following:
                self._read(e, at + 1, held)
            wait()
            self.stream.release(e, e.turn(at, self.steps))
            add()

        if ahead:
            self._read(e, ix.const(0), held)
        if (looped := self.steps - ahead) > 0:
            name = e.b.fresh("step")
            with e.b.loop(name, looped):
                step(var(name), ahead)
        if ahead:
            step(ix.const(self.steps - 1), following=False)

    def _registers(self, e: Engine, read: Collection[str]) -> dict[str, Fragment]:
        """For a step's part of each operand."""
        with e.bound(e.maps_at(self.placed, ix.const(0))):
            shapes = {n: (e.known[n].dtype, {a: e.home[a].count for a in sorted(e.known[n].axes)}) for n in read}
        return {n: e.b.declare(literal(dtype, 0), dtype, shape) for n, (dtype, shape) in shapes.items()}

    def _read(self, e: Engine, step: Idx, held: Mapping[str, Fragment]) -> None:
        self._wait(e, step)
        with e.bound(e.maps_at(self.placed, step)):
            for name, frag in held.items():
                e.b.assign(frag, "mov", get(e, self.tile(name), e.home))

    def _wait(self, e: Engine, step: Idx) -> None:
        self.turn = e.turn(step, self.steps)
        self.stream.wait(e, self.turn)

    def _step(self, e: Engine, step: Idx, multiply: Callable[[], None]) -> None:
        self._wait(e, step)
        with e.bound(e.maps_at(self.placed, step)):
            multiply()

    def tile(self, name: str) -> BoxTile:
        return self.stream.tile(name, self.turn)

    def _release(self, e: Engine, where: k.Predicate = ()) -> None:
        """The products of the step before are done: its buffers are free.  Those of this step go on."""
        e.b.emit(k.WgmmaWait(1))
        self.stream.release(e, self.turn + (self.stream.depth - 1), where)


def once(e: Engine) -> None:
    """The producer asks for the operands of what stands in no loop."""
    if e.inside or (e.rounds is not None and len(e.b.levels) == 1):
        raise Unsupported("schedule", "operands by the copy engine inside a serial loop")


def mbarriers(e: Engine, prefix: str, count: int) -> str:
    name = e.b.fresh(prefix)
    e.b.shared.append(k.Shared(name, "mbar", count, 8))
    return name


def _allocate(e: Engine, names: tuple[str, ...], depth: int, split: bool) -> Iterator[tuple[str, BoxTile]]:
    """One array: of each panel the rows of all operands, or where those are along k, all panels of one after those of another."""
    tiles = [_boxed(e, name) for name in names]
    stacked = e.row.atoms[tiles[0].outer][0] != "k"
    size = sum(t.size for t in tiles)
    array = k.Shared(e.b.fresh("box"), tiles[0].dtype, size * depth, ALIGN)
    e.b.shared.append(array)
    e.producer.boxes.append(array)
    small = replace(array, name=e.b.fresh("small"))
    e.b.shared += [small] if split else []
    start = 0
    for name, t in zip(names, tiles, strict=True):
        pitch = sum(x.rows for x in tiles) * panel(t.dtype) if stacked else t.pitch
        yield name, replace(t, array=array.name, pitch=pitch, start=ix.const(start), buffer=size, small=small.name if split else "")
        start += t.rows * panel(t.dtype) if stacked else t.size


def _boxed(e: Engine, name: str) -> BoxTile:
    """The tile of an operand, in no array yet, and its tensor map."""
    v, s = e.known[name], e.known[name].stmt
    shape = operand(s, e.buffers, {a: e.home[a].extent for a in v.axes})
    tiled = [a for a in v.axes if e.home[a].tile > 1]
    if not isinstance(s, Load) or shape is None or len(tiled) != 2 or not boxed(shape, tiled):
        raise Unsupported("schedule", f"the copy engine reads tensors as they are, in rows of multiples of 16 bytes, not {name}")
    inner = next(iter(shape)).name
    (outer,) = (a for a in tiled if a != inner)
    rows = e.home[outer].tile
    if rows > BOX:
        raise Unsupported("schedule", f"a box of {rows} rows; the copy engine brings {BOX}")
    parts = ordered(shape, inner, outer)
    name = e.b.fresh("map")
    e.producer.map(name, s.buffer, v.dtype, e.home, parts, shape, rows)
    width = panel(v.dtype)
    return BoxTile(name, "", v.dtype, inner, outer, rows, -(-e.home[inner].tile // width), rows * width, parts, ix.const(0))


def _panels(e: Engine, tile: BoxTile) -> Iterator[tuple[tuple[Idx, ...], Idx]]:
    """Of each box of the tile: its coordinates, and where it lies in shared memory."""
    bases = {a: m.base for a, m in e.home.items()}
    for n in range(tile.count):
        point = tuple(e.b.simplify(ix.substitute(f, bases) + (n * panel(tile.dtype) if f == var(tile.inner) else 0)) for f in tile.parts)
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
        e.b.emit(k.Load(names, tile.dtype, "shared", tile.array, element(e, tile, tile.start, along, row)))
        for n, name in enumerate(names):
            there = {**first, tile.inner: first[tile.inner] + n}
            found[tuple(there[a] for a in axes)] = name
    return Fragment(axes, tuple(counts.values()), tuple(found[tuple(p.values())] for p in coordinates(counts)), tile.dtype)


def element(e: Engine, tile: BoxTile, start: Idx, along: Idx, row: Idx) -> Idx:
    """Where an element of a tile at ``start`` lies (``along`` the inner axis): the number of its chunk in a row is xored with the row's."""
    b, width, unit = e.b, panel(tile.dtype), chunk(tile.dtype)
    along, row = b.simplify(along), b.simplify(row)
    place, turn = b.index(along // unit % (ROW // UNIT)), b.index(row % (ROW // UNIT))
    key = ("xor", place, turn)
    swizzled = b.find(key)
    if swizzled is None:
        swizzled = b.let("xor", "i32", place, turn)
        b.extents[swizzled] = ROW // UNIT
        b.remember(key, swizzled)
    return b.simplify(start + along // width * tile.pitch + row * width + var(swizzled) * unit + along % unit)
