"""Folds whose operands threads share: contractions, and twisted folds of them (attention).

Such a fold walks tiles of its axes.  A *tile part* of its state is accumulated in the layout of the tile (its axes over
threads and registers): the key of a twist, the denominator, statistics.  An *inner part* is accumulated one element of the
folded axes at a time, from operands in shared memory.  An operand is the largest value that some thread-mapped axis of
the result shares; its prologue is computed once, as it is staged.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen.lower import fold, reduce, skip, stage
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import AxisMap, Fragment, Scope, bits, coordinates
from emmy_eq.codegen.lower.pipeline import Pipeline
from emmy_eq.codegen.lower.stage import SharedTile
from emmy_eq.codegen.lower.states import Parts, Reduction, State, Twisted
from emmy_eq.codegen.tile_ir import Fold, Value, is_product
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx, var
from emmy_eq.loop_ir import Carry, Load
from emmy_eq.ops import monoids, twists

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine, Placed

FULL_UNROLL = 16  # elements of the folded axes that are unrolled fully


@dataclass(frozen=True, slots=True)
class Plan:
    """``inner``: per carry, which components are inner parts; ``operands``: names of the values to stage for them."""

    inner: tuple[tuple[bool, ...], ...]
    operands: tuple[str, ...]


def plan(e: Engine, f: Fold, placed: list[Placed]) -> Plan:
    folded = frozenset(a.name for a in f.axes)
    threads = 0
    for p in placed:
        threads |= p.map.bits
    inner, operands = [], []
    for c in f.carries:
        over = [bool(threads & bits(e.home, e.known[r].axes)) for r in c.results]
        shared = [x for r in c.results for x in operands_of(e, c, r, folded)]
        if not threads and c.kind == "monoid":
            over = [bool(shared)]
        if any(over) and (c.kind == "arg" or (c.kind == "twist" and twists()[c.name].adjust is not None)):
            raise Unsupported(c.name, "over threads that its result's axes use")
        inner.append(tuple(over))
        operands += [x for r, o in zip(c.results, over, strict=True) if o for x in operands_of(e, c, r, folded)]
    return Plan(tuple(inner), tuple(dict.fromkeys(operands)))


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


def applies(e: Engine, f: Fold, placed: list[Placed]) -> bool:
    return e.row.stage.depth > 0 and any(any(i) for i in plan(e, f, placed).inner)


def emit(e: Engine, f: Fold, placed: list[Placed], states: list[State]) -> None:
    todo = plan(e, f, placed)
    folded = frozenset(a.name for a in f.axes)
    accs = [fold.declare(e, c, st) for c, st in zip(f.carries, states, strict=True)]
    weights: dict[str, str] = {}
    pipeline = Pipeline.start(e, placed, todo.operands, folded)
    with ExitStack() as stack:
        maps = e.open(placed, stack, skip.stop(e, f, placed))
        stack.enter_context(e.bound(maps))
        pipeline.fetch(e)
        for c, st, acc, inner in zip(f.carries, states, accs, todo.inner, strict=True):
            if isinstance(st, Twisted):
                weights[c.results[0]] = _twist_tile(e, f, c, st, acc, inner, maps)
            elif not inner[0]:
                for target, part in zip(acc, st.collect(e.b, acc, fold.items(e, c, st, maps)), strict=True):
                    e.b.assign(target, "mov", part)
        operands = dict.fromkeys((*todo.operands, *weights.values()))
        tiles = {name: pipeline.tile(e, name) for name in operands}
        _inner(e, f, states, accs, todo, weights, tiles, maps)
        pipeline.advance(e)
    whole = {p.map.axis: p.map for p in placed}
    totals = [_over_threads(e, st, acc, inner, whole) for st, acc, inner in zip(states, accs, todo.inner, strict=True)]
    fold.finish(e, f, states, totals, whole)


def _twist_tile(e: Engine, f: Fold, c: Carry, st: Twisted, acc: Parts, inner: tuple[bool, ...], maps: Scope) -> str:
    """The key and the tile parts of a twisted carry; returns the name of the weights, a value of the tile."""
    b, dtype = e.b, st.dtypes[0]
    s = e.masked(e.value(c.args[0], e.home), maps, st.mask())
    points = list(coordinates({a: m.count for a, m in maps.items()}))
    key_state = Reduction(st.key, st.dtypes[:1])
    seen = reduce.across(b, key_state, (st.grow(b, [s.slice(p) for p in points]),), maps)[0]
    key = st.grow(b, [acc[0], seen])
    factor = st.rescale(b, acc[0], key)
    weight = st.weight(b, s, key)
    for n, total in enumerate(acc[1:], 1):
        scaled = b.apply("mul", dtype, total, factor)
        if not inner[n]:
            v = e.value(c.args[n], e.home)
            for p in points:
                scaled = st.add(b, scaled, weight.slice(p), v.slice(p), dtype)
        b.assign(total, "mov", scaled)
    b.assign(acc[0], "mov", key)
    name = f"{c.results[0]}~weight"
    e.known[name] = Value(name, f, s.axes, (), dtype, True)
    e.bind(name, e.home, weight)
    return name


def _inner(
    e: Engine,
    f: Fold,
    states: list[State],
    accs: list[Parts],
    todo: Plan,
    weights: dict[str, str],
    tiles: dict[str, SharedTile],
    maps: Scope,
) -> None:
    """One element of the folded axes at a time: read fragments, accumulate."""
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
            e.bind(name, reader, stage.get(e, tile, reader, name))
        here = {a: reader[a] for a in maps}
        for c, st, acc, inner in zip(f.carries, states, accs, todo.inner, strict=True):
            for n, target in enumerate(acc):
                if inner[n]:
                    _accumulate(e, c, st, target, n, weights, set(tiles), reader, here)


def _accumulate(
    e: Engine, c: Carry, st: State, target: Fragment, n: int, weights: dict[str, str], staged: set[str], reader: Scope, here: Scope
) -> None:
    zero = literal(target.dtype, 0)
    element = dict.fromkeys(here, 0)

    def operand(name: str) -> Fragment:
        v = e.known[name]
        frag = e.value(name, reader)
        known_zero = v.name in staged or isinstance(v.stmt, Load)
        return (frag if known_zero else e.masked(frag, here, zero)).slice(element)

    if isinstance(st, Twisted):
        e.b.assign(target, "fma", operand(weights[c.results[0]]), operand(c.args[n]), target)
    elif c.name == "sum" and is_product(c.args[0], e.known):
        left, right = e.known[c.args[0]].args
        e.b.assign(target, "fma", operand(left), operand(right), target)
    else:
        frag = e.masked(e.value(c.args[0], reader), here, st.mask()).slice(element)
        e.b.assign(target, monoids()[c.name].combine, target, frag)


def _over_threads(e: Engine, st: State, acc: Parts, inner: tuple[bool, ...], maps: Scope) -> Parts:
    """Tile parts are partial over the fold's threads; the key is not, so sums under it simply add."""
    if not isinstance(st, Twisted):
        return acc if inner[0] else reduce.across(e.b, st, acc, maps)
    out = list(acc)
    for n, p in enumerate(acc):
        if n > 0 and not inner[n]:
            (out[n],) = reduce.across(e.b, Reduction(monoids()["sum"], (p.dtype,)), (p,), maps)
    return tuple(out)
