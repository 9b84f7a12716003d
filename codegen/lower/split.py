"""A fold split over blocks: partial states go to scratch memory, and the last block to arrive joins them in fixed order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq.codegen import kernel_ir as k
from emmy_eq.codegen.lower import reduce
from emmy_eq.codegen.lower.builder import literal
from emmy_eq.codegen.lower.layout import TID, AxisMap, Fragment, Scope, bits
from emmy_eq.codegen.lower.states import Parts, State
from emmy_eq.index import Idx, var

if TYPE_CHECKING:
    from emmy_eq.codegen.lower.engine import Engine

FULL_UNROLL = 16  # partial states that are read at once
FIRST_THREAD: k.Predicate = (k.Cmp(TID, "==", ix.const(0)),)


def join(e: Engine, states: list[State], totals: list[Parts], maps: Scope) -> list[Parts]:
    """Every block's ``totals`` as one; only one block of each output tile goes on from here."""
    b = e.b
    tile, rank = b.simplify(e.digits.number % e.digits.tiles), b.simplify(e.digits.number // e.digits.tiles)
    maps = _private(e, totals, maps)
    folded = bits(maps, tuple(maps))
    mine, slots = reduce.without(b, folded)
    leader = tuple(c for m in maps.values() if m.threads > 1 for c in (k.Cmp(b.simplify(m.thread()), "==", ix.const(0)),))
    places = []
    for parts in totals:
        for p in parts:
            place = Place(_scratch(e, p, slots), (tile * len(p.atoms)) * (e.digits.split * slots), slots * e.digits.split, slots, mine)
            places.append(place)
            for n, atom in enumerate(p.atoms):
                b.emit(k.Store((atom,), p.dtype, "global", place.buffer, b.simplify(place.at(n, rank)), leader))
    _leave_to_last(e, tile)
    walker = max(maps.values(), key=lambda m: m.threads)
    found = iter(places)
    return [_collect(e, st, parts, [next(found) for _ in parts], walker, maps) for st, parts in zip(states, totals, strict=True)]


def _private(e: Engine, totals: list[Parts], maps: Scope) -> Scope:
    """``maps`` without threads, where the results vary over the same threads (attention): each thread joins its own."""
    over = tuple({a for parts in totals for p in parts for a in p.axes})
    if bits(maps, tuple(maps)) & bits(e.home, over):
        return {a: replace(m, threads=1, stride=1) for a, m in maps.items()}
    return maps


class Place:
    """Where one component's partial states lie in scratch: by register, then block, then thread."""

    def __init__(self, buffer: str, start: Idx, register: int, block: int, mine: Idx) -> None:
        self.buffer, self.start, self.register, self.block, self.mine = buffer, start, register, block, mine

    def at(self, n: int, rank: Idx) -> Idx:
        return self.start + n * self.register + rank * self.block + self.mine


def _scratch(e: Engine, p: Fragment, slots: int) -> str:
    name = e.b.fresh("partial")
    e.b.scratch.append(k.Param(name, p.dtype, e.digits.tiles * e.digits.split * slots * len(p.atoms), "scratch"))
    return name


def _leave_to_last(e: Engine, tile: Idx) -> None:
    """All blocks of a tile but the last to arrive return; the counter is zero again for the next launch."""
    b = e.b
    counter, flag = b.fresh("arrived"), b.array("i32", 1, "last")
    b.scratch.append(k.Param(counter, "i32", e.digits.tiles, "zeroed"))
    old, seen = b.fresh("v"), b.fresh("v")
    b.emit(k.Fence())
    b.emit(k.Barrier())
    b.emit(k.Atomic(old, "global", counter, tile, literal("i32", 1), FIRST_THREAD))
    b.emit(k.Store((old,), "i32", "shared", flag, ix.const(0), FIRST_THREAD))
    b.emit(k.Load((seen,), "i32", "shared", flag, ix.const(0)))
    others = b.let("ne", "bool", seen, literal("i32", e.digits.split - 1))
    b.emit(k.If((k.Test(others),), (k.Return(),)))
    b.emit(k.Store((literal("i32", 0),), "i32", "global", counter, tile, FIRST_THREAD))
    b.emit(k.Fence())
    e.joined = True


def _collect(e: Engine, st: State, parts: Parts, places: list[Place], walker: AxisMap, maps: Scope) -> Parts:
    """The partial states of all blocks, dealt to the fold's threads and merged across them."""
    b, blocks = e.b, e.digits.split
    steps = -(-blocks // walker.threads)

    def read(rank: Idx) -> Parts:
        where = (k.Cmp(rank, "<", ix.const(blocks)),) if b.bounds(rank)[1] >= blocks else ()
        out = []
        for p, place, none in zip(parts, places, st.identity(), strict=True):
            names = []
            for n in range(len(p.atoms)):
                names.append(b.fresh("v"))
                b.emit(k.Load((names[-1],), p.dtype, "global", place.buffer, b.simplify(place.at(n, rank)), where, none, "cg"))
            out.append(Fragment(p.axes, p.counts, tuple(names), p.dtype))
        return tuple(out)

    if steps == 1:
        total = read(b.simplify(walker.thread()))
    else:
        total = tuple(b.declare(none, p.dtype, p.shape()) for p, none in zip(parts, st.identity(), strict=True))
        name = b.fresh("part")
        with b.loop(name, steps, 0 if steps <= FULL_UNROLL else FULL_UNROLL // 2):
            merged = st.merge(b, total, read(b.simplify(var(name) * walker.threads + walker.thread())))
            for target, p in zip(total, merged, strict=True):
                b.assign(target, "mov", p)
    return reduce.across(b, st, total, {walker.axis: walker})
