"""From a plan's kernels to Loop IR, in its normal form.

Values are numbered in order of appearance, operands of commutative operations stand in canonical order, axes are merged
and buffers reshaped as far as the accesses allow: equivalent spellings of a program give the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from emmy_eq import index as ix
from emmy_eq import loop_ir
from emmy_eq import terms as tm
from emmy_eq.extract import layout
from emmy_eq.extract.canonical import operand_order
from emmy_eq.extract.draft import Access, Draft, Item, Nested, Orders
from emmy_eq.extract.nest import Cell, Group, Output, Sink, place
from emmy_eq.index import Idx
from emmy_eq.loop_ir import Buffer, Carry, Fold, Kernel, Let, Load, Loop, Program, Stmt, Store
from emmy_eq.ops import twists
from emmy_eq.terms import AxisTable, Val

if TYPE_CHECKING:
    from emmy_eq.extract.plan import Plan


def to_loops(plan: Plan) -> Program:
    """The plan's kernels in launch order, with the buffers between them."""
    outputs = tuple((r.name, r.shape, r.val.dtype, r.alias) for r in plan.results)
    kept = {r.name for r in plan.results}
    temps = tuple(
        Buffer(o.buffer, tuple(a.extent for a in o.axes), o.val.dtype) for k in plan.kernels for o in k.outputs if o.buffer not in kept
    )
    inputs = tuple(Buffer(b.name, b.shape, b.dtype) for b in plan.inputs)
    return Program(tuple(k.loops for k in plan.kernels), inputs, temps, outputs)


def build(name: str, outputs: Sequence[Output], axes: AxisTable, orders: Orders) -> Kernel:
    """The kernel that computes ``outputs``; raises `emmy_eq.extract.nest.Unrealisable` where no one nest does."""
    plain = Draft(axes, orders)
    plain.emit(place(outputs, axes, lambda v: v.args))
    draft = Draft(axes, orders)
    root = place(outputs, axes, operand_order(outputs, _Normal(plain, name).access_notes()))
    draft.emit(root)
    return _Normal(draft, name).kernel(draft.items(root))


def sketch(outputs: Sequence[Output], axes: AxisTable, orders: Orders) -> Kernel:
    """As `build`, in a fraction of the time, but not in normal form: for its cost only."""
    draft = Draft(axes, orders)
    root = place(outputs, axes, lambda v: v.args)
    draft.emit(root)
    return _Printer(draft, "sketch").kernel(draft.items(root))


def _is_twisted(v: Val) -> bool:
    return v.op == "twist" or (v.op == "scan" and len(v.args) == 2)


class _Ranges(dict[str, int]):
    """Extents by variable; a gathered coordinate may be anything."""

    def __missing__(self, name: str) -> int:
        return 1 << 62


class _Printer:
    """Numbers what is in a draft and writes it down."""

    def __init__(self, draft: Draft, name: str) -> None:
        self.draft, self.name = draft, name
        self.names: dict[Cell, str] = {}
        self.used: list[str] = []
        self.count = 0

    def index(self, index: Sequence[Idx]) -> tuple[Idx, ...]:
        return tuple(index)

    def axis(self, variable: str) -> loop_ir.Axis:
        return loop_ir.Axis(variable, self.draft.extents[variable])

    def kernel(self, items: Sequence[Item]) -> Kernel:
        body = self.block(items)
        shapes = {a.buffer: Buffer(a.buffer, a.shape, a.dtype) for a in self.draft.accesses.values()}
        stored = {a.buffer for p, a in self.draft.accesses.items() if isinstance(p, Sink)}
        inputs = tuple(shapes[b] for b in self.used if b not in stored)
        return Kernel(self.name, inputs, tuple(shapes[b] for b in self.used if b in stored), body)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def block(self, items: Sequence[Item]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for item in items:
            if isinstance(item, Nested):
                out += self.nested(item)
            elif isinstance(item, Sink):
                access = self.access(item)
                out.append(Store(access.buffer, self.index(access.index), self.names[item.value]))
            else:
                out.append(self.statement(item))
        return tuple(out)

    def access(self, place: Cell | Sink) -> Access:
        access = self.draft.accesses[place]
        if access.buffer not in self.used:
            self.used.append(access.buffer)
        return access

    def nested(self, item: Nested) -> Sequence[Stmt]:
        axes = tuple(map(self.axis, item.names))
        body = self.block(item.body)
        if item.group is None:
            return [Loop(axes, body)] if axes else body
        return [Fold(axes, body, self.carries(item.group), self.block(item.observer))]

    def carries(self, group: Group) -> tuple[Carry, ...]:
        """One a member, except that weighted sums with one key are one carry, which gives the reduction of the key as well."""
        names = {(twists()[m.val.attr[0]].key, m.args[0]): m.val.attr[0] for m in group.members if _is_twisted(m.val)}
        together: dict[object, list[Cell]] = {}
        for m in group.members:
            name = m.val.attr[0] if _is_twisted(m.val) else names.get((m.val.attr[0], m.args[0]))
            shared = name is not None and m.val.op in ("twist", "reduce", "scan")
            together.setdefault((name, m.args[0]) if shared else m, []).append(m)
        return tuple(map(self.carry, together.values()))

    def carry(self, members: Sequence[Cell]) -> Carry:
        sums = [m for m in members if _is_twisted(m.val)]
        first = self.fresh()
        self.names.update({m: first for m in members if not _is_twisted(m.val)})
        if not sums:
            (m,) = members
            kind = "arg" if m.val.op == "argreduce" else "monoid"
            return Carry(kind, m.val.attr[0], (self.names[m.args[0]],), (first,), (m.val.dtype,))
        s = sums[0].args[0]
        self.names.update({m: self.fresh() for m in sums})
        args = (self.names[s], *(self.names[m.args[1]] for m in sums))
        dtypes = (s.val.dtype, *(m.val.dtype for m in sums))
        return Carry("twist", sums[0].val.attr[0], args, (first, *(self.names[m] for m in sums)), dtypes)

    def statement(self, cell: Cell) -> Stmt:
        v = cell.val
        name = self.names[cell] = self.fresh()
        args = tuple(self.names[a] for a in cell.args)
        if v.op == "load":
            access = self.access(cell)
            return Load(name, access.buffer, self.index(access.index), v.dtype, args)
        if v.op == "iota":
            return Let(name, "iota", (), "i64", self.index((self.draft.iotas[cell],))[0])
        return Let(name, v.op, args, v.dtype, v.attr if v.op == "lit" else None)


class _Normal(_Printer):
    """Merges axes and shapes buffers first; loop variables are numbered like values."""

    def __init__(self, draft: Draft, name: str) -> None:
        super().__init__(draft, name)
        self.axis_names: dict[str, str] = {}
        self.normalize()

    def axis(self, variable: str) -> loop_ir.Axis:
        name = self.axis_names.setdefault(variable, f"i{len(self.axis_names)}")
        return loop_ir.Axis(name, self.draft.extents[variable])

    def index(self, index: Sequence[Idx]) -> tuple[Idx, ...]:
        to = {old: ix.var(new) for old, new in self.axis_names.items()}
        ranges = _Ranges({new: self.draft.extents[old] for old, new in self.axis_names.items()})
        return tuple(x if x.op == "const" else ix.simplify(ix.substitute(x, to), ranges) for x in index)

    def normalize(self) -> None:
        draft, extents = self.draft, self.draft.extents
        empty = 0 in extents.values() or any(0 in a.shape for a in draft.accesses.values())
        kept = {a.buffer for a in draft.accesses.values() if empty or a.buffer in draft.gathered}  # buffers that keep their dims
        for loop in draft.loops:
            wide = [n for n in loop.names if extents[n] != 1]
            loop.names = wide if wide or loop.group is None else loop.names[:1]
        indices: list[Idx] = []
        at: dict[Cell | Sink, slice] = {}
        for where, access in draft.accesses.items():
            expressions = access.index if access.buffer in kept else (layout.flatten(access.index, access.shape),)
            at[where] = slice(len(indices), len(indices) + len(expressions))
            indices += expressions
        start = len(indices)
        indices = [ix.simplify(x, _Ranges(extents)) for x in (*indices, *draft.iotas.values())]
        self.order_folds(indices)
        if not empty:
            layout.merge_axes([loop.names for loop in draft.loops], extents, indices)
        draft.iotas.update(zip(draft.iotas, indices[start:], strict=True))
        self.shape_buffers(kept, at, indices)

    def access_notes(self) -> dict[Val, str]:
        """Where loads read and what iotas count, with variables called after their place and extent."""
        called: dict[str, str] = {}
        for loop in self.draft.loops:
            for n, name in enumerate(loop.names):
                role = f"dim{n}" if loop.group is None else "fold"
                if loop.group is None or name not in called:
                    called[name] = f"{role}_{self.draft.extents[name]}"
        to = {name: ix.var(new) for name, new in called.items()}
        notes: dict[Val, str] = {}
        for where, access in self.draft.accesses.items():
            if isinstance(where, Cell):
                notes.setdefault(where.val, f"{access.shape}{[str(ix.substitute(x, to)) for x in access.index]}")
        for cell, idx in self.draft.iotas.items():
            notes.setdefault(cell.val, str(ix.substitute(idx, to)))
        return notes

    def order_folds(self, indices: Sequence[Idx]) -> None:
        """Fold axes from the largest stride to the smallest, unless their order is part of the result."""
        strides: dict[str, int] = {}
        for x in indices:
            for factor, c in ix.terms(x):
                if factor.op == "var":
                    strides[factor.name] = max(strides.get(factor.name, 0), abs(c))
        for loop in self.draft.loops:
            if loop.group is not None and not any(tm.is_ordered(m.val) for m in loop.group.members):
                loop.names.sort(key=lambda n: -strides.get(n, 0))

    def shape_buffers(self, kept: set[str], at: Mapping[Cell | Sink, slice], indices: Sequence[Idx]) -> None:
        buffers: dict[str, list[Cell | Sink]] = {}
        for where, access in self.draft.accesses.items():
            buffers.setdefault(access.buffer, []).append(where)
        for name, places in buffers.items():
            accesses = [self.draft.accesses[p] for p in places]
            if name in kept:
                for access, p in zip(accesses, places, strict=True):
                    access.index = tuple(indices[at[p]])
                continue
            shape, coordinates = layout.dims(accesses[0].shape, [indices[at[p].start] for p in places], self.draft.extents)
            for access, index in zip(accesses, coordinates, strict=True):
                access.shape, access.index = shape, index
