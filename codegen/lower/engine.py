"""The lowering engine: values of a Fold tree evaluated on demand in a layout, and remembered by (value, layout).

A value is computed in the layout in which it is asked for, from its arguments in that layout; only a fold's result
has a layout of its own (its *home*, where its loops ran), and is converted through shared memory.  So a row that fits in
registers is loaded once for all its readers, and prologues, epilogues, masks and several outputs need no case of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod

from emmy_eq import index as ix
from emmy_eq.codegen.kernel_ir import Atom, Cmp, Lit
from emmy_eq.codegen.lower import access, clamps, fold, positions, scan, stage, tma_store
from emmy_eq.codegen.lower.access import Memory
from emmy_eq.codegen.lower.builder import Builder, literal
from emmy_eq.codegen.lower.layout import AxisMap, Fragment, Scope, atom_map, bits, coordinates, join, scalar
from emmy_eq.codegen.lower.persistent import Rounds
from emmy_eq.codegen.lower.threads import Digits, digits
from emmy_eq.codegen.lower.tma import Producer
from emmy_eq.codegen.tile_ir import Fold, Stmt, Tile, Value, axes, is_gather, values
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx, var
from emmy_eq.loop_ir import Axis, Let, Load, Store


@dataclass(frozen=True, slots=True)
class Placed:
    """An axis about to be walked: its map at step 0, and how many steps there are."""

    map: AxisMap
    steps: int

    def at(self, step: Idx) -> AxisMap:
        return replace(self.map, base=self.map.base + step * self.map.tile)


class Engine:
    def __init__(self, tile: Tile) -> None:
        self.tile, self.row = tile, tile.schedule
        self.known: dict[str, Value] = values(tile.body)
        self.buffers = {x.name: x for x in (*tile.inputs, *tile.outputs)}
        self.b = Builder(self.row.threads, self.buffers)
        number, turn = self.b.fresh("tile"), self.b.fresh("round")
        self.digits: Digits = digits(tile, var(number) if self.row.persistent else var("bx"))
        self.b.extents["bx"] = self.digits.grid
        self.rounds = (
            Rounds(turn, number, self.digits.count, self.digits.grid, self.row.raster.startswith("late")) if self.row.persistent else None
        )
        self.home: dict[str, AxisMap] = {}
        self.needed: dict[str, frozenset[str]] = {}
        self.holds: frozenset[str] = frozenset()  # conditions that are true of all that is now in hand
        self.doubled: set[str] = set()  # shared arrays of several buffers
        self.matrices: set[str] = set()  # values that ldmatrix reads from shared memory
        self.producer = Producer()
        self.outer = tuple(a.name for a in axes(tile.body).outer)
        self.joined = self.digits.split == 1  # whether one block is left for each output tile

    @property
    def inside(self) -> bool:
        """Whether what is emitted stands in a loop, other than that of a persistent block."""
        return len(self.b.levels) > 1 + (self.rounds is not None)

    def turn(self, step: Idx, steps: int) -> Idx:
        """``step`` of ``steps``, counted on from one tile of a persistent block to the next."""
        return self.b.simplify(var(self.rounds.round) * steps + step) if self.rounds is not None else step

    # -- walking the tree -----------------------------------------------------------------------------------------

    def run(self, body: tuple[Stmt, ...]) -> None:
        """The effects of ``body``: stores, in loops and in scans.  Everything else is computed where it is asked for."""
        for s in body:
            if isinstance(s, Store):
                self.store(s)
            elif isinstance(s, Fold) and s.is_map:
                with ExitStack() as stack:
                    maps = self.open(self.place(s.axes), stack)
                    stack.enter_context(self.bound(maps))
                    self.run(s.body)
            elif isinstance(s, Fold) and s.observer:
                scan.emit(self, s)

    def place(self, over: tuple[Axis, ...]) -> list[Placed]:
        """How the row splits the axes of one loop or fold."""
        out = []
        for a in over:
            split = self.row.split(a.name)
            block, stride = self.digits.block[a.name], self.digits.stride[a.name]
            steps = self.digits.steps[a.name]
            base = block * (steps * split.tile)
            if split.atom:
                made = atom_map(split.atom, a.name, a.extent, base, split.regs, split.threads, stride)
            else:
                made = AxisMap(a.name, a.extent, base, split.regs, split.threads, stride, split.vector)
            out.append(Placed(made, steps))
        return out

    def open(self, placed: list[Placed], stack: ExitStack, stop: Idx | None = None) -> dict[str, AxisMap]:
        """The maps of ``placed`` inside one loop over all their steps (up to ``stop``, if it may end early)."""
        total = prod(p.steps for p in placed)
        if total == 1:
            return {p.map.axis: p.map for p in placed}
        name = self.b.fresh("step")
        stack.enter_context(self.b.loop(name, total, 1, stop))
        return self.maps_at(placed, var(name))

    def maps_at(self, placed: list[Placed], step: Idx) -> dict[str, AxisMap]:
        """The maps at a step of the loop over all axes' steps, the last axis fastest."""
        out, inner = {}, 1
        for n, p in reversed(list(enumerate(placed))):
            own = step // inner if n == 0 else step // inner % p.steps
            out[p.map.axis] = p.at(self.b.simplify(own)) if p.steps != 1 else p.map
            inner *= p.steps
        return {p.map.axis: out[p.map.axis] for p in placed}

    @contextmanager
    def bound(self, maps: Scope) -> Iterator[None]:
        """Axes are bound by ``maps`` within."""
        before, self.home = self.home, {**self.home, **maps}
        try:
            yield
        finally:
            self.home = before

    @contextmanager
    def given(self, conditions: frozenset[str]) -> Iterator[None]:
        """``conditions`` are true within."""
        before, self.holds = self.holds, self.holds | conditions
        try:
            yield
        finally:
            self.holds = before

    # -- values ---------------------------------------------------------------------------------------------------

    def level(self, scope: Scope, name: str) -> int:
        """The innermost loop that ``name`` depends on: a fold's result is made where all of the fold's results are."""
        return self.b.level_of(*(scope[a].base for a in self._needed(name)))

    def _needed(self, name: str) -> frozenset[str]:
        """The axes along which ``name`` varies, or another result of a fold that it is made of."""
        v = self.known[name]
        if name not in self.needed:
            made = [r for c in v.stmt.carries for r in c.results] if isinstance(v.stmt, Fold) else []
            others = [self.known[r].axes for r in made] + [tuple(self._needed(a)) for a in v.args if not made and self.known[a].folds]
            self.needed[name] = frozenset(v.axes).union(*others)
        return self.needed[name]

    def value(self, name: str, scope: Scope) -> Fragment:
        """The registers of value ``name`` in layout ``scope``."""
        v = self.known[name]
        found = self.b.find(key(v, scope))
        if isinstance(found, Fragment):
            return found
        if any(bits(scope, v.axes[:n]) & scope[a].bits for n, a in enumerate(v.axes)):
            raise Unsupported(name, f"two of its axes {', '.join(v.axes)} go over the same threads: they would hold only the diagonal")
        if isinstance(v.stmt, Fold):
            return self._carried(v, v.stmt, scope)
        with self.b.at(self.level(scope, name)):
            frag = self._let(v, v.stmt, scope) if isinstance(v.stmt, Let) else self._load(v, v.stmt, scope)
            self.bind(name, scope, frag)
        return frag

    def bind(self, name: str, scope: Scope, frag: Fragment) -> None:
        """``name`` is ``frag`` in ``scope``, from here to the end of the loop."""
        self.b.remember(key(self.known[name], scope), frag)

    def _carried(self, v: Value, f: Fold, scope: Scope) -> Fragment:
        if any(scope[a] != self.home[a] for a in v.axes):
            return stage.convert(self, v.name, scope)
        with self.b.at(self.level(self.home, v.name)):
            fold.emit(self, f)
            found = self.b.find(key(v, scope))
        assert isinstance(found, Fragment)
        return found

    def _let(self, v: Value, s: Let, scope: Scope) -> Fragment:
        if s.op == "lit":
            return scalar(Lit(s.dtype, s.attr), s.dtype)
        if s.op == "iota":
            return self.indices(s.attr, v.axes, scope, s.dtype)
        if v.name in self.holds:
            return scalar(literal("bool", True), "bool")
        if s.op == "where" and v.args[0] in self.holds:
            return self.value(v.args[1], scope)
        if (found := positions.compare(self, v.name, scope)) is not None:
            return found
        return self.b.apply(s.op, s.dtype, *(self.value(a, scope) for a in v.args))

    def indices(self, idx: Idx, over: tuple[str, ...], scope: Scope, dtype: str) -> Fragment:
        """The value of an index expression over axes."""
        shape = {a: scope[a].count for a in over}
        atoms: list[Atom] = []
        for point in coordinates(shape):
            here = {a: scope[a].coordinate(e) for a, e in point.items()}
            atoms.append(self.b.index(ix.substitute(idx, here), dtype))
        return Fragment(over, tuple(shape.values()), tuple(atoms), dtype)

    def _load(self, v: Value, s: Load, scope: Scope) -> Fragment:
        if stage.transposes(self, s, scope):
            return stage.convert(self, v.name, scope)
        buffer = self.buffers[s.buffer]
        offset = access.flat(s.index, buffer.shape)
        coords = {f"g{n}": self.value(name, scope) for n, name in enumerate(v.args)}
        # Kernels with folds wait for instructions: attention with rotated keys got up to 8 % slower by the choice (H200).
        clamp = None if coords or self.row.reduce else clamps.find(self.b, offset, scope, v.axes, buffer.dtype)
        if clamp is not None:
            frag = access.load(self.b, Memory("global", s.buffer, buffer.dtype), lambda _: clamp.offset, scope, v.axes)
            return clamp.settled(self.b, frag, scope)
        dims = list(zip(s.index, buffer.shape, strict=True))
        limits = {g: min((access.limit(i, g, n) for i, n in dims), default=access.UNKNOWN) for g in coords}

        def address(point: dict[str, int]) -> Idx:
            there = {g: self._coordinate(frag.at(point), limits[g]) for g, frag in coords.items()}
            return ix.substitute(offset, there)

        return access.load(self.b, Memory("global", s.buffer, buffer.dtype), address, scope, v.axes)

    def _coordinate(self, atom: Atom, limit: int) -> Idx:
        if isinstance(atom, Lit):
            return ix.const(atom.bits - (1 << 64) if atom.dtype == "i64" and atom.bits >> 63 else atom.bits)
        self.b.extents[atom] = limit
        return var(atom)

    def store(self, s: Store) -> None:
        exact = self.value(tma_store.exact(self, s.value), self.home)
        buffer = self.buffers[s.buffer]
        offset = access.flat(s.index, buffer.shape)
        over = tuple(sorted({n for i in s.index for n in ix.variables(i) if not is_gather(n)}))
        where = access.owner(self.b, bits(self.home, over))
        if not self.joined:
            where = (*where, Cmp(self.digits.number // self.digits.tiles, "==", ix.const(0)))
        # The blocks along another store's axes hold this value too, and one of them is to write it.
        elsewhere = [self.digits.block[a] for a in self.outer if a not in over]
        where = (*where, *(Cmp(block, "==", ix.const(0)) for block in map(self.b.simplify, elsewhere) if block != ix.const(0)))
        if not where and (to := tma_store.boxes(self, s)) is not None:
            tma_store.store(self, exact, to)
            return
        frag = self.value(s.value, self.home)
        memory = Memory("global", s.buffer, buffer.dtype)
        access.store(self.b, memory, frag, lambda _: offset, self.home, over, where)

    def masked(self, frag: Fragment, maps: Scope, other: Lit) -> Fragment:
        """``frag`` with ``other`` where a fold's axis is overrun: after the prologue, which may have made anything of zeros."""
        shape = join(frag.shape(), {a: m.count for a, m in maps.items()})
        if not any(access.overruns(self.b, m, e) for m in maps.values() for e in range(m.count)):
            return frag
        atoms = []
        for point in coordinates(shape):
            valid = self._valid(maps, point)
            atom = frag.at(point)
            atoms.append(atom if valid is None else self.b.let("where", frag.dtype, valid, atom, other))
        return Fragment(tuple(shape), tuple(shape.values()), tuple(atoms), frag.dtype)

    def _valid(self, maps: Scope, point: dict[str, int]) -> Atom | None:
        """A register that holds where ``point`` lies within every axis of ``maps``; None: it always does."""
        out: Atom | None = None
        for a, m in maps.items():
            if not access.overruns(self.b, m, point[a]):
                continue
            known = ("valid", m, point[a])
            here = self.b.find(known)
            if here is None:
                dtype = "i32" if self.b.bounds(m.coordinate(point[a]))[1] < 2**31 else "i64"
                here = self.b.let("lt", "bool", self.b.index(m.coordinate(point[a]), dtype), Lit(dtype, m.extent))
                self.b.remember(known, here)
            out = here if out is None else self.b.let("and", "bool", out, here)
        return out


def key(v: Value, scope: Scope) -> tuple[object, ...]:
    return (v.name, *(scope[a] for a in v.axes))
