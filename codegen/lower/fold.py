"""Folds: accumulate over steps and registers, then over threads and blocks."""

from __future__ import annotations

from contextlib import ExitStack
from math import isqrt, prod
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen.lower import contract, reduce, scales, split
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import Fragment, Scope, bits, coordinates, scalar
from emmy_eq.codegen.lower.states import Adjusted, Parts, Recurrence, Reduction, State, state
from emmy_eq.codegen.tile_ir import Fold, is_product
from emmy_eq.errors import Unsupported
from emmy_eq.index import var
from emmy_eq.loop_ir import Carry, Let, Load
from emmy_eq.ops import FLOATS, HALVES

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine, Placed


LONG = 32  # steps from which chunks pay
MIN_CHUNK = 4


def emit(e: Engine, f: Fold) -> None:
    """Compute every carry of ``f`` in the home layout of its free axes, and remember the results."""
    states = [make_state(e, c) for c in f.carries]
    if over_nothing(e, f, states):
        return
    f, states = scales.unscaled(e, f, states)
    placed = e.place(f.axes)
    if contract.applies(e, f, placed):
        contract.emit(e, f, placed, states)
        return
    free_threads(e, f, placed)
    steps = prod(p.steps for p in placed)
    chunked = any(map(_adds_floats, states)) and not any(isinstance(st, Reduction) and st.monoid.serial for st in states)
    parts = _walk(e, f, placed, states, steps, _chunk(steps) if chunked else steps)
    maps = {p.map.axis: p.map for p in placed}
    finish(e, f, states, [reduce.across(e.b, st, part, maps) for st, part in zip(states, parts, strict=True)], maps)


def over_nothing(e: Engine, f: Fold, states: list[State]) -> bool:
    """Whether ``f`` has no elements; its carries are identities then."""
    if all(a.extent > 0 for a in f.axes):
        return False
    for c, st in zip(f.carries, states, strict=True):
        bind(e, c, tuple(scalar(lit, d) for lit, d in zip(st.identity(), st.dtypes, strict=True)))
    return True


def _walk(e: Engine, f: Fold, placed: list[Placed], states: list[State], steps: int, chunk: int) -> list[Parts]:
    """Every carry over this thread's elements; with several chunks, each has accumulators of its own, and joins the others."""
    if steps == 1:
        maps = {p.map.axis: p.map for p in placed}
        with e.bound(maps):
            return [st.collect(e.b, None, items(e, c, st, maps)) for c, st in zip(f.carries, states, strict=True)]
    totals = [declare(e, c, st) for c, st in zip(f.carries, states, strict=True)]
    with ExitStack() as stack:
        first, accs = ix.const(0), totals
        if chunk < steps:
            outer = e.b.fresh("chunk")
            stack.enter_context(e.b.loop(outer, steps // chunk))
            first, accs = var(outer) * chunk, [declare(e, c, st) for c, st in zip(f.carries, states, strict=True)]
        name = e.b.fresh("step")
        with e.b.loop(name, chunk):
            maps = e.maps_at(placed, first + var(name))
            with e.bound(maps):
                for c, st, acc in zip(f.carries, states, accs, strict=True):
                    _assign(e, acc, st.collect(e.b, acc, items(e, c, st, maps)))
        if chunk < steps:
            for st, total, acc in zip(states, totals, accs, strict=True):
                _assign(e, total, st.merge(e.b, total, acc))
    return totals


def _assign(e: Engine, targets: Parts, parts: Parts) -> None:
    for target, part in zip(targets, parts, strict=True):
        e.b.assign(target, "mov", part)


def _adds_floats(st: State) -> bool:
    return st.dtypes[-1] in FLOATS and not (isinstance(st, Reduction) and st.monoid.combine != "add")


def _chunk(steps: int) -> int:
    """Steps whose sum joins the others as one: two short chains of additions round less than one long chain (a sum of 2^28 numbers).
    A divisor, so that no step needs a mask of its own; all steps, where they are few or have none."""
    divisors = (d for d in range(isqrt(steps), MIN_CHUNK - 1, -1) if steps % d == 0)
    return next(divisors, steps) if steps >= LONG else steps


def finish(e: Engine, f: Fold, states: list[State], totals: list[Parts], maps: Scope) -> None:
    """Bind the results, once the blocks that share the fold have joined theirs."""
    if any(e.row.split(a.name).blocks > 1 for a in f.axes):
        totals = split.join(e, states, totals, maps)
    for c, st, total in zip(f.carries, states, totals, strict=True):
        bind(e, c, st.results(e.b, total))


def make_state(e: Engine, c: Carry) -> State:
    product = c.kind == "monoid" and c.name == "sum" and is_product(c.args[0], e.known)
    rounded = any(e.known[a].dtype in HALVES for a in c.args[1:])
    return state(c, e.known[c.args[0]].dtype, product, rounded)


def declare(e: Engine, c: Carry, st: State) -> Parts:
    """Accumulators at the identity."""
    out = []
    for n, (lit, dtype) in enumerate(zip(st.identity(), st.dtypes, strict=True)):
        name = c.results[max(0, n - len(st.dtypes) + len(c.results))]
        shape = {a: e.home[a].count for a in e.known[name].axes}
        out.append(e.b.declare(lit, dtype, shape))
    return tuple(out)


def bind(e: Engine, c: Carry, parts: Parts) -> None:
    """The carry's results are the last components of its state, spread over all the axes they are known to vary with."""
    for name, part in zip(c.results, parts[len(parts) - len(c.results) :], strict=True):
        e.bind(name, e.home, part)


def items(e: Engine, c: Carry, st: State, maps: Scope) -> list[Parts]:
    """The carry's arguments at each of the thread's elements along the fold's axes."""
    args: list[Fragment]
    if c.kind == "arg":
        args = [e.masked(e.value(c.args[0], e.home), maps, st.mask()), position(e, maps)]
    elif is_factored(st):
        product = e.known[c.args[0]].stmt
        assert isinstance(product, Let)
        args = [factor(e, a, maps) for a in product.args]
    elif isinstance(st, Adjusted):
        one = e.value(c.args[1], e.home)
        if set(one.atoms) != {literal(one.dtype, 1)}:
            raise Unsupported(c.name, "a fold adjusted by a count, of values other than 1")
        args = [e.masked(x, maps, st.mask()) for x in (e.value(c.args[0], e.home), one)]
    elif isinstance(st, Recurrence):
        args = [e.masked(e.value(a, e.home), maps, lit) for a, lit in zip(c.args, st.identity(), strict=True)]
    else:
        args = [e.value(a, e.home) for a in c.args]
        args[0] = e.masked(args[0], maps, st.mask())
    return [tuple(a.slice(point) for a in args) for point in coordinates({a: m.count for a, m in maps.items()})]


def is_factored(st: State) -> bool:
    return bool(getattr(st, "product", False))


def factor(e: Engine, name: str, maps: Scope) -> Fragment:
    """A factor of a summed product; zero beyond the fold's axes (a plain load is zero there already)."""
    v = e.known[name]
    frag = e.value(name, e.home)
    loaded = isinstance(v.stmt, Load) and set(maps) <= set(v.axes)
    return frag if loaded else e.masked(frag, maps, literal(v.dtype, 0))


def position(e: Engine, maps: Scope) -> Fragment:
    """The flattened position within the fold's axes."""
    flat = ix.const(0)
    for a, m in maps.items():
        flat = flat * m.extent + var(a)
    return e.indices(flat, tuple(sorted(maps)), maps, "i64")


def free_threads(e: Engine, f: Fold, placed: list[Placed]) -> None:
    """Refuse a row that gives a fold the threads of the axes that its results vary with."""
    used = bits({p.map.axis: p.map for p in placed}, tuple(p.map.axis for p in placed))
    for c in f.carries:
        for name in c.results:
            if used & bits(e.home, e.known[name].axes):
                names = ", ".join(a.name for a in f.axes)
                why = f"threads of REDUCE axis {names} lie over those of its result's axes, which takes STAGE=1:shared"
                raise Unsupported("schedule", why)
