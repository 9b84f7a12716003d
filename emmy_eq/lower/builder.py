"""Builds Tensor IR: hash-consed nodes, composed index maps, broadcast, and the views every row needs.

Equal nodes are one node; an IndexMap of an IndexMap is one IndexMap; an identity IndexMap is its argument.  All shapes
and dtypes are known, so every mistake of a row is found here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emmy_eq import index as ix
from emmy_eq.errors import InvalidInput
from emmy_eq.index import Idx
from emmy_eq.ops import FLOATS, ops
from emmy_eq.tensor_ir import Const, Elementwise, Gather, IndexMap, Input, Iota, Node, Reduce, Scan, Shape, total
from emmy_eq.terms import to_bits

Scalar = float | int | bool
HALVES = frozenset({"f16", "bf16"})


@dataclass(frozen=True, slots=True)
class Value:
    """A node of the program being built, as rows see it."""

    node: int
    shape: Shape
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)


def dims(rank: int) -> list[Idx]:
    """The output dims ``d0, d1, ...`` as index expressions."""
    return [ix.var(f"d{k}") for k in range(rank)]


def extents(shape: Shape) -> dict[str, int]:
    """Extents of ``d0, d1, ...``; an empty tensor's are taken as 1, since no position of it is ever read."""
    return {f"d{k}": max(n, 1) for k, n in enumerate(shape)}


def wrap_dim(op: str, dim: int, rank: int) -> int:
    """``dim`` counted from the front; a 0-dim tensor has the one dim 0 (as in torch)."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise InvalidInput(op, f"dim {dim} is out of range for a tensor of {rank} dims")
    return dim % max(rank, 1)


def wrap_dims(op: str, dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted, distinct dims; None and () mean all of them."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    listed = [wrap_dim(op, d, rank) for d in ([dims] if isinstance(dims, int) else dims)]
    if len(set(listed)) != len(listed):
        raise InvalidInput(op, f"dim {listed} names a dim twice")
    return tuple(sorted(listed)) if rank else ()


def broadcast_shapes(op: str, shapes: Sequence[Shape]) -> Shape:
    """The common shape, right-aligned; raises `InvalidInput` where two extents differ and neither is 1."""
    rank = max((len(s) for s in shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for k, extent in enumerate(shape, rank - len(shape)):
            if extent != 1 and out[k] not in (1, extent):
                raise InvalidInput(op, f"shapes {', '.join(map(str, shapes))} do not broadcast")
            out[k] = extent if extent != 1 else out[k]
    return tuple(out)


class Builder:
    """The program under construction; ``op`` and ``source`` tell which torch operation is being lowered, and where it
    stands; ``prefix`` starts the names of its nodes."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.names: list[str] = []
        self.sources: list[str] = []
        self.op = ""
        self.prefix = ""
        self.source = ""
        self._known: dict[Node, int] = {}
        self._stated: set[int] = set()  # narrowings that the program itself asks for

    def node(self, value: Value) -> Node:
        return self.nodes[value.node]

    def _add(self, node: Node, kind: str) -> Value:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = len(self.nodes)
            self.nodes.append(node)
            self.names.append(f"{self.prefix}_{kind}" if self.prefix else kind)
            self.sources.append(self.source)
        return Value(found, node.shape, node.dtype)

    # leaves

    def input(self, name: str, shape: Shape, dtype: str, constant: bool = False) -> Value:
        value = self._add(Input(name, shape, dtype, constant), name)
        self.names[value.node] = name
        return value

    def const(self, value: Scalar, dtype: str) -> Value:
        return self._add(Const(dtype, to_bits(dtype, value)), "const")

    def iota(self, extent: int) -> Value:
        """0, 1, ... as i64, shape (extent,)."""
        return self._add(Iota((extent,), "i64"), "iota")

    # scalar operations

    def apply(self, op: str, *args: Value | Scalar) -> Value:
        """A row of the op table on values of one dtype, broadcast; Python scalars take the values' dtype."""
        dtype = next(a.dtype for a in reversed(args) if isinstance(a, Value))
        values = [a if isinstance(a, Value) else self.const(a, dtype) for a in args]
        row = ops()[op]
        assert len(values) == row.arity, (op, len(values))
        assert all(v.dtype == dtype for v in values[1 if op == "where" else 0 :]), (op, [v.dtype for v in values])
        shape = broadcast_shapes(self.op or op, [v.shape for v in values])
        spread = tuple(self._operand(v, shape) for v in values)
        return self._add(Elementwise(op, spread, shape, row.gives(dtype)), op)

    def _operand(self, value: Value, shape: Shape) -> int:
        scalar = self.scalar(value)
        return scalar.node if scalar is not None else self.expand(value, shape).node

    def scalar(self, value: Value) -> Value | None:
        """The Const that fills ``value``, if that is what it is."""
        node = self.node(value)
        if isinstance(node, IndexMap) and isinstance(self.nodes[node.arg], Const):
            return Value(node.arg, (), value.dtype)
        return value if isinstance(node, Const) else None

    def cast(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        node = self.node(value)
        if isinstance(node, Elementwise) and node.op == "cast" and _widens(self.nodes[node.args[0]].dtype, value.dtype, dtype):
            return self.cast(Value(node.args[0], value.shape, self.nodes[node.args[0]].dtype), dtype)
        return self._add(Elementwise("cast", (value.node,), value.shape, dtype), "cast")

    def convert(self, value: Value, dtype: str) -> Value:
        """A conversion that the program states.  Narrowed to 16 bits and widened again by such, a value is what the 16 bits
        hold; the casts around operations are the compiler's own, and rules may drop them."""
        source = self._narrowed(value) if dtype in FLOATS - HALVES else None
        if source is not None:
            return self.cast(source, dtype)
        out = self.cast(value, dtype)
        if dtype in HALVES and value.dtype in FLOATS:
            self._stated.add(out.node)
        return out

    def _narrowed(self, value: Value) -> Value | None:
        """``value`` rounded to its own 16 bits, yet wide, where it is a stated narrowing or a view of one."""
        view = self.node(value)
        narrow = view.arg if isinstance(view, IndexMap) else value.node
        node = self.nodes[narrow]
        if narrow not in self._stated or not isinstance(node, Elementwise):
            return None
        source = Value(node.args[0], node.shape, self.nodes[node.args[0]].dtype)
        out = self.apply(f"round_{value.dtype}", self.convert(source, "f32") if source.dtype in HALVES else source)
        return self.remap(out, view.index, view.shape) if isinstance(view, IndexMap) else out

    def where(self, condition: Value, a: Value | Scalar, b: Value | Scalar) -> Value:
        return self.apply("where", condition, a, b)

    # reductions

    def reduce(self, op: str, value: Value, over: Sequence[int], keepdim: bool = False) -> Value:
        """``op`` over ``over`` (distinct, non-negative); no dims: the value itself."""
        over = tuple(sorted(over))
        if not over:
            if op in ("argmax", "argmin"):
                return self.expand(self.const(0, "i64"), value.shape)
            return value
        kept = tuple(n for d, n in enumerate(value.shape) if d not in over)
        dtype = "i64" if op in ("argmax", "argmin") else value.dtype
        out = self._add(Reduce(op, value.node, over, kept, dtype), op)
        return self.unsqueeze(out, over) if keepdim else out

    def scan(self, op: str, value: Value, dim: int) -> Value:
        return self._add(Scan(op, value.node, dim, value.shape, value.dtype), f"cum{op}")

    # reads under other indices

    def remap(self, value: Value, index: Sequence[Idx], shape: Shape) -> Value:
        """``out[d0, d1, ...] = value[index]``."""
        assert len(index) == value.rank, (len(index), value.shape)
        bound = extents(shape)
        node = self.node(value)
        if isinstance(node, IndexMap):
            inner = {f"d{k}": i for k, i in enumerate(index)}
            index = [ix.substitute(i, inner) for i in node.index]
            value = Value(node.arg, self.nodes[node.arg].shape, value.dtype)
        simple = tuple(ix.simplify(i, bound) for i in index)
        if value.shape == shape and all(i == d or n == 1 for i, d, n in zip(simple, dims(len(shape)), shape, strict=True)):
            return value
        node = self.node(value)
        if isinstance(node, Elementwise) and node.op == "cast" and self._is_input(node.args[0]):
            # An input constrains no axis, so each reader converts what it reads.
            read = Value(node.args[0], value.shape, self.nodes[node.args[0]].dtype)
            out = self.cast(self.remap(read, simple, shape), value.dtype)
            self._stated |= {out.node} if value.node in self._stated else set()
            return out
        return self._add(IndexMap(value.node, simple, shape, value.dtype), "view")

    def _is_input(self, n: int) -> bool:
        node = self.nodes[n]
        return isinstance(node, Input) or (isinstance(node, IndexMap) and isinstance(self.nodes[node.arg], Input))

    def gather(self, value: Value, index: Sequence[Idx], indices: Sequence[Value], shape: Shape) -> Value:
        """As `remap`, where ``g0, g1, ...`` in ``index`` are the (in-range) values of ``indices`` at the position."""
        spread = [self.expand(v, shape) for v in indices]
        bound = extents(shape)
        simple = tuple(i if any(n.startswith("g") for n in ix.variables(i)) else ix.simplify(i, bound) for i in index)
        return self._add(Gather(value.node, simple, tuple(v.node for v in spread), shape, value.dtype), "gather")

    def expand(self, value: Value, shape: Shape) -> Value:
        """Broadcast to ``shape``, right-aligned."""
        if value.shape == shape:
            return value
        lead = len(shape) - value.rank
        if lead < 0 or any(n not in (1, m) for n, m in zip(value.shape, shape[lead:], strict=True)):
            raise InvalidInput(self.op or "expand", f"shape {value.shape} does not broadcast to {shape}")
        out = dims(len(shape))[lead:]
        return self.remap(value, [ix.const(0) if n == 1 else d for n, d in zip(value.shape, out, strict=True)], shape)

    def reshape(self, value: Value, shape: Shape) -> Value:
        """Row-major reshape; index expressions come in mixed-radix form over the fewest dims."""
        if total(shape) != total(value.shape):
            raise InvalidInput(self.op or "reshape", f"shape {shape} has another number of elements than {value.shape}")
        if value.shape == shape:
            return value
        index: list[Idx] = [ix.const(0)] * value.rank
        if total(shape):
            for old, new in _groups(value.shape, shape):
                linear: Idx = ix.const(0)
                for k in new:
                    linear = linear * shape[k] + ix.var(f"d{k}")
                for k in reversed(old):
                    index[k] = linear % value.shape[k] if k != old[0] else linear
                    linear = linear // value.shape[k]
        return self.remap(value, index, shape)

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        """Output dim k is ``value``'s dim ``order[k]``."""
        index: list[Idx] = [ix.const(0)] * value.rank
        for k, source in enumerate(order):
            index[source] = ix.var(f"d{k}")
        return self.remap(value, index, tuple(value.shape[k] for k in order))

    def unsqueeze(self, value: Value, at: Sequence[int]) -> Value:
        """New dims of extent 1 at the output positions ``at``."""
        rank = value.rank + len(at)
        shape = list(value.shape)
        for k in sorted(at):
            shape.insert(k, 1)
        return self.remap(value, [d for k, d in enumerate(dims(rank)) if k not in at], tuple(shape))

    def squeeze(self, value: Value, at: Sequence[int]) -> Value:
        """Without the dims ``at``, each of extent 1."""
        kept = [k for k in range(value.rank) if k not in at]
        index: list[Idx] = [ix.const(0)] * value.rank
        for new, k in enumerate(kept):
            index[k] = ix.var(f"d{new}")
        return self.remap(value, index, tuple(value.shape[k] for k in kept))

    def along(self, value: Value, dim: int, coordinate: Idx, extent: int) -> Value:
        """``value`` with dim ``dim`` (output extent ``extent``) read at ``coordinate``, an expression over ``d<dim>``."""
        index = dims(value.rank)
        index[dim] = coordinate
        return self.remap(value, index, (*value.shape[:dim], extent, *value.shape[dim + 1 :]))

    def position(self, shape: Shape, dim: int) -> Value:
        """The i64 coordinate along ``dim`` at each position of ``shape``."""
        return self.remap(self.iota(shape[dim]), [ix.var(f"d{dim}")], shape)

    def full(self, shape: Shape, value: Scalar, dtype: str) -> Value:
        return self.expand(self.const(value, dtype), shape)


def _widens(source: str, via: str, to: str) -> bool:
    """Whether source -> via -> to rounds as source -> to does: both steps keep every value."""
    return source in ("f16", "bf16") and via == "f32" and to == "f64"


def _groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Runs of dims of ``old`` and of ``new`` with equal products; dims of extent 1 are left out."""
    out: list[tuple[list[int], list[int]]] = []
    olds = [k for k, n in enumerate(old) if n != 1]
    news = [k for k, n in enumerate(new) if n != 1]
    while olds:
        a, b = [olds.pop(0)], [news.pop(0)]
        p, q = old[a[0]], new[b[0]]
        while p != q:
            if p < q:
                a.append(olds.pop(0))
                p *= old[a[-1]]
            else:
                b.append(news.pop(0))
                q *= new[b[-1]]
        out.append((a, b))
    return out
