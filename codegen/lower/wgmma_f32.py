"""f32 products by warpgroups, as three products of tf32 parts (`emmy_eq.codegen.lower.tf32`).

The left operand is read from its box into registers and split there; so it may be made of what several boxes hold.  The right one must
lie along k, and is split in shared memory by a warpgroup of its own: what the copy engine brought serves as the large part, since wgmma
drops the lower bits, and small parts go to a second array.  wgmma cuts off when it adds, so each step starts from zero and is added in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.kernel_ir import Lit
from emmy_eq.codegen.lower import tf32
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import TID
from emmy_eq.codegen.lower.matrix import Product
from emmy_eq.codegen.lower.tf32 import Parts
from emmy_eq.codegen.lower.tma import ALIGN, UNIT, BoxTile, Pipeline, mbarriers
from emmy_eq.codegen.lower.wgmma import Sum, accumulators, corner, take_turns
from emmy_eq.codegen.schedule import WARPGROUP
from emmy_eq.codegen.tile_ir import Value
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx, var
from emmy_eq.loop_ir import Load
from emmy_eq.ops import itemsize

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine

WIDTH = UNIT // itemsize("f32")  # elements that are split together


@dataclass(frozen=True, slots=True)
class Products:
    """``groups``: one wgmma each; ``sums``: of one step, in the form of the totals; ``ready``: the mbarriers of small parts."""

    groups: Sequence[Sequence[Sum]]
    sums: Sequence[Sequence[Sum]]
    pipeline: Pipeline
    ready: str

    @staticmethod
    def start(e: Engine, groups: Sequence[Sequence[Sum]], pipeline: Pipeline) -> Products:
        """Accumulators of a step, and what the splitting warpgroup does."""
        zero = literal("f32", 0)
        sums = [[(p, e.b.declare(zero, total.dtype, total.shape())) for p, total in g] for g in groups]
        depth = pipeline.stream.depth
        ready = mbarriers(e, "ready", depth)
        e.producer.start += [k.MbarInit(ready, ix.const(n), WARPGROUP) for n in range(depth)]
        e.producer.splits = _splits(e, pipeline, ready)
        return Products(groups, sums, pipeline, ready)

    def run(self, e: Engine, read: Collection[str], values: Callable[[], None]) -> None:
        """All steps; ``read``: operands in registers; ``values``: what each does beside."""

        def begin() -> None:
            values()
            self._multiply(e)

        take_turns(e, False, 1)
        self.pipeline.run_apart(e, read, begin, lambda: self._wait(e), lambda: self._add(e))
        take_turns(e, True, 0)

    def _multiply(self, e: Engine) -> None:
        """Begin this step's sums."""
        groups = [_operands(e, group, self.pipeline) for group in self.sums]
        e.b.emit(k.MbarWait(self.ready, *self.pipeline.stream.phase(self.pipeline.turn)))
        take_turns(e, True, 0, 1)
        e.b.emit(k.WgmmaFence(tuple(x for group in groups for parts in group.left for of in parts for x in of)))
        for group in groups:
            for n, (left, right) in enumerate(group.ordered()):
                scale = literal("i32", int(n > 0))
                e.b.emit(k.Wgmma(group.columns, "tf32", group.sums, left, right, scale, stride=(ALIGN, ALIGN)))
        e.b.emit(k.WgmmaCommit())
        take_turns(e, False, 0, 1)

    def _wait(self, e: Engine) -> None:
        e.b.emit(k.WgmmaWait(0, tuple(x for group in self.sums for x in accumulators(group))))

    def _add(self, e: Engine) -> None:
        for group, part in zip(self.groups, self.sums, strict=True):
            for (_, total), (_, one) in zip(group, part, strict=True):
                e.b.assign(total, "add", total, one)


@dataclass(frozen=True, slots=True)
class _Operands:
    """Of one wgmma a step along k: large and small parts; the right ones by array and offset."""

    columns: int
    sums: tuple[str, ...]
    left: Sequence[tuple[Parts, Parts]]
    right: Sequence[tuple[tuple[str, Idx], tuple[str, Idx]]]

    def ordered(self) -> list[tuple[Parts, tuple[str, Idx]]]:
        """Small products first."""
        pairs = list(zip(self.left, self.right, strict=True))
        small = [x for a, b in pairs for x in ((a[1], b[0]), (a[0], b[1]))]
        return small + [(a[0], b[0]) for a, b in pairs]


def boxed(known: Mapping[str, Value], name: str, axes: tuple[str, str]) -> list[str]:
    """The loads that value ``name`` is made of and that vary along both ``axes``."""
    v = known[name]
    if isinstance(v.stmt, Load):
        return [v.name] if set(axes) <= set(v.axes) else []
    return list(dict.fromkeys(x for a in v.args for x in boxed(known, a, axes)))


def _operands(e: Engine, group: Sequence[Sum], pipeline: Pipeline) -> _Operands:
    p = group[0][0]
    tile, columns = pipeline.tile(p.right), e.home[p.n].chunk
    if tile.inner != p.k:
        raise Unsupported("schedule", f"f32 values in shared memory that do not lie along {p.k}, at warpgroups")
    steps = range(e.row.split(p.k).regs)
    return _Operands(
        columns * len(group),
        accumulators(group),
        _left(e, p, steps),
        [_right(tile, corner(e, tile, p.n, columns, p.k, step)) for step in steps],
    )


def _right(tile: BoxTile, at: Idx) -> tuple[tuple[str, Idx], tuple[str, Idx]]:
    return (tile.array, at), (tile.small, at)


def _left(e: Engine, p: Product, steps: range) -> list[tuple[Parts, Parts]]:
    """Of each step: rows g and g + 8 in the first half of its k, then in the second."""
    frag = e.value(p.left, e.home)
    if not isinstance(e.known[p.left].stmt, Load):
        frag = e.masked(frag, {p.k: e.home[p.k]}, literal(frag.dtype, 0))
    others = dict.fromkeys(frag.axes, 0)
    places = [{**others, p.m: row, p.k: 2 * step + half} for step in steps for half in (0, 1) for row in (0, 1)]
    found = [[str(e.b.declare(part, "f32", {}).atoms[0]) for part in tf32.parts(e.b, str(frag.at(x)))] for x in places]
    large, small = ([tuple(of[4 * n : 4 * n + 4]) for n in range(len(steps))] for of in zip(*found, strict=True))
    return list(zip(large, small, strict=True))


def _splits(e: Engine, pipeline: Pipeline, ready: str) -> tuple[k.Stmt, ...]:
    """All steps of the splitting warpgroup: each buffer from its first element to its last, wherever those belong."""
    stream = pipeline.stream
    arrays = dict.fromkeys((t.array, t.small, t.buffer) for t in stream.tiles.values() if t.small)
    step = var(e.b.fresh("split"))
    e.b.extents[step.name] = pipeline.steps
    slot, phase = stream.phase(e.turn(step, pipeline.steps))

    def every(each: Callable[[str, str, Idx], None], unroll: int) -> None:
        """``each`` of `WIDTH` elements at a time: the array, that of small parts, and where they lie in both."""
        for array, small, size in arrays:
            part = var(e.b.fresh("part"))
            place = part * WARPGROUP + (TID - e.row.threads)
            with e.b.apart() as one:
                each(array, small, slot * size + place * WIDTH)
            whole = size % (WARPGROUP * WIDTH) == 0
            inner = tuple(one) if whole else (k.If((k.Cmp(place * WIDTH, "<", ix.const(size)),), tuple(one)),)
            e.b.emit(k.For(part.name, ix.const(0), ix.const(-(-size // (WARPGROUP * WIDTH))), 1, inner, unroll))

    with e.b.apart() as body:
        e.b.emit(k.MbarWait(stream.full, slot, phase))
        largest = str(e.b.declare(literal("f32", 0), "f32", {}).atoms[0])
        every(lambda array, small, at: _split(e, array, small, at, largest), 0)
        finite = e.b.let("le", "bool", largest, Lit("f32", tf32.LARGEST))
        with e.b.apart() as rare:
            every(lambda array, small, at: _mend(e, array, small, at), 1)
        e.b.emit(k.If((k.Test(finite, negate=True),), tuple(rare)))
        e.b.emit(k.ProxyFence())
        e.b.emit(k.MbarArrive(ready, slot))
    return (k.For(step.name, ix.const(0), ix.const(pipeline.steps), 1, tuple(body)),)


def _split(e: Engine, array: str, small: str, at: Idx, largest: str) -> None:
    """The small parts of `WIDTH` elements; ``largest`` magnitude of all so far."""
    names = _load(e, array, at)
    e.b.emit(k.Store(tuple(tf32.small(e.b, x) for x in names), "f32", "shared", small, at))
    e.b.emit(k.Set(largest, "f32", "maximum", (largest, tf32.largest(e.b, names))))


def _mend(e: Engine, array: str, small: str, at: Idx) -> None:
    """Both parts of `WIDTH` elements that may not be finite."""
    found = [tf32.parts(e.b, x) for x in _load(e, array, at)]
    for part, values in zip((array, small), zip(*found, strict=True), strict=True):
        e.b.emit(k.Store(values, "f32", "shared", part, at))


def _load(e: Engine, array: str, at: Idx) -> tuple[str, ...]:
    names = tuple(e.b.fresh("v") for _ in range(WIDTH))
    e.b.emit(k.Load(names, "f32", "shared", array, at))
    return names
