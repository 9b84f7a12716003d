"""Tensor IR to terms: each computed tensor becomes a stored value whose body loads the stored values that it reads.

Nothing is fused here.  A read under the producer's own axes is *pointwise*, and the fusion rule makes it the producer's
body.  Index maps have no buffer: they are the index expressions of their readers' loads.  Where these are not the
producer's axes (a rotary half, a key read under the key axis, a window, a pad) the load is *renamed*, and for a producer
that is an elementwise cone the fused alternative is stated as an equality: its operation once more, on operands read
under the reader's index, for which the same holds.  The substitution never passes a reduction, so no bound axis is captured.
Arithmetic of positions is never stored (`emmy_eq.positional`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from emmy_eq import index as ix
from emmy_eq import terms as tm
from emmy_eq.axes import Axes, infer
from emmy_eq.errors import Unsupported
from emmy_eq.index import Idx
from emmy_eq.ops import monoids
from emmy_eq.positional import apply, positional
from emmy_eq.tensor_ir import Const, Elementwise, Gather, IndexMap, Input, Iota, Node, Output, Program, Reduce, Scan, arguments
from emmy_eq.terms import Axis, AxisTable, InputBuf, Result, Stored, TermProgram, Val

CONE_LIMIT = 128  # nodes that a fused alternative may compute again
UNBOUNDED = 1 << 62  # extent of a data-dependent coordinate


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor is read: a coordinate a dim, in which ``g0, g1, ...`` name the i64 ``values``."""

    index: tuple[Idx, ...]
    values: tuple[Val, ...] = ()


_Read = Callable[[int, _Place], Val]


def to_terms(program: Program) -> TermProgram:
    """The terms of ``program``, unfused; raises `Unsupported` where its tensors have too many axes."""
    program = private_maps(program)
    return _Lowering(program, infer(program)).run()


def private_maps(program: Program) -> Program:
    """``program`` where every read through an IndexMap has an IndexMap of its own, and so have reductions, scans and outputs of an Input.

    Two readers of one expanded tensor need not share the axis that it is expanded by (V's head dim is not K's), and an
    input's own axes may be refused to a reader, those of a private copy never.
    """
    nodes: list[Node] = []
    origin: list[int] = []  # new node -> old node, for names and sources
    at: dict[int, int] = {}  # old node -> new node

    def add(node: Node, old: int) -> int:
        nodes.append(node)
        origin.append(old)
        return len(nodes) - 1

    def operand(arg: int, copy: bool = False) -> int:
        source = program.nodes[arg]
        if isinstance(source, IndexMap):
            return add(replace(source, arg=operand(source.arg)), arg)
        if copy and isinstance(source, Input | Const | Iota):
            return add(IndexMap(at[arg], tuple(ix.var(f"d{d}") for d in range(len(source.shape))), source.shape, source.dtype), arg)
        return at[arg]

    for n, node in enumerate(program.nodes):
        if isinstance(node, IndexMap):
            continue
        if isinstance(node, Reduce | Scan):
            node = replace(node, arg=operand(node.arg, copy=True))
        elif isinstance(node, Elementwise):
            node = replace(node, args=tuple(operand(a) for a in node.args))
        elif isinstance(node, Gather):
            node = replace(node, arg=operand(node.arg), indices=tuple(operand(a) for a in node.indices))
        at[n] = add(node, n)
    outputs = tuple(Output(operand(o.node, copy=True), o.alias) for o in program.outputs)
    return Program(tuple(nodes), outputs, tuple(program.names[o] for o in origin), tuple(program.sources[o] for o in origin))


class _Lowering:
    def __init__(self, program: Program, axes: Axes) -> None:
        self.program = program
        self.nodes = program.nodes
        self.table = axes.table
        self.dims = axes.dims
        self.extents = axes.table.extents()
        self.simple: dict[Idx, Idx] = {}
        self.stored: dict[int, Stored] = {}
        self.positional = positional(self.nodes)
        self.cones = _cones(program, self.positional)
        self.lowered: dict[tuple[int, _Place], Val] = {}
        self.equal: dict[Val, Val] = {}

    def run(self) -> TermProgram:
        live = _live(self.program)
        seams: dict[Val, tuple[str, Val, tuple[Axis, ...]]] = {}
        for n, node in enumerate(self.nodes):
            if n not in live or self.positional[n] or isinstance(node, Input | Const | Iota | IndexMap):
                continue
            self.stored[n] = Stored(self.body(n), self.mask(self.order(n)))
            load = tm.pointwise(self.stored[n], self.table)
            seams.setdefault(load, (self.program.names[n], load, self.order(n)))
        results = tuple(self.result(o, k) for k, o in enumerate(self.program.outputs))
        inputs = tuple(InputBuf(n.name, n.shape, n.dtype) for n in self.nodes if isinstance(n, Input))
        return TermProgram(self.table, results, tuple(seams.values()), tuple(self.equal.items()), inputs)

    def order(self, n: int) -> tuple[Axis, ...]:
        """The axes of node ``n`` in its memory order."""
        return tuple(a for dim in self.dims[n] for a in dim)

    @staticmethod
    def mask(axes: Sequence[Axis]) -> int:
        return sum(a.bit for a in axes)

    def own(self, n: int) -> _Place:
        """Node ``n`` at its own axes."""
        return _Place(tuple(self.position(dim) for dim in self.dims[n]))

    def position(self, axes: Sequence[Axis]) -> Idx:
        """The coordinate along a dim made of ``axes``."""
        x = ix.const(0)
        for axis in axes:
            x = x * axis.extent + ix.var(axis.name)
        return self.simplify(x)

    def simplify(self, x: Idx) -> Idx:
        if x not in self.simple:
            unknown = {name: UNBOUNDED for name in ix.variables(x) if name not in self.extents}
            self.simple[x] = ix.simplify(x, self.extents | unknown)
        return self.simple[x]

    def result(self, output: Output, k: int) -> Result:
        n = output.node
        val = self.stored[n].val if n in self.stored else self.read(n, self.own(n))
        return Result(val, self.order(n), self.nodes[n].shape, f"out{k}", output.alias)

    def body(self, n: int) -> Val:
        """The value of node ``n`` at its own axes, over loads of what it reads."""
        node = self.nodes[n]
        if isinstance(node, Reduce):
            return self.reduction(n, node)
        if isinstance(node, Scan):
            operand, along = self.read(node.arg, self.own(n)), self.mask(self.dims[n][node.dim])
            if node.op in monoids():
                return tm.scan(node.op, operand, along) if along else operand
            one = tm.number(operand.dtype, 1.0)
            return tm.running(node.op, operand, one, along) if along else one
        return self.compute(n, self.own(n), self.read)

    def reduction(self, n: int, node: Reduce) -> Val:
        over = {d: list(self.dims[node.arg][d]) for d in sorted(node.dims)}
        flat = [a for axes in over.values() for a in axes]
        position = node.op in ("argmax", "argmin")
        ordered = position or monoids()[node.op].serial
        if ordered and flat != sorted(flat, key=lambda a: a.id):  # it goes in id order: reduce over axes made for this read
            over = {d: [self.fresh(a, n) for a in axes] for d, axes in over.items()}
        kept = iter(self.own(n).index)
        index = tuple(self.position(over[d]) if d in over else next(kept) for d in range(len(self.dims[node.arg])))
        operand, mask = self.read(node.arg, _Place(index)), self.mask([a for axes in over.values() for a in axes])
        if not position:
            return tm.reduce(node.op, operand, mask)
        return tm.argreduce(node.op, operand, mask) if mask else tm.number("i64", 0)

    def fresh(self, axis: Axis, n: int) -> Axis:
        try:
            new = self.table.add(axis.extent)
        except OverflowError as error:
            raise Unsupported(self.program.names[n], str(error), self.program.sources[n]) from error
        self.extents[new.name] = new.extent
        return new

    def compute(self, n: int, place: _Place, read: _Read) -> Val:
        """Elementwise node or Gather ``n`` at ``place``, its operands through ``read``."""
        node = self.nodes[n]
        if isinstance(node, Gather):
            values = tuple(tm.cast(read(a, place), "i64") for a in node.indices)
            return read(node.arg, self.composed(node, place, values))
        assert isinstance(node, Elementwise)
        args = [read(a, place) for a in node.args]
        return tm.cast(args[0], node.dtype) if node.op == "cast" else apply(node.op, args, self.table, self.simplify, self.extents)

    def read(self, n: int, place: _Place) -> Val:
        """Node ``n`` at ``place``: a load; where it is renamed and ``n`` is cheap, the fused alternative is noted as equal."""
        return self.source(n, place, self.renamed)

    def renamed(self, n: int, place: _Place) -> Val:
        if self.positional[n]:
            return self.again(n, place)
        load = self.load(self.stored[n], self.coordinates(n, place), place.values)
        if not tm.is_pointwise(load, self.table) and self.cones[n] and load not in self.equal:
            self.equal[load] = self.again(n, place)
        return load

    def again(self, n: int, place: _Place) -> Val:
        """Cheap node ``n`` computed at ``place`` of what it reads."""
        key = (n, place)
        if key not in self.lowered:
            self.lowered[key] = self.compute(n, place, lambda arg, at: self.source(arg, at, self.renamed))
        return self.lowered[key]

    def composed(self, node: IndexMap | Gather, place: _Place, values: tuple[Val, ...] = ()) -> _Place:
        """Where the operand of ``node`` is read when ``node`` is read at ``place``; ``values`` are those of its own ``g0, g1, ...``."""
        to = {f"d{d}": x for d, x in enumerate(place.index)}
        to |= {f"g{k}": ix.var(f"g{k + len(place.values)}") for k in range(len(values))}
        pairs = zip(node.index, self.nodes[node.arg].shape, strict=True)  # a dim of one element has one coordinate, data-dependent or not
        index = tuple(self.simplify(ix.substitute(x, to)) if extent != 1 else ix.const(0) for x, extent in pairs)
        return _Place(index, place.values + values)

    def source(self, n: int, place: _Place, stored: _Read) -> Val:
        """Node ``n`` at ``place``, through index maps; a computed tensor goes to ``stored``."""
        node = self.nodes[n]
        if 0 in node.shape:  # no element is ever read, and an index of none need not be in bounds
            return tm.number(node.dtype, 0)
        while isinstance(node, IndexMap):
            n, place = node.arg, self.composed(node, place)
            node = self.nodes[n]
        if isinstance(node, Const):
            return tm.lit(node.dtype, node.bits)
        if isinstance(node, Iota):
            return tm.cast(_arithmetic(place.index[0], place.values, self.table), node.dtype)
        if isinstance(node, Input):
            return self.load(InputBuf(node.name, node.shape, node.dtype), place.index, place.values)
        return stored(n, place)

    def load(self, buf: InputBuf | Stored, idxs: tuple[Idx, ...], values: tuple[Val, ...]) -> Val:
        """``buf`` at ``idxs``, with those of ``values`` that they name."""
        mask, used = 0, set[str]()
        for x in idxs:
            mask |= self.table.mask(x)
            used |= ix.variables(x)
        kept = [k for k in range(len(values)) if f"g{k}" in used]
        if kept != list(range(len(values))):
            to = {f"g{k}": ix.var(f"g{new}") for new, k in enumerate(kept)}
            idxs = tuple(self.simplify(ix.substitute(x, to)) for x in idxs)
        return tm.load(buf, idxs, mask, tuple(values[k] for k in kept))

    def coordinates(self, n: int, place: _Place) -> tuple[Idx, ...]:
        """``place`` as one coordinate for each axis of node ``n``, ascending id."""
        at: dict[int, Idx] = {}
        for x, axes in zip(place.index, self.dims[n], strict=True):
            for k, axis in enumerate(reversed(axes)):
                last = k == len(axes) - 1
                at[axis.id] = x if last else self.simplify(x % axis.extent)
                x = x if last else self.simplify(x // axis.extent)
        return tuple(at[i] for i in sorted(at))


_ROWS = {"add": "add", "mul": "mul", "floordiv": "floordiv", "mod": "mod", "min": "minimum", "max": "maximum"}


def _arithmetic(x: Idx, indices: Sequence[Val], axes: AxisTable) -> Val:
    """The i64 value of ``x``, where ``g0, g1, ...`` name ``indices``."""
    if not any(name.startswith("g") for name in ix.variables(x)):
        return tm.iota(x, axes.mask(x))
    if x.op == "var":
        return indices[int(x.name[1:])]
    return tm.apply(_ROWS[x.op], *(_arithmetic(a, indices, axes) for a in x.args))


def _live(program: Program) -> set[int]:
    """Nodes that some output needs."""
    live = {o.node for o in program.outputs}
    for n in range(len(program.nodes) - 1, -1, -1):
        if n in live:
            live.update(arguments(program.nodes[n]))
    return live


def _cones(program: Program, positional: Sequence[bool]) -> list[bool]:
    """Which nodes are cheap: an elementwise cone of at most `CONE_LIMIT` nodes down to inputs, reductions and scans.

    What depends on positions alone is computed wherever it is used.
    A Gather is a load at data-dependent coordinates; where its operand's cone is too large, it reads that from memory.
    """
    cones: list[frozenset[int] | None] = []
    for n, node in enumerate(program.nodes):
        if isinstance(node, IndexMap):
            cones.append(cones[node.arg])
            continue
        if positional[n] or not isinstance(node, Elementwise | Gather):
            cones.append(frozenset())
            continue
        below = [cones[a] for a in (node.args if isinstance(node, Elementwise) else node.indices)]
        below += [cones[node.arg] or frozenset()] if isinstance(node, Gather) else []
        cone = frozenset({n}).union(*(c for c in below if c is not None))
        cones.append(None if None in below or len(cone) > CONE_LIMIT else cone)
    return [bool(c) for c in cones]
