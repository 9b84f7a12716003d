"""The statements of a kernel in order, with every access over the loop variables of its nest: Loop IR before it is normalized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from emmy_eq import index as ix
from emmy_eq.extract.nest import Block, Cell, Group, Sink
from emmy_eq.index import Idx
from emmy_eq.terms import Axis, AxisTable, InputBuf

Orders = Mapping[str, tuple[Axis, ...]]  # memory order of every temporary's axes, by buffer name


@dataclass(slots=True, eq=False)
class Nested:
    """A loop (``group`` None) or fold in the draft; ``names`` are its loop variables."""

    names: list[str]
    body: list[Item]
    group: Group | None = None
    observer: list[Item] = field(default_factory=list)


Item = Cell | Sink | Nested


@dataclass(slots=True, eq=False)
class Access:
    """Where a load or store goes: ``shape`` and ``index`` in memory order; ``gathered`` buffers keep their dims."""

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    index: tuple[Idx, ...]


class Draft:
    """Statements in order, with every access over the loop variables of the nest."""

    def __init__(self, axes: AxisTable, orders: Orders) -> None:
        self.axes, self.orders = axes, orders
        self.blocks: dict[int, list[Item]] = {}
        self.done: set[int] = set()
        self.loops: list[Nested] = []
        self.extents: dict[str, int] = {}
        self.accesses: dict[Cell | Sink, Access] = {}
        self.iotas: dict[Cell, Idx] = {}
        self.gathered: set[str] = set()

    def items(self, block: Block) -> list[Item]:
        return self.blocks.setdefault(id(block), [])

    def emit(self, block: Block) -> None:
        for sink in sorted(block.sinks, key=lambda s: not isinstance(s, Sink)):
            if isinstance(sink, Sink):
                self.require(sink.value)
                index = tuple(ix.var(block.variables[a.id]) for a in sink.output.axes)
                shape = tuple(a.extent for a in sink.output.axes)
                self.accesses[sink] = Access(sink.output.buffer, sink.output.val.dtype, shape, index)
                self.items(block).append(sink)
            elif isinstance(sink, Block):
                self.emit(sink)
                self.nest(block, sink)
            else:
                self.arguments(sink)
                assert sink.observer is not None
                self.emit(sink.observer)
                self.nest(block, sink.body, sink)

    def nest(self, outside: Block, body: Block, group: Group | None = None) -> None:
        observer = self.items(group.observer) if group is not None and group.observer is not None else []
        nested = Nested([body.variables[a.id] for a in body.axes], self.items(body), group, observer)
        self.extents |= {body.variables[a.id]: a.extent for a in body.axes}
        self.loops.append(nested)
        self.items(outside).append(nested)

    def arguments(self, group: Group) -> None:
        for member in group.members:
            for arg in member.args:
                self.require(arg)

    def require(self, cell: Cell) -> None:
        """Append ``cell`` to its block, after all that it needs."""
        stack = [(cell, False)]
        while stack:
            c, ready = stack.pop()
            if id(c) in self.done:
                continue
            if c.fold is not None:
                self.require_group(c.fold)
            elif ready:
                self.done.add(id(c))
                self.append(c)
            else:
                stack.append((c, True))
                stack.extend((a, False) for a in reversed(c.args))

    def require_group(self, group: Group) -> None:
        if id(group) in self.done or group.observer is not None:
            return
        self.done.add(id(group))
        self.arguments(group)
        self.nest(group.block, group.body, group)

    def append(self, cell: Cell) -> None:
        if cell.val.op == "load":
            self.accesses[cell] = self.access(cell)
        elif cell.val.op == "iota":
            self.iotas[cell] = cell.index[0]
        self.items(cell.block).append(cell)

    def access(self, cell: Cell) -> Access:
        buf, _ = cell.val.attr
        if cell.args:
            self.gathered.add(buf.name)
        if isinstance(buf, InputBuf):
            return Access(buf.name, buf.dtype, buf.shape, cell.index)
        order = self.orders[buf.name]
        at = {a.id: x for a, x in zip(self.axes.of(buf.mask), cell.index, strict=True)}
        # An output that is read back may be stored over axes that the value does not depend on: any coordinate will do.
        return Access(buf.name, buf.dtype, tuple(a.extent for a in order), tuple(at.get(a.id, ix.const(0)) for a in order))
