"""Matrix products: both operands expanded over (..., m, n, k), multiplied, summed over k.  f16 and bf16 sum in f32."""

from __future__ import annotations

from collections.abc import Sequence

from emmy_eq import index as ix
from emmy_eq.errors import InvalidInput
from emmy_eq.index import Idx
from emmy_eq.lower.builder import Builder, Scalar, Value, broadcast_shapes, dims
from emmy_eq.lower.dtypes import compute_dtype, promote
from emmy_eq.lower.elementwise import pointwise
from emmy_eq.lower.row import Row
from emmy_eq.tensor_ir import Shape


def contract(
    b: Builder, left: Value, left_index: Sequence[Idx], right: Value, right_index: Sequence[Idx], shape: Shape, summed: Shape
) -> Value:
    """Sum of ``left[left_index] * right[right_index]`` in the dtype to compute in; indices are over the dims of ``shape``
    and then those of ``summed``."""
    wide = compute_dtype(left.dtype)
    full = (*shape, *summed)
    a, c = (b.remap(b.cast(x, wide), i, full) for x, i in ((left, left_index), (right, right_index)))
    return b.reduce("sum", b.apply("mul", a, c), range(len(shape), len(full)))


def _same_dtype(b: Builder, *values: Value) -> str:
    dtype = values[0].dtype
    if dtype == "bool":
        raise InvalidInput(b.op, "bool operands", b.source)
    if any(v.dtype != dtype for v in values):
        raise InvalidInput(b.op, f"operands of dtypes {', '.join(v.dtype for v in values)} do not match", b.source)
    return dtype


def product(b: Builder, x: Value, other: Value) -> Value:
    """`torch.matmul` in the dtype to compute in (not rounded yet)."""
    if not x.rank or not other.rank:
        raise InvalidInput(b.op, "both operands need at least one dim", b.source)
    left = x if x.rank > 1 else b.unsqueeze(x, [0])
    right = other if other.rank > 1 else b.unsqueeze(other, [1])
    m, k = left.shape[-2:]
    if right.shape[-2] != k:
        raise InvalidInput(b.op, f"inner extents of {x.shape} and {other.shape} differ", b.source)
    batch = broadcast_shapes(b.op, [left.shape[:-2], right.shape[:-2]])
    shape = (*batch, m, right.shape[-1])
    out = dims(len(shape))
    inner = ix.var(f"d{len(shape)}")

    def lead(value: Value) -> list[Idx]:
        skip = len(batch) - (value.rank - 2)
        return [ix.const(0) if value.shape[k] == 1 else out[skip + k] for k in range(value.rank - 2)]

    found = contract(b, left, [*lead(left), out[-2], inner], right, [*lead(right), inner, out[-1]], shape, (k,))
    gone = [len(batch)] * (x.rank == 1) + [len(batch) + 1] * (other.rank == 1)
    return b.squeeze(found, gone) if gone else found


def matmul(b: Builder, x: Value, other: Value) -> Value:
    return b.cast(product(b, x, other), _same_dtype(b, x, other))


def outer(b: Builder, x: Value, other: Value) -> Value:
    dtype = promote(x.dtype, other.dtype)
    return pointwise(b, "mul", (b.unsqueeze(x, [1]), b.unsqueeze(other, [0])), dtype, dtype)


def linear(b: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """``x @ weight.T + bias``; the weight is (out, in) and is read transposed."""
    dtype = _same_dtype(b, *(v for v in (x, weight, bias) if v is not None))
    found = product(b, x, b.permute(weight, range(weight.rank)[::-1]))
    if bias is not None:
        found = b.apply("add", found, b.cast(bias, found.dtype))
    return b.cast(found, dtype)


def _scaled_sum(b: Builder, x: Value, found: Value, beta: Scalar, alpha: Scalar) -> Value:
    """beta * x + alpha * found; beta 0 ignores x altogether (its NaN too), as torch does."""
    dtype = x.dtype
    scaled = b.apply("mul", found, alpha) if alpha != 1 else found
    if beta == 0:
        return b.cast(scaled, dtype)
    start = b.cast(x, scaled.dtype)
    start = b.apply("mul", start, beta) if beta != 1 else start
    return b.cast(b.apply("add", start, scaled), dtype)


def addmm(b: Builder, x: Value, mat1: Value, mat2: Value, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
    _same_dtype(b, x, mat1, mat2)
    return _scaled_sum(b, x, product(b, mat1, mat2), beta, alpha)


def addbmm(b: Builder, x: Value, mat1: Value, mat2: Value, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
    _same_dtype(b, x, mat1, mat2)
    return _scaled_sum(b, x, b.reduce("sum", product(b, mat1, mat2), [0]), beta, alpha)


def addr(b: Builder, x: Value, mat1: Value, mat2: Value, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
    wide = compute_dtype(_same_dtype(b, x, mat1, mat2))
    return _scaled_sum(b, x, outer(b, b.cast(mat1, wide), b.cast(mat2, wide)), beta, alpha)


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    return {
        **{f"aten.{name}.default": matmul for name in ("matmul", "mm", "bmm", "mv", "dot", "vdot")},
        "aten.outer.default": outer, "aten.ger.default": outer, "aten.linear.default": linear,
        "aten.addmm.default": addmm, "aten.addmv.default": addmm, "aten.baddbmm.default": addmm, "aten.addbmm.default": addbmm,
        "aten.addr.default": addr,
    }  # fmt: skip
