"""Reductions and scans: 16-bit floats accumulate in f32, narrow integers and bool sum in i64."""

from __future__ import annotations

from collections.abc import Sequence

from emmy_eq.errors import InvalidInput
from emmy_eq.lower.builder import Builder, Scalar, Value, wrap_dim, wrap_dims
from emmy_eq.lower.dtypes import compute_dtype, float_dtype
from emmy_eq.lower.row import Row
from emmy_eq.ops import FLOATS
from emmy_eq.tensor_ir import total

Dims = int | Sequence[int] | None


def accumulate(op: str) -> Row:
    """sum or prod: integers and bool give i64 unless ``dtype`` says otherwise."""

    def row(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False, dtype: str | None = None) -> Value:
        out = dtype or (x.dtype if x.dtype in FLOATS else "i64")
        value = b.cast(b.convert(x, out), compute_dtype(out))
        return b.cast(b.reduce(op, value, wrap_dims(b.op, dim, x.rank), keepdim), out)

    return row


def mean(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False, dtype: str | None = None) -> Value:
    out = dtype or x.dtype
    if out not in FLOATS:
        raise InvalidInput(b.op, f"the mean of {out} values is not defined without dtype=", b.source)
    return b.cast(mean_of(b, b.cast(b.convert(x, out), compute_dtype(out)), wrap_dims(b.op, dim, x.rank), keepdim), out)


def mean_of(b: Builder, x: Value, over: Sequence[int], keepdim: bool) -> Value:
    """Mean of f32 or f64 values; NaN over nothing."""
    count = total([x.shape[d] for d in over])
    return b.apply("div", b.reduce("sum", x, over, keepdim), float(count))


def _extreme_dims(b: Builder, x: Value, dim: Dims) -> tuple[int, ...]:
    over = wrap_dims(b.op, dim, x.rank)
    if any(x.shape[d] == 0 for d in over):
        raise InvalidInput(b.op, f"a reduction of shape {x.shape} over an empty dim has no identity", b.source)
    return over


def extreme(op: str) -> Row:
    """amax, amin: NaN wins."""

    def row(b: Builder, x: Value, dim: Dims = (), keepdim: bool = False) -> Value:
        value = b.cast(x, compute_dtype(x.dtype))
        return b.cast(b.reduce(op, value, _extreme_dims(b, x, dim), keepdim), x.dtype)

    return row


def extreme_with_index(op: str) -> Row:
    """max.dim, min.dim: (values, i64 indices)."""

    def row(b: Builder, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        value = b.cast(x, compute_dtype(x.dtype))
        over = _extreme_dims(b, x, dim)
        return b.cast(b.reduce(op, value, over, keepdim), x.dtype), b.reduce(f"arg{op}", value, over, keepdim)

    return row


def arg(op: str) -> Row:
    def row(b: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        return b.reduce(op, b.cast(x, compute_dtype(x.dtype)), _extreme_dims(b, x, dim), keepdim)

    return row


def boolean(op: str) -> Row:
    """any, all; torch gives u8 for u8 input, bool otherwise."""

    def row(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
        over = () if dim == () else wrap_dims(b.op, dim, x.rank)
        out = b.reduce(op, b.cast(x, "bool"), over, keepdim)
        return b.cast(out, "u8") if x.dtype == "u8" else out

    return row


def variance_of(b: Builder, x: Value, over: Sequence[int], correction: Scalar, keepdim: bool) -> tuple[Value, Value]:
    """(variance, mean) in two passes: the mean of squared deviations, so that a large offset costs no digits."""
    count = total([x.shape[d] for d in over])
    centre = mean_of(b, x, over, True)
    deviation = b.apply("sub", x, centre)
    squares = b.reduce("sum", b.apply("mul", deviation, deviation), over, keepdim)
    return b.apply("div", squares, max(float(count - correction), 0.0)), centre if keepdim else b.squeeze(centre, over)


def moments(root: bool, with_mean: bool) -> Row:
    """var, std, var_mean, std_mean."""

    def row(
        b: Builder, x: Value, dim: Dims = None, correction: Scalar | None = None, keepdim: bool = False, unbiased: bool = True
    ) -> Value | tuple[Value, Value]:
        if x.dtype not in FLOATS:
            raise InvalidInput(b.op, f"the variance of {x.dtype} values is not defined", b.source)
        minus = int(unbiased) if correction is None else correction
        variance, centre = variance_of(b, b.cast(x, compute_dtype(x.dtype)), wrap_dims(b.op, dim, x.rank), minus, keepdim)
        found = b.cast(b.apply("sqrt", variance) if root else variance, x.dtype)
        return (found, b.cast(centre, x.dtype)) if with_mean else found

    return row


def logsumexp(b: Builder, x: Value, dim: Dims, keepdim: bool = False) -> Value:
    """Shifted by the maximum, or by 0 where that is infinite (an all -inf row gives -inf, not NaN)."""
    value = b.cast(x, compute_dtype(float_dtype(x.dtype)))
    return b.cast(logsumexp_of(b, value, wrap_dims(b.op, dim, x.rank), keepdim), float_dtype(x.dtype))


def logsumexp_of(b: Builder, x: Value, over: Sequence[int], keepdim: bool) -> Value:
    top = b.reduce("max", x, over, True)
    top = b.where(b.apply("isinf", top), 0.0, top)
    total_ = b.reduce("sum", b.apply("exp", b.apply("sub", x, top)), over, True)
    out = b.apply("add", b.apply("log", total_), top)
    return out if keepdim else b.squeeze(out, over)


def vector_norm(b: Builder, x: Value, ord: Scalar | None = 2, dim: Dims = None, keepdim: bool = False, dtype: str | None = None) -> Value:
    out = dtype or float_dtype(x.dtype)
    value = b.cast(x, compute_dtype(out))
    over = wrap_dims(b.op, dim, x.rank)
    if ord is None or ord == 2:
        found = b.apply("sqrt", b.reduce("sum", b.apply("mul", value, value), over, keepdim))
    elif ord == 0:
        found = b.reduce("sum", b.cast(b.apply("ne", value, 0.0), value.dtype), over, keepdim)
    elif ord == 1:
        found = b.reduce("sum", b.apply("abs", value), over, keepdim)
    elif ord in (float("inf"), float("-inf")):
        found = b.reduce("max" if ord > 0 else "min", b.apply("abs", value), _extreme_dims(b, x, dim), keepdim)
    else:
        powers = b.apply("pow", b.apply("abs", value), float(ord))
        found = b.apply("pow", b.reduce("sum", powers, over, keepdim), 1 / ord)
    return b.cast(found, out)


def cumulate(op: str) -> Row:
    """cumsum or cumprod, inclusive; integers and bool give i64 unless ``dtype`` says otherwise."""

    def row(b: Builder, x: Value, dim: int, dtype: str | None = None) -> Value:
        out = dtype or (x.dtype if x.dtype in FLOATS else "i64")
        value = b.cast(b.convert(x, out), compute_dtype(out))
        dim = wrap_dim(b.op, dim, x.rank)
        return b.cast(b.scan(op, value, dim) if x.rank else value, out)

    return row


def cumulative_extreme(op: str) -> Row:
    """cummax, cummin: (running values, i64 position of the latest element that equals them; a NaN stays)."""

    def row(b: Builder, x: Value, dim: int) -> tuple[Value, Value]:
        if not x.rank:
            return x, b.full((), 0, "i64")
        dim = wrap_dim(b.op, dim, x.rank)
        value = b.cast(x, compute_dtype(x.dtype))
        best = b.scan(op, value, dim)
        reached = b.apply("eq", value, best)
        if value.dtype in FLOATS:
            reached = b.apply("or", reached, b.apply("isnan", value))
        place = b.where(reached, b.position(x.shape, dim), 0)
        return b.cast(best, x.dtype), b.scan("max", place, dim)

    return row


def logcumsumexp(b: Builder, x: Value, dim: int) -> Value:
    """Each prefix under its own maximum: one shift for all would underflow those far below it.  Where the maximum is infinite, it is
    the result."""
    if not x.rank:
        return x
    dim = wrap_dim(b.op, dim, x.rank)
    value = b.cast(x, compute_dtype(x.dtype))
    top, summed = b.scan("max", value, dim), b.scan("softmax", value, dim)
    finite = b.apply("add", b.apply("log", summed), top)
    return b.cast(b.where(b.apply("isinf", top), top, finite), x.dtype)


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    table: dict[str, Row] = {}
    for op in ("sum", "prod"):
        table |= {f"aten.{op}.{kind}": accumulate(op) for kind in ("default", "dim_IntList", "dim_int")}
    for op in ("max", "min"):
        table |= {
            f"aten.a{op}.default": extreme(op), f"aten.{op}.default": extreme(op), f"aten.{op}.dim": extreme_with_index(op),
            f"aten.arg{op}.default": arg(f"arg{op}"),
        }  # fmt: skip
    for op in ("any", "all"):
        table |= {f"aten.{op}.{kind}": boolean(op) for kind in ("default", "dim", "dims")}
    for kind in ("default", "dim", "correction"):
        table |= {f"aten.var.{kind}": moments(False, False), f"aten.var_mean.{kind}": moments(False, True)}
        table |= {f"aten.std.{kind}": moments(True, False), f"aten.std_mean.{kind}": moments(True, True)}
    return table | {
        "aten.mean.default": mean, "aten.mean.dim": mean,
        "aten.logsumexp.default": logsumexp,
        "aten.linalg_vector_norm.default": vector_norm,
        **{f"aten.norm.{kind}": vector_norm for kind in ("Scalar", "ScalarOpt_dim", "ScalarOpt_dtype", "ScalarOpt_dim_dtype")},
        "aten.cumsum.default": cumulate("sum"), "aten.cumprod.default": cumulate("prod"),
        "aten.cummax.default": cumulative_extreme("max"), "aten.cummin.default": cumulative_extreme("min"),
        "aten.logcumsumexp.default": logcumsumexp,
    }  # fmt: skip
