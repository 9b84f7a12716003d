"""Scans: inclusive running states along an axis, over lanes of a vector, threads, and steps; then the observer's statements."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import fold
from emmy_eq.codegen.lower.builder import Builder, literal
from emmy_eq.codegen.lower.layout import TID, AxisMap, Fragment, coordinates, scalar
from emmy_eq.codegen.lower.reduce import WARP, without
from emmy_eq.codegen.lower.states import Parts, State, tree
from emmy_eq.codegen.tile_ir import Fold
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx
from emmy_eq.loop_ir import Carry

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine


def emit(e: Engine, f: Fold) -> None:
    if len(f.axes) != 1:
        raise Unsupported("scan", "along several axes at once", shape=[a.extent for a in f.axes])
    states = [fold.make_state(e, c) for c in f.carries]
    if fold.over_nothing(e, f, states):
        return
    placed = e.place(f.axes)
    fold.free_threads(e, f, placed)
    if placed[0].map.stride != 1:
        raise Unsupported("schedule", f"the scanned axis {f.axes[0].name} takes its threads as t, not w")
    accs = [fold.declare(e, c, st) for c, st in zip(f.carries, states, strict=True)]
    with ExitStack() as stack:
        maps = e.open(placed, stack)
        stack.enter_context(e.bound(maps))
        (m,) = maps.values()
        for c, st, acc in zip(f.carries, states, accs, strict=True):
            running, total = _running(e.b, st, acc, fold.items(e, c, st, maps), m)
            _bind(e, c, running, m)
            for target, part in zip(acc, total, strict=True):
                e.b.assign(target, "mov", part)
        e.run(f.observer)
    for c, acc in zip(f.carries, accs, strict=True):
        fold.bind(e, c, acc)


def _bind(e: Engine, c: Carry, running: list[Parts], m: AxisMap) -> None:
    """The running values are fragments along the scanned axis."""
    for n, name in enumerate(reversed(c.results), 1):
        first = running[0][-n]
        shape = {a: e.home[a].count for a in e.known[f"{name}~"].axes}
        atoms = tuple(running[point[m.axis]][-n].at(point) for point in coordinates(shape))
        e.bind(f"{name}~", e.home, Fragment(tuple(shape), tuple(shape.values()), atoms, first.dtype))


def _running(b: Builder, st: State, acc: Parts, items: list[Parts], m: AxisMap) -> tuple[list[Parts], Parts]:
    """The state after each of this thread's elements, and after all elements of the step."""
    out: list[Parts] = []
    for r in range(m.regs):
        own: list[Parts] = []
        for item in items[r * m.vector : (r + 1) * m.vector]:
            lifted = st.collect(b, None, [item])
            own.append(st.merge(b, own[-1], lifted) if own else lifted)
        before, total = _over_threads(b, st, own[-1], m)
        start = st.merge(b, acc, before) if before is not None else acc
        out += [st.merge(b, start, p) for p in own]
        acc = st.merge(b, acc, total)
    return out, acc


def _over_threads(b: Builder, st: State, own: Parts, m: AxisMap) -> tuple[Parts | None, Parts]:
    """(state of the threads before this one, state of all threads)."""
    if m.threads == 1:
        return None, own
    lanes = min(m.threads, WARP)
    rank = b.simplify(TID % lanes)
    upto, distance = own, 1
    while distance < lanes:
        lower = tuple(_shuffle(b, p, "up", ix.const(distance)) for p in upto)
        upto = _select(b, _test(b, rank, "ge", distance), st.merge(b, lower, upto), upto)
        distance *= 2
    none = _identity(st)
    before = _select(b, _test(b, rank, "ge", 1), tuple(_shuffle(b, p, "up", ix.const(1)) for p in upto), none)
    if m.threads == lanes:
        last = b.simplify(TID % WARP // lanes * lanes + (lanes - 1))
        return before, tuple(_shuffle(b, p, "idx", last) for p in upto)
    totals = _warp_totals(b, upto, m)
    warp = b.simplify(TID // WARP % (m.threads // WARP))
    base = none
    for w, total in enumerate(totals[:-1]):
        base = _select(b, _test(b, warp, "gt", w), st.merge(b, base, total), base)
    return st.merge(b, base, before), tree(b, st, totals)


def _warp_totals(b: Builder, upto: Parts, m: AxisMap) -> list[Parts]:
    """Every warp's state, through shared memory."""
    warps = m.threads // WARP
    row, rows = without(b, m.bits)
    found: list[list[Fragment]] = [[] for _ in range(warps)]
    for p in upto:
        array = b.array(p.dtype, rows * warps * len(p.atoms))
        for n, atom in enumerate(p.atoms):
            at = b.simplify((row + n * rows) * warps + TID // WARP % warps)
            b.emit(k.Store((atom,), p.dtype, "shared", array, at, (k.Cmp(TID % WARP, "==", ix.const(WARP - 1)),)))
        for w in range(warps):
            names = tuple(b.fresh("v") for _ in p.atoms)
            for n, name in enumerate(names):
                b.emit(k.Load((name,), p.dtype, "shared", array, b.simplify((row + n * rows) * warps + w)))
            found[w].append(Fragment(p.axes, p.counts, names, p.dtype))
    return [tuple(parts) for parts in found]


def _identity(st: State) -> Parts:
    return tuple(scalar(lit, d) for lit, d in zip(st.identity(), st.dtypes, strict=True))


def _test(b: Builder, value: Idx, op: str, than: int) -> Fragment:
    return scalar(b.let(op, "bool", b.index(value), literal("i32", than)), "bool")


def _select(b: Builder, condition: Fragment, yes: Parts, no: Parts) -> Parts:
    return tuple(b.apply("where", p.dtype, condition, p, q) for p, q in zip(yes, no, strict=True))


def _shuffle(b: Builder, frag: Fragment, mode: str, lane: Idx) -> Fragment:
    names = []
    for atom in frag.atoms:
        source = atom if isinstance(atom, str) else b.let("mov", frag.dtype, atom)
        names.append(b.fresh("v"))
        b.emit(k.Shuffle(names[-1], frag.dtype, source, mode, lane))
    return Fragment(frag.axes, frag.counts, tuple(names), frag.dtype)
