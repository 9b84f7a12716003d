"""Folds whose operands threads share: contractions, and twisted folds of them (attention).

Such a fold walks tiles of its axes.  A *tile part* of its state is accumulated in the layout of the tile (its axes over
threads and registers): the key of a twist, the denominator, statistics.  An *inner part* is accumulated one element of the
folded axes at a time, from operands in shared memory.  An operand is the largest value that some thread-mapped axis of
the result shares; its prologue is computed once, as it is staged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen.lower import fold, matrix, reduce, skip, stage, tma, twisted, wgmma, wgmma_f32
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import AxisMap, Fragment, Scope, bits, coordinates
from emmy_eq.codegen.lower.matrix import Product
from emmy_eq.codegen.lower.pipeline import Pipeline
from emmy_eq.codegen.lower.stage import SharedTile
from emmy_eq.codegen.lower.states import Parts, Reduction, State, Twisted
from emmy_eq.codegen.tile_ir import Fold, Value, is_product, walk
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx, var
from emmy_eq.loop_ir import Carry, Let, Load
from emmy_eq.ops import monoids, twists

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine, Placed

FULL_UNROLL = 16  # elements of the folded axes that are unrolled fully


@dataclass(frozen=True, slots=True)
class Plan:
    """``inner``: per carry, which components are inner parts; ``operands``: names of the values to stage for them;
    ``matrix``: the products for tensor cores, by the result that they add to."""

    inner: tuple[tuple[bool, ...], ...]
    operands: tuple[str, ...]
    matrix: Mapping[str, Product]


def plan(e: Engine, f: Fold, placed: list[Placed]) -> Plan:
    folded = frozenset(a.name for a in f.axes)
    threads = 0
    for p in placed:
        threads |= p.map.bits
    inner: list[tuple[bool, ...]] = []
    operands: list[str] = []
    products: dict[str, Product] = {}
    for c in f.carries:
        over = [bool(threads & bits(e.home, e.known[r].axes)) for r in c.results]
        shared = [x for r in c.results for x in operands_of(e, c, r, folded)]
        if not threads and c.kind == "monoid":
            over = [bool(shared)]
        if any(over) and (c.kind == "arg" or (c.kind == "twist" and twists()[c.name].adjust is not None)):
            raise Unsupported(c.name, "over threads that its result's axes use")
        if c.kind == "twist" and over[0]:
            raise Unsupported(c.name, "over threads that its key's axes use: only a sum under the key can be shared so")
        inner.append(tuple(over))
        for n, r in enumerate(c.results):
            if over[n] and (found := matrix.product(e, c, n, folded)) is not None:
                products[r] = found
                operands += found.staged
            elif over[n]:
                operands += operands_of(e, c, r, folded)
    return Plan(tuple(inner), tuple(dict.fromkeys(operands)), products)


def operands_of(e: Engine, c: Carry, result: str, folded: frozenset[str]) -> list[str]:
    """The shared operands of one component."""
    over = [a for a in e.known[result].axes if e.home[a].threads > 1]
    arg = c.args[c.results.index(result)]
    return _shared(e, arg, folded, over)


def _shared(e: Engine, name: str, folded: frozenset[str], over: list[str]) -> list[str]:
    v = e.known[name]
    if not folded & set(v.axes) or not (v.folds or stage.loads(e, name)):
        return []
    if any(a not in v.axes for a in over) or (isinstance(v.stmt, Fold)):
        return [v.name]
    return [x for a in v.args for x in _shared(e, a, folded, over)]


def ahead(e: Engine, f: Fold) -> tuple[dict[str, AxisMap], dict[str, Product]]:
    """Of folds inside ``f`` that take one step, not within others of several: where their axes lie; and by result their products, whose
    operands ``f`` can bring early."""
    inside = [s for s in walk(f.body) if isinstance(s, Fold) and all(p.steps == 1 for p in e.place(s.axes))]
    maps = {p.map.axis: p.map for s in inside for p in e.place(s.axes)}
    with e.bound(maps):
        once = [s for s in inside if all(a in e.home for c in s.carries for r in c.results for a in e.known[r].axes)]
        plans = [plan(e, s, e.place(s.axes)) for s in once]
    return maps, {r: p for found in plans for r, p in found.matrix.items()}


def applies(e: Engine, f: Fold, placed: list[Placed]) -> bool:
    return e.row.stage.depth > 0 and any(any(i) for i in plan(e, f, placed).inner)


def emit(e: Engine, f: Fold, placed: list[Placed], states: list[State]) -> None:
    """Compute every carry of ``f``, and remember the results."""
    Contraction(e, f, placed, states).emit()


class Contraction:
    """One fold being lowered; ``accs`` are its accumulators, a state per carry."""

    def __init__(self, e: Engine, f: Fold, placed: list[Placed], states: list[State]) -> None:
        self.e, self.f, self.placed, self.states = e, f, placed, states
        self.plan = plan(e, f, placed)
        with e.bound({p.map.axis: p.map for p in placed}):
            self.within, self.scores = ahead(e, f)
        self.early = tuple(dict.fromkeys(x for p in self.scores.values() for x in p.staged))
        e.matrices |= {x for p in (*self.plan.matrix.values(), *self.scores.values()) for x in p.staged}
        self.accs = [fold.declare(e, c, st) for c, st in zip(f.carries, states, strict=True)]
        self.weights: dict[str, str] = {}  # of a twist whose sums are not all on tensor cores, by its key
        self.staged: frozenset[str] = frozenset()

    def parts(self) -> Iterator[tuple[Carry, State, Parts, tuple[bool, ...]]]:
        """(carry, its state, its accumulators, which of them are inner parts)."""
        return zip(self.f.carries, self.states, self.accs, self.plan.inner, strict=True)

    def emit(self) -> None:
        e = self.e
        if e.row.stage.path == "tma" and self.scores:
            twisted.emit(self)
        elif e.row.stage.path == "tma":
            self.by_boxes()
        else:
            self.by_tiles()
        whole = {p.map.axis: p.map for p in self.placed}
        totals = [_over_threads(e, st, acc, inner, whole) for _, st, acc, inner in self.parts()]
        fold.finish(e, self.f, self.states, totals, whole)

    def by_tiles(self) -> None:
        e = self.e
        with ExitStack() as stack:
            stack.enter_context(e.bound(self.within))
            pipeline = Pipeline.start(e, self.placed, (*self.plan.operands, *self.early), frozenset(a.name for a in self.f.axes))
            maps = e.open(self.placed, stack, skip.stop(e, self.f, self.placed))
            stack.enter_context(e.bound(maps))
            pipeline.fetch(e)
            for name in self.early:
                pipeline.lend(e, name)
            for name in self.again():
                e.bind(name, e.home, stage.get(e, pipeline.tile(e, name), e.home, name))
            self.tile_parts(maps)
            operands = dict.fromkeys((*self.plan.operands, *self.weights.values()))
            tiles = {name: pipeline.tile(e, name) for name in operands}
            if self.plan.matrix:
                matrix.multiply(e, self.products(), tiles)
            self.inner_parts(maps, tiles)
            pipeline.advance(e)
        pipeline.drain(e)

    def by_boxes(self) -> None:
        """Operands come by the copy engine, and warpgroups multiply them."""
        e = self.e
        inner = {r for c, i in zip(self.f.carries, self.plan.inner, strict=True) for r, x in zip(c.results, i, strict=False) if x}
        if inner - set(self.plan.matrix) or any(p.held for p in self.plan.matrix.values()):
            raise Unsupported("schedule", "the copy engine for other operands than those of products on tensor cores")
        again = self.again()
        with e.bound({p.map.axis: p.map for p in self.placed}):
            groups = wgmma.together(e, self.products())
        left, right = dict.fromkeys(g[0][0].left for g in groups), dict.fromkeys(tuple(p.right for p, _ in g) for g in groups)
        split = [p for g in groups for p, _ in g if matrix.form(e, p.k).promoted]
        if split:
            left = dict.fromkeys(x for p in split for x in wgmma_f32.boxed(e.known, p.left, (p.m, p.k)))
        read = dict.fromkeys((*again, *(left if split else ())))
        if any(p.right in read for p in split):
            raise Unsupported("schedule", "an operand whose parts warpgroups multiply in shared memory, for anything else")
        pipeline = tma.Pipeline.start(e, self.placed, [*((x,) for x in left), *right], bool(read), right if split else ())

        def values() -> None:
            self.tile_parts({p.map.axis: e.home[p.map.axis] for p in self.placed})

        if split:
            wgmma_f32.Products.start(e, groups, pipeline).run(e, read, values)
            return

        def step() -> None:
            for name in read:
                e.bind(name, e.home, tma.get(e, pipeline.tile(name), e.home))
            values()
            wgmma.multiply(e, groups, {name: pipeline.tile(name) for name in self.plan.operands})

        pipeline.run(e, step, [total for _, total in self.products()])

    def products(self) -> list[tuple[Product, Fragment]]:
        """What tensor cores multiply, and the sum that it is added to."""
        totals = {
            r: part
            for c, acc in zip(self.f.carries, self.accs, strict=True)
            for r, part in zip(c.results, acc[-len(c.results) :], strict=True)
        }
        return [(p, totals[r]) for r, p in self.plan.matrix.items()]

    def again(self) -> list[str]:
        """Operands of tensor cores that tile parts read as well (statistics of a product's operand): from shared memory."""
        args = [a for c, i in zip(self.f.carries, self.plan.inner, strict=True) for a, inner in zip(c.args, i, strict=False) if not inner]
        staged = {x for p in self.plan.matrix.values() for x in p.staged}
        return [x for x in self.plan.operands if x in staged and any(_reads(self.e, a, x) for a in args)]

    def tile_parts(self, maps: Scope) -> None:
        e = self.e
        for c, st, acc, inner in self.parts():
            if isinstance(st, Twisted):
                self.rescale(acc, inner, self.twist(c, st, acc, inner, maps))
            elif not inner[0]:
                for target, part in zip(acc, st.collect(e.b, acc, fold.items(e, c, st, maps)), strict=True):
                    e.b.assign(target, "mov", part)

    def twist(self, c: Carry, st: Twisted, acc: Parts, inner: tuple[bool, ...], maps: Scope) -> Fragment:
        """The key, the same in all threads; tile parts of sums under it; the weights, which become a value of the tile.  Gives the factor
        by which inner parts are to be rescaled."""
        e, b, dtype = self.e, self.e.b, st.dtypes[0]
        s = e.masked(e.value(c.args[0], e.home), maps, st.mask())
        points = list(coordinates({a: m.count for a, m in maps.items()}))
        own = st.grow(b, [s.slice(p) for p in points])
        (seen,) = reduce.across(b, Reduction(st.key, st.dtypes[:1]), (own,), maps)
        key = st.grow(b, [acc[0], seen])
        factor, weight = st.rescale(b, acc[0], key), st.weights(b, [s], key, own)[0]
        for n, total in enumerate(acc[1:], 1):
            if inner[n]:
                continue
            scaled, v = b.apply("mul", dtype, total, factor), e.value(c.args[n], e.home)
            for p in points:
                scaled = st.add(b, scaled, weight.slice(p), v.slice(p), dtype)
            b.assign(total, "mov", scaled)
        b.assign(acc[0], "mov", key)
        name = matrix.weight(c)
        e.known[name] = Value(name, self.f, s.axes, (), dtype, True)
        e.bind(name, e.home, weight)
        if any(i and r not in self.plan.matrix for i, r in zip(inner, c.results, strict=True)):
            self.weights[c.results[0]] = name
        return factor

    def rescale(self, acc: Parts, inner: tuple[bool, ...], factor: Fragment) -> None:
        """Inner parts under a new key."""
        for total, over in zip(acc, inner, strict=True):
            if over:
                self.e.b.assign(total, "mul", total, factor)

    def inner_parts(self, maps: Scope, tiles: dict[str, SharedTile]) -> None:
        """One element of the folded axes at a time: read fragments, accumulate."""
        e, self.staged = self.e, frozenset(tiles)
        parts = [
            (c, st, acc, [i and r not in self.plan.matrix for i, r in zip(inner, c.results, strict=True)])
            for c, st, acc, inner in self.parts()
        ]
        carries = [p for p in parts if any(p[3])]
        if not carries:
            return
        with ExitStack() as stack:
            reader = dict(e.home)
            for a, m in maps.items():
                at: Idx = ix.const(0)
                if m.tile > 1:
                    name = e.b.fresh("k")
                    stack.enter_context(e.b.loop(name, m.tile, 0 if m.tile <= FULL_UNROLL else FULL_UNROLL // 2))
                    at = var(name)
                reader[a] = AxisMap(a, m.extent, m.base + at)
            for name, tile in tiles.items():
                if name not in e.matrices:
                    e.bind(name, reader, stage.get(e, tile, reader, name))
            here = {a: reader[a] for a in maps}
            for c, st, acc, inner in carries:
                for n, target in enumerate(acc):
                    if inner[n]:
                        self.accumulate(c, st, n, target, reader, here)

    def accumulate(self, c: Carry, st: State, n: int, target: Fragment, reader: Scope, here: Scope) -> None:
        """``target`` and one more element."""
        e = self.e
        if isinstance(st, Twisted):
            w, v = (self.factor(a, reader, here) for a in (self.weights[c.results[0]], c.args[n]))
            e.b.assign(target, "fma", *st.factors(e.b, w, v), target)
            return
        if c.name == "sum" and is_product(c.args[0], e.known):
            e.b.assign(target, "fma", *(self.factor(a, reader, here) for a in e.known[c.args[0]].args), target)
            return
        frag = e.masked(e.value(c.args[0], reader), here, st.mask()).slice(dict.fromkeys(here, 0))
        e.b.assign(target, monoids()[c.name].combine, target, frag)

    def factor(self, name: str, reader: Scope, here: Scope) -> Fragment:
        """A factor of a summed product, zero beyond the fold's axes: what is staged or loaded along all of them is so already."""
        v = self.e.known[name]
        frag = self.e.value(name, reader)
        if not set(here) <= set(v.axes) or not (v.name in self.staged or isinstance(v.stmt, Load)):
            frag = self.e.masked(frag, here, literal(frag.dtype, 0))
        return frag.slice(dict.fromkeys(here, 0))


def _reads(e: Engine, name: str, operand: str) -> bool:
    """Whether ``name`` is made of ``operand``, outside folds."""
    v = e.known[name]
    return name == operand or (isinstance(v.stmt, Let) and any(_reads(e, a, operand) for a in v.args))


def _over_threads(e: Engine, st: State, acc: Parts, inner: tuple[bool, ...], maps: Scope) -> Parts:
    """Tile parts are partial over the fold's threads; the key is not, so sums under it simply add."""
    if not isinstance(st, Twisted):
        return acc if inner[0] else reduce.across(e.b, st, acc, maps)
    out = list(acc)
    for n, p in enumerate(acc):
        if n > 0 and not inner[n]:
            (out[n],) = reduce.across(e.b, Reduction(monoids()["sum"], (p.dtype,)), (p,), maps)
    return tuple(out)
