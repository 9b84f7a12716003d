"""Sorting by rank: an element's place is the number of elements that come before it (quadratic in the extent)."""

from __future__ import annotations

from emmy_eq import index as ix
from emmy_eq.errors import InvalidInput
from emmy_eq.lower.builder import Builder, Value, dims, wrap_dim
from emmy_eq.lower.dtypes import compute_dtype
from emmy_eq.lower.row import Row
from emmy_eq.lower.select import gather
from emmy_eq.ops import FLOATS


def _ranks(b: Builder, x: Value, dim: int, descending: bool) -> Value:
    """i64 place of each element along ``dim`` in a stable sort; NaN counts as greater than every number."""
    full = (*x.shape, x.shape[dim])
    own = dims(x.rank)
    others = [*own[:dim], ix.var(f"d{x.rank}"), *own[dim + 1 :]]
    value = b.cast(x, compute_dtype(x.dtype))
    mine, other = b.remap(value, own, full), b.remap(value, others, full)
    first, equal = b.apply("gt" if descending else "lt", other, mine), b.apply("eq", other, mine)
    if value.dtype in FLOATS:
        mine_nan, other_nan = b.apply("isnan", mine), b.apply("isnan", other)
        sooner, later = (other_nan, mine_nan) if descending else (mine_nan, other_nan)
        first = b.apply("or", first, b.apply("and", sooner, b.apply("not", later)))
        equal = b.apply("or", equal, b.apply("and", mine_nan, other_nan))
    earlier = b.apply("lt", b.position(full, x.rank), b.position(full, dim))
    before = b.apply("or", first, b.apply("and", equal, earlier))
    return b.reduce("sum", b.cast(before, "i64"), [x.rank])


def _ordered(b: Builder, x: Value, dim: int, descending: bool, count: int) -> tuple[Value, Value]:
    """(values, i64 indices) of the first ``count`` in order."""
    ranks = _ranks(b, x, dim, descending)
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    full = (*shape, x.shape[dim])
    every = dims(x.rank)
    here = b.remap(ranks, [*every[:dim], ix.var(f"d{x.rank}"), *every[dim + 1 :]], full)
    hit = b.apply("eq", here, b.position(full, dim))
    # Ranks are a permutation, so each sum has one term.
    indices = b.reduce("sum", b.where(hit, b.position(full, x.rank), 0), [x.rank])
    return gather(b, x, dim, indices), indices


def sort(b: Builder, x: Value, dim: int = -1, descending: bool = False, stable: bool | None = None) -> tuple[Value, Value]:
    dim = wrap_dim(b.op, dim, x.rank)
    if not x.rank:
        return x, b.full((), 0, "i64")
    return _ordered(b, x, dim, descending, x.shape[dim])


def argsort(b: Builder, x: Value, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Value:
    return sort(b, x, dim, descending)[1]


def topk(b: Builder, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, Value]:
    dim = wrap_dim(b.op, dim, x.rank)
    if not x.rank or not 0 <= k <= x.shape[dim]:
        raise InvalidInput(b.op, f"k={k} for dim {dim} of shape {x.shape}", b.source)
    return _ordered(b, x, dim, largest, k)


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    return {
        "aten.sort.default": sort, "aten.sort.stable": sort, "aten.argsort.default": argsort, "aten.argsort.stable": argsort,
        "aten.topk.default": topk,
    }  # fmt: skip
