"""Placing a kernel's terms in a loop nest.

The nest is an outer loop over the parallel axes that no fold binds, folds, and an inner loop over those that folds bind as
well (the row of a softmax), or a scan along one of them.  Every value stands in the outermost block that binds its free
axes.  Folds of one block over the same axes that do not need each other's results become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from emmy_eq import index as ix
from emmy_eq import terms as tm
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx
from emmy_eq.terms import Axis, AxisTable, Val

FOLDS = frozenset({"reduce", "argreduce", "twist"})


class Unrealisable(Unsupported):
    """No single loop nest computes the kernel; storing the values ``cuts`` makes it possible."""

    def __init__(self, why: str, cuts: tuple[Val, ...] = ()) -> None:
        super().__init__("kernel", why)
        self.cuts = cuts


@dataclass(frozen=True, slots=True)
class Output:
    """``val`` is stored to ``buffer`` over ``axes`` in memory order (row-major)."""

    buffer: str
    val: Val
    axes: tuple[Axis, ...]

    @property
    def mask(self) -> int:
        return _mask(self.axes)


@dataclass(slots=True, eq=False)
class Cell:
    """A value in its block; ``index``: a load's coordinates or an iota's expression, over loop variables."""

    val: Val
    block: Block
    args: tuple[Cell, ...] = ()
    index: tuple[Idx, ...] = ()
    fold: Group | None = None


@dataclass(slots=True, eq=False)
class Group:
    """Folds over the same axes in one block; a scan's observer is a block of its own."""

    block: Block
    body: Block
    members: list[Cell] = field(default_factory=list)
    observer: Block | None = None


@dataclass(slots=True, eq=False)
class Sink:
    """A store, in ``block``."""

    output: Output
    value: Cell


@dataclass(slots=True, eq=False)
class Block:
    """The body of a loop or fold over ``axes``.  ``variables`` and ``binder``: by axis id, of all axes bound here or outside."""

    axes: tuple[Axis, ...] = ()
    depth: int = 0
    variables: dict[int, str] = field(default_factory=dict)
    binder: dict[int, Block] = field(default_factory=dict)
    cells: dict[Val, Cell] = field(default_factory=dict)
    groups: dict[tuple[int, int], Group] = field(default_factory=dict)
    sinks: list[Sink | Block | Group] = field(default_factory=list)
    levels: dict[Val, int] = field(default_factory=dict)

    def inside(self, axes: Sequence[Axis]) -> Block:
        """A new block in this one that binds ``axes``; one that is bound already gets another variable."""
        block = Block(tuple(axes), self.depth + 1, dict(self.variables), dict(self.binder))
        for a in axes:
            block.variables[a.id] = self.variables[a.id] + "'" if a.id in self.variables else a.name
            block.binder[a.id] = block
        return block

    def home(self, mask: int, least: Block) -> Block:
        """The outermost block, from ``least`` inwards, that binds those axes of ``mask`` that are bound here."""
        found = least
        while mask:
            low = mask & -mask
            mask ^= low
            block = self.binder.get(low.bit_length() - 1)
            if block is not None and block.depth > found.depth:
                found = block
        return found


def _mask(axes: Sequence[Axis]) -> int:
    return reduce(or_, (a.bit for a in axes), 0)


def place(outputs: Sequence[Output], axes: AxisTable, operands: Callable[[Val], Sequence[Val]]) -> Block:
    """The nest of a kernel, as its outermost block; ``operands`` gives a value's arguments in the order to use.

    Raises `Unrealisable` where a scan is not read along its own axis, or outputs do not fit one nest.
    """
    return _Placer(outputs, axes, operands).root


class _Placer:
    def __init__(self, outputs: Sequence[Output], axes: AxisTable, operands: Callable[[Val], Sequence[Val]]) -> None:
        self.table, self.operands = axes, operands
        self.seen: dict[tuple[int, Val], Cell] = {}
        self.scan_group: Group | None = None
        values = list(tm.topological([o.val for o in outputs]))
        self.scanned = _scanned(values)
        parallel = reduce(or_, (o.mask for o in outputs), 0)
        scan_axis = _scan_axis(values, self.scanned, parallel)
        bound = (v.attr[1] for v in values if v.op in FOLDS and v not in self.scanned and not v.free & ~parallel)
        inner = parallel & (reduce(or_, bound, 0) | ~reduce(lambda a, b: a & b, (o.mask for o in outputs)))
        order = max((o.axes for o in outputs), key=len)
        self.root = self.base = self.last = Block()
        self.open([a for a in order if not a.bit & (inner | scan_axis)])
        self.base = self.last
        self.open([a for a in order if a.bit & inner & ~scan_axis])
        if scan_axis:
            body = self.last.inside(axes.of(scan_axis))
            self.scan_group = Group(self.last, body, observer=body.inside(()))
            self.last.sinks.append(self.scan_group)
        for output in outputs:
            self.store(output)

    def open(self, axes: Sequence[Axis]) -> None:
        if axes:
            block = self.last.inside(axes)
            self.last.sinks.append(block)
            self.last = block

    def store(self, output: Output) -> None:
        group = self.scan_group
        if group is not None and output.mask & _mask(group.body.axes):
            assert group.observer is not None
            block = group.observer
        else:
            block = self.last.home(output.mask, self.root)
        if sum(1 << i for i in block.binder) != output.mask:
            raise Unrealisable(f"{output.buffer} would be stored many times over")
        block.sinks.append(Sink(output, self.need(output.val, block)))

    def need(self, v: Val, block: Block) -> Cell:
        """The cell of ``v`` as seen from ``block``."""
        key = id(block)
        for u in _postorder(v, lambda u: () if (key, u) in self.seen or u.op in FOLDS or u.op == "scan" else self.operands(u)):
            if (key, u) not in self.seen:
                self.seen[key, u] = self.cell(u, block)
        return self.seen[key, v]

    def cell(self, v: Val, block: Block) -> Cell:
        """``v``, whose operands are placed, in its block."""
        if v.op == "scan":
            return self.scan(v)
        if v.op in FOLDS:
            return self.fold(v, block)
        args = tuple(self.seen[id(block), a] for a in self.operands(v))
        idxs = v.attr[1] if v.op == "load" else (v.attr,) if v.op == "iota" else ()
        home = block.home(reduce(or_, map(self.table.mask, idxs), 0), self.base)
        home = max((home, *(a.block for a in args)), key=lambda b: b.depth)
        if v not in home.cells:
            home.cells[v] = Cell(v, home, args, tuple(self.over_variables(x, home) for x in idxs))
        return home.cells[v]

    def over_variables(self, x: Idx, block: Block) -> Idx:
        """``x`` over loop variables.  An axis that nothing binds is one that the value does not really depend on: 0 will do."""
        names = ix.variables(x) & self.table.by_name.keys()
        to = {n: block.variables.get(self.table.by_name[n].id) for n in names}
        if all(n == name for name, n in to.items()):
            return x
        return ix.substitute(x, {name: ix.const(0) if n is None else ix.var(n) for name, n in to.items()})

    def fold(self, v: Val, block: Block) -> Cell:
        least = self.base
        if v in self.scanned:
            assert self.scan_group is not None
            assert self.scan_group.observer is not None
            least = self.scan_group.observer
        home = block.home(v.free, least)
        if v in home.cells:
            return home.cells[v]
        key = (v.attr[1], _level(v, home, least))
        if key not in home.groups:
            home.groups[key] = Group(home, home.inside(self.table.of(v.attr[1])))
        group = home.groups[key]
        cell = home.cells[v] = Cell(v, home, tuple(self.need(a, group.body) for a in v.args), fold=group)
        group.members.append(cell)
        return cell

    def scan(self, v: Val) -> Cell:
        group = self.scan_group
        assert group is not None
        assert group.observer is not None
        if v not in group.observer.cells:
            cell = group.observer.cells[v] = Cell(v, group.observer, tuple(self.need(a, group.body) for a in v.args), fold=group)
            group.members.append(cell)
        return group.observer.cells[v]


def _postorder(v: Val, below: Callable[[Val], Sequence[Val]]) -> Iterator[Val]:
    """``v`` and what ``below`` leads to, operands first; a value may come twice, so the caller marks what it has seen."""
    stack = [(v, False)]
    while stack:
        u, ready = stack.pop()
        if ready:
            yield u
            continue
        stack.append((u, True))
        stack.extend((a, False) for a in reversed(below(u)))


def _level(v: Val, home: Block, least: Block) -> int:
    """How many folds of ``home`` stand one after another up to ``v``: those at one level are independent."""
    bound = sum(1 << i for i in home.binder)
    for u in _postorder(v, lambda u: () if u in home.levels else u.args):
        if u not in home.levels:
            here = u.op in FOLDS and not u.free & ~bound and home.home(u.free, least) is home
            home.levels[u] = max((home.levels[a] for a in u.args), default=0) + here
    return home.levels[v]


def _scanned(values: Sequence[Val]) -> frozenset[Val]:
    """Those of ``values`` (operands first) that are scans or depend on one."""
    found: set[Val] = set()
    for v in values:
        if v.op == "scan" or any(a in found for a in v.args):
            found.add(v)
    return frozenset(found)


def _scan_axis(values: Sequence[Val], scanned: frozenset[Val], parallel: int) -> int:
    """The axis that the kernel scans along (0: none).  A running value is there only for the step at hand, so it is of use
    only along its own axis, and a second scan cannot wait for it."""
    scans = [v for v in values if v.op == "scan"]
    for v in values:
        if v not in scanned:
            continue
        inside = [a for a in scans if a is not v and _below(v, a)]
        if v.op == "scan" and inside:
            raise Unrealisable("a scan of a scan", tuple(inside))
        if v.op in FOLDS and (across := [a for a in inside if a.free & v.attr[1]]):  # its own axis is free in it too
            raise Unrealisable("a fold across a scan", tuple(across))
    axes = {v.attr[1] for v in scans}
    if not axes <= {bit for bit in axes if bit & parallel}:
        raise Unrealisable("a scan along an axis that is not stored", tuple(v for v in scans if not v.attr[1] & parallel))
    if len(axes) > 1:
        raise Unrealisable("scans along two axes", tuple(v for v in scans if v.attr[1] != scans[-1].attr[1]))
    return reduce(or_, axes, 0)


def _below(v: Val, a: Val) -> bool:
    return any(u is a for u in tm.topological([v]))


def extents(block: Block) -> Mapping[str, int]:
    """Extent by loop variable of what ``block`` binds."""
    return {block.variables[a.id]: a.extent for a in block.axes}
