"""Data-dependent reads and writes.  Negative indices wrap where torch wraps them; a write is a search for its last writer."""

from __future__ import annotations

from collections.abc import Sequence

from emmy_eq import index as ix
from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.index import Idx
from emmy_eq.lower.builder import Builder, Scalar, Value, broadcast_shapes, dims, wrap_dim
from emmy_eq.lower.dtypes import compute_dtype
from emmy_eq.lower.row import Row
from emmy_eq.ops import FLOATS, monoids
from emmy_eq.tensor_ir import total


def wrapped(b: Builder, index: Value, extent: int) -> Value:
    """``index`` as i64 with negative entries counted from the end."""
    wide = b.cast(index, "i64")
    return b.where(b.apply("lt", wide, 0), b.apply("add", wide, extent), wide)


def _integer(b: Builder, index: Value) -> Value:
    if index.dtype not in ("i64", "i32", "i16", "i8"):
        why = "a bool index, whose result's shape depends on data" if index.dtype == "bool" else f"an index of dtype {index.dtype}"
        raise Unsupported(b.op, why, b.source)
    return b.cast(index, "i64")


def embedding(
    b: Builder, weight: Value, indices: Value, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Value:
    """Rows of ``weight``; the further arguments concern gradients only."""
    shape = (*indices.shape, weight.shape[1])
    rows_ = b.remap(_integer(b, indices), dims(indices.rank), shape)
    return b.gather(weight, [ix.var("g0"), ix.var(f"d{indices.rank}")], [rows_], shape)


def index_select(b: Builder, x: Value, dim: int, index: Value) -> Value:
    dim = wrap_dim(b.op, dim, x.rank)
    if not x.rank:
        return x
    index = _integer(b, b.reshape(index, (total(index.shape),)))
    shape = (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :])
    coordinates = dims(x.rank)
    coordinates[dim] = ix.var("g0")
    return b.gather(x, coordinates, [b.remap(index, [ix.var(f"d{dim}")], shape)], shape)


def gather(b: Builder, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    dim = wrap_dim(b.op, dim, x.rank)
    if not x.rank or not index.rank:
        return b.reshape(gather(b, b.reshape(x, (max(total(x.shape), 1),)), 0, b.reshape(index, (1,))), index.shape)
    coordinates = dims(x.rank)
    coordinates[dim] = ix.var("g0")
    return b.gather(x, coordinates, [_integer(b, index)], index.shape)


def take(b: Builder, x: Value, index: Value) -> Value:
    return index_tensor(b, b.reshape(x, (total(x.shape),)), [index])


def _indexed(b: Builder, x: Value, indices: Sequence[Value | None]) -> tuple[list[int], list[Value], tuple[int, ...], int]:
    """(indexed dims, wrapped indices broadcast together, their shape, where their dims stand in the result)."""
    at = [k for k, i in enumerate(indices) if i is not None]
    listed = [wrapped(b, _integer(b, i), x.shape[k]) for k, i in enumerate(indices) if i is not None]
    shape = broadcast_shapes(b.op, [i.shape for i in listed])
    adjacent = at == list(range(at[0], at[0] + len(at)))
    return at, [b.expand(i, shape) for i in listed], shape, at[0] if adjacent else 0


def index_tensor(b: Builder, x: Value, indices: Sequence[Value | None]) -> Value:
    """Advanced indexing: adjacent index dims are replaced in place, others move to the front."""
    at, listed, common, place = _indexed(b, x, indices)
    rest = [k for k in range(x.rank) if k not in at]
    lead = [x.shape[k] for k in rest]
    shape = (*lead[:place], *common, *lead[place:])
    inside = dims(len(shape))[place : place + len(common)]
    outside: list[Idx] = [d for k, d in enumerate(dims(len(shape))) if not place <= k < place + len(common)]
    coordinates: list[Idx] = [ix.const(0)] * x.rank
    for k, d in zip(rest, outside, strict=True):
        coordinates[k] = d
    for n, k in enumerate(at):
        coordinates[k] = ix.var(f"g{n}")
    return b.gather(x, coordinates, [b.remap(i, inside, shape) for i in listed], shape)


def index_put(b: Builder, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    """``x[indices] = values`` for indices of leading dims; of several writes to one element the last one counts."""
    masks = [i for i in indices if i is not None]
    if len(masks) == 1 and masks[0].dtype == "bool" and indices[0] is not None and total(values.shape) == 1 and not accumulate:
        mask = b.reshape(masks[0], (*masks[0].shape, *[1] * (x.rank - masks[0].rank)))
        return b.where(b.expand(mask, x.shape), b.reshape(b.cast(values, x.dtype), ()), x)
    at, listed, common, _ = _indexed(b, x, indices)
    if at != list(range(len(at))):
        raise Unsupported(b.op, "indices of other than the leading dims", b.source)
    rest = x.shape[len(at) :]
    writes = total(common)
    source = b.reshape(b.expand(b.cast(values, x.dtype), (*common, *rest)), (writes, *rest))
    if not writes or not total(x.shape):
        return x
    flat = [b.reshape(i, (writes,)) for i in listed]
    shape = (*x.shape[: len(at)], writes)
    hits: Value | None = None
    for k, i in enumerate(flat):
        hit = b.apply("eq", b.remap(i, [ix.var(f"d{len(at)}")], shape), b.position(shape, k))
        hits = hit if hits is None else b.apply("and", hits, hit)
    assert hits is not None
    return _merge(b, x, source, hits, len(at), accumulate)


def _merge(b: Builder, x: Value, source: Value, hits: Value, lead: int, accumulate: bool) -> Value:
    """``x`` where no write hits; ``hits`` is (*lead dims of x, writes), ``source`` (writes, *rest)."""
    writes = source.shape[0]
    rest = x.rank - lead
    every = dims(x.rank)
    if accumulate:
        wide = compute_dtype(x.dtype)
        full = (*x.shape, writes)
        last = ix.var(f"d{x.rank}")
        read = b.remap(b.cast(source, wide), [last, *every[lead:]], full)
        hit = b.remap(hits, [*every[:lead], last], full)
        added = b.reduce("sum", b.where(hit, read, b.const(0, wide)), [x.rank])
        return b.cast(b.apply("add", b.cast(x, wide), added), x.dtype)
    writer = b.reduce("max", b.where(hits, b.position(hits.shape, lead), -1), [lead])
    safe = b.remap(b.apply("maximum", writer, 0), every[:lead], x.shape)
    taken = b.remap(b.apply("ge", writer, 0), every[:lead], x.shape)
    found = b.gather(source, [ix.var("g0"), *every[lead : lead + rest]], [safe], x.shape)
    return b.where(taken, found, x)


def _scattered(b: Builder, x: Value, dim: int, index: Value, source: Value) -> tuple[Value, list[Idx]]:
    """(which writes hit which element: x's dims and, last, the writes along ``dim``; where a write reads its source)."""
    if any(n > m for n, m in zip(index.shape, source.shape, strict=True)):
        raise InvalidInput(b.op, f"index of shape {index.shape} for a source of shape {source.shape}", b.source)
    full = (*x.shape, index.shape[dim])
    read: list[Idx] = [d if n <= m else d.min(m - 1) for d, n, m in zip(dims(x.rank), x.shape, index.shape, strict=True)]
    read[dim] = ix.var(f"d{x.rank}")
    hits = b.apply("eq", b.remap(b.cast(index, "i64"), read, full), b.position(full, dim))
    for k, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)):
        if k != dim and n > m:  # the index covers the front of x only
            hits = b.apply("and", hits, b.apply("lt", b.position(full, k), m))
    return hits, read


def _as_source(b: Builder, x: Value, index: Value, src: Value | Scalar) -> Value:
    return b.cast(src, x.dtype) if isinstance(src, Value) else b.full(index.shape, src, x.dtype)


def _flat(row: Row) -> Row:
    """Serves 0-dim tensors by way of one element."""

    def flat(b: Builder, x: Value, dim: int, index: Value, src: Value | Scalar, **settings: object) -> Value:
        dim = wrap_dim(b.op, dim, x.rank)
        if x.rank:
            found: Value = row(b, x, dim, index, _as_source(b, x, index, src), **settings) if total(index.shape) else x
            return found
        src = b.reshape(src, (1,)) if isinstance(src, Value) else src
        return b.reshape(flat(b, b.reshape(x, (1,)), 0, b.reshape(index, (1,)), src, **settings), ())

    return flat


def _scatter_last(b: Builder, x: Value, dim: int, index: Value, source: Value) -> Value:
    hits, read = _scattered(b, x, dim, index, source)
    writer = b.reduce("max", b.where(hits, b.position(hits.shape, x.rank), -1), [x.rank])
    coordinates = list(read)
    coordinates[dim] = ix.var("g0")
    found = b.gather(source, coordinates, [b.apply("maximum", writer, 0)], x.shape)
    return b.where(b.apply("ge", writer, 0), found, x)


_MONOIDS = {"sum": "sum", "add": "sum", "mean": "sum", "prod": "prod", "multiply": "prod", "amax": "max", "amin": "min"}


def _scatter_reduced(b: Builder, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool) -> Value:
    monoid = monoids()[_MONOIDS[reduce]]
    wide = compute_dtype(x.dtype)
    hits, read = _scattered(b, x, dim, index, source)
    unit = b.const(monoid.identity(wide), wide)
    found = b.reduce(monoid.name, b.where(hits, b.remap(b.cast(source, wide), read, hits.shape), unit), [x.rank])
    old, any_hit = b.cast(x, wide), b.reduce("any", hits, [x.rank])
    found = b.apply(monoid.combine, found, old if include_self else b.where(any_hit, unit, old))
    if reduce == "mean":
        count = b.reduce("sum", b.cast(hits, "i64"), [x.rank])
        count = b.apply("add", count, 1) if include_self else b.apply("maximum", count, 1)
        found = b.apply("div" if x.dtype in FLOATS else "floordiv", found, b.cast(count, wide))
    return b.cast(b.where(any_hit, found, old), x.dtype)


def scatter(b: Builder, x: Value, dim: int, index: Value, src: Value | Scalar, reduce: str | None = None) -> Value:
    """``x[..., index[i, j], ...] = src[i, j]`` along ``dim``; of several writes to one element the last one counts."""
    if reduce is not None:
        return _flat(_scatter_reduced)(b, x, dim, index, src, reduce=reduce, include_self=True)  # type: ignore[no-any-return]
    return _flat(_scatter_last)(b, x, dim, index, src)  # type: ignore[no-any-return]


def scatter_add(b: Builder, x: Value, dim: int, index: Value, src: Value) -> Value:
    return scatter(b, x, dim, index, src, "add")


def scatter_reduce(b: Builder, x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True) -> Value:
    return _flat(_scatter_reduced)(b, x, dim, index, src, reduce=reduce, include_self=include_self)  # type: ignore[no-any-return]


def _along(b: Builder, x: Value, dim: int, index: Value, source: Value, accumulate: bool) -> Value:
    """Slices of ``source`` written at ``index`` along ``dim``."""
    if not x.rank:
        return b.reshape(_along(b, b.reshape(x, (1,)), 0, b.reshape(index, (1,)), b.reshape(source, (1,)), accumulate), ())
    dim = wrap_dim(b.op, dim, x.rank)
    order = [dim, *(k for k in range(x.rank) if k != dim)]
    back = [order.index(k) for k in range(x.rank)]
    moved = index_put(b, b.permute(x, order), [index], b.permute(source, order), accumulate)
    return b.permute(moved, back)


def index_add(b: Builder, x: Value, dim: int, index: Value, source: Value, alpha: Scalar = 1) -> Value:
    if alpha != 1:
        wide = compute_dtype(x.dtype)
        source = b.apply("mul", b.cast(source, wide), alpha)
    return _along(b, x, dim, index, source, True)


def index_copy(b: Builder, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _along(b, x, dim, index, source, False)


def index_fill(b: Builder, x: Value, dim: int, index: Value, value: Value | Scalar) -> Value:
    dim = wrap_dim(b.op, dim, x.rank)
    shape = (*x.shape[:dim], total(index.shape), *x.shape[dim + 1 :]) if x.rank else ()
    fill = b.expand(b.cast(value, x.dtype), shape) if isinstance(value, Value) else b.full(shape, value, x.dtype)
    return _along(b, x, dim, index, fill, False)


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    return {
        "aten.embedding.default": embedding, "aten.index_select.default": index_select, "aten.gather.default": gather,
        "aten.take.default": take, "aten.index.Tensor": index_tensor, "aten.index_put.default": index_put,
        "aten.scatter.src": scatter, "aten.scatter.value": scatter, "aten.scatter_add.default": scatter_add,
        "aten.scatter.reduce": scatter, "aten.scatter.value_reduce": scatter, "aten.scatter_reduce.two": scatter_reduce,
        "aten.index_add.default": index_add, "aten.index_copy.default": index_copy,
        "aten.index_fill.int_Scalar": index_fill, "aten.index_fill.int_Tensor": index_fill,
    }  # fmt: skip
