"""Softmax and the normalizations; each computes in f32 or f64 throughout and rounds once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.lower.builder import Builder, Value, wrap_dim
from emmy_eq.lower.dtypes import compute_dtype, float_dtype
from emmy_eq.lower.reductions import mean_of, variance_of
from emmy_eq.lower.row import Row
from emmy_eq.ops import FLOATS
from emmy_eq.tensor_ir import total

# torch.finfo(dtype).eps of the dtype that rms_norm computes in, which is its default eps.
_EPSILON = {"f32": 2.0**-23, "f64": 2.0**-52}


def softmax_parts(b: Builder, x: Value, dim: int) -> tuple[Value, Value, Value]:
    """(maximum, exp(x - maximum), its sum) of f32 or f64 ``x``; the reduced ones keep the dim."""
    top = b.reduce("max", x, [dim], True)
    weights = b.apply("exp", b.apply("sub", x, top))
    return top, weights, b.reduce("sum", weights, [dim], True)


def along_dim(of: Callable[[Builder, Value, int], Value]) -> Row:
    """A softmax written on the dtype to compute in, over one dim."""

    def row(b: Builder, x: Value, dim: int, dtype: str | None = None, half_to_float: bool = False) -> Value:
        out = dtype or ("f32" if half_to_float else float_dtype(x.dtype))
        if not x.rank:
            return b.reshape(row(b, b.reshape(x, (1,)), 0, out), ())
        return b.cast(of(b, b.cast(b.convert(x, out), compute_dtype(out)), wrap_dim(b.op, dim, x.rank)), out)

    return row


def softmax_of(b: Builder, x: Value, dim: int) -> Value:
    _, weights, norm = softmax_parts(b, x, dim)
    return b.apply("div", weights, norm)


def log_softmax_of(b: Builder, x: Value, dim: int) -> Value:
    top, _, norm = softmax_parts(b, x, dim)
    return b.apply("sub", b.apply("sub", x, top), b.apply("log", norm))


def safe_softmax_of(b: Builder, x: Value, dim: int) -> Value:
    """0 where every entry of the row is -inf."""
    top, weights, norm = softmax_parts(b, x, dim)
    return b.where(b.apply("eq", top, -math.inf), 0.0, b.apply("div", weights, norm))


softmax, log_softmax, safe_softmax = map(along_dim, (softmax_of, log_softmax_of, safe_softmax_of))


def _trailing(b: Builder, x: Value, shape: Sequence[int]) -> list[int]:
    if not shape or x.shape[-len(shape) :] != tuple(shape):
        raise InvalidInput(b.op, f"normalized_shape {list(shape)} is not the end of shape {x.shape}", b.source)
    return list(range(x.rank - len(shape), x.rank))


def first(row: Row) -> Row:
    """The first of the row's results alone."""

    def alone(b: Builder, **arguments: Any) -> Value:
        found: Value = row(b, **arguments)[0]
        return found

    alone.__wrapped__ = row  # type: ignore[attr-defined]  # the signature that arguments are checked against
    return alone


def _affine(b: Builder, x: Value, weight: Value | None, bias: Value | None) -> Value:
    if weight is not None:
        x = b.apply("mul", x, b.cast(weight, x.dtype))
    return x if bias is None else b.apply("add", x, b.cast(bias, x.dtype))


def rms_norm(b: Builder, x: Value, normalized_shape: Sequence[int], weight: Value | None = None, eps: float | None = None) -> Value:
    if x.dtype not in FLOATS:
        raise InvalidInput(b.op, f"operands of dtype {x.dtype}", b.source)
    over = _trailing(b, x, normalized_shape)
    value = b.cast(x, compute_dtype(x.dtype))
    square = mean_of(b, b.apply("mul", value, value), over, True)
    scale = b.apply("rsqrt", b.apply("add", square, _EPSILON[value.dtype] if eps is None else eps))
    return b.cast(_affine(b, b.apply("mul", value, scale), weight, None), x.dtype)


def normalize(b: Builder, x: Value, over: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    """((x - mean) * rsqrt(var + eps), mean, rsqrt) with the reduced dims kept."""
    variance, centre = variance_of(b, x, over, 0, True)
    scale = b.apply("rsqrt", b.apply("add", variance, eps))
    return b.apply("mul", b.apply("sub", x, centre), scale), centre, scale


def layer_norm(
    b: Builder,
    x: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> tuple[Value, Value, Value]:
    """(output, mean, rstd)."""
    over = _trailing(b, x, normalized_shape)
    found, centre, scale = normalize(b, b.cast(x, compute_dtype(x.dtype)), over, eps)
    return b.cast(_affine(b, found, weight, bias), x.dtype), centre, scale


def group_norm(
    b: Builder,
    x: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    return _group_norm(b, x, num_groups, weight, bias, eps)[0]


def _group_norm(b: Builder, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float) -> tuple[Value, Value, Value]:
    batch, channels, *space = x.shape
    if channels % groups:
        raise InvalidInput(b.op, f"{channels} channels are not divisible by {groups} groups", b.source)
    value = b.reshape(b.cast(x, compute_dtype(x.dtype)), (batch, groups, channels // groups, *space))
    found, centre, scale = normalize(b, value, range(2, value.rank), eps)
    out = _affine(b, b.reshape(found, x.shape), per_channel(b, weight, x.rank), per_channel(b, bias, x.rank))
    return b.cast(out, x.dtype), b.reshape(centre, (batch, groups)), b.reshape(scale, (batch, groups))


def native_group_norm(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Value, Value, Value]:
    return _group_norm(b, x, group, weight, bias, eps)


def per_channel(b: Builder, v: Value | None, rank: int) -> Value | None:
    """A (channels,) vector as (channels, 1, ...), to meet dim 1 of a tensor of ``rank`` dims."""
    return None if v is None else b.reshape(v, (total(v.shape), *[1] * (rank - 2)))


def batch_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Value:
    """Eval mode normalizes by the running statistics, or by the batch's own where there are none."""
    if training and running_mean is not None:
        raise Unsupported(b.op, "training=True, which updates the running statistics", b.source)
    value = b.cast(x, compute_dtype(x.dtype))
    if running_mean is None or running_var is None:
        over = [d for d in range(x.rank) if d != 1]
        found = normalize(b, value, over, eps)[0]
    else:
        centre, variance = (per_channel(b, b.cast(v, value.dtype), x.rank) for v in (running_mean, running_var))
        assert centre is not None
        assert variance is not None
        scale = b.apply("rsqrt", b.apply("add", variance, eps))
        found = b.apply("mul", b.apply("sub", value, centre), scale)
    return b.cast(_affine(b, found, per_channel(b, weight, x.rank), per_channel(b, bias, x.rank)), x.dtype)


def native_batch_norm_no_training(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, running_mean: Value, running_var: Value, momentum: float, eps: float
) -> tuple[Value, Value, Value]:
    """(output, empty, empty): in eval mode torch saves no statistics."""
    out = batch_norm(b, x, weight, bias, running_mean, running_var, False, momentum, eps)
    nothing = b.full((0,), 0, compute_dtype(x.dtype))
    return out, nothing, nothing


def native_batch_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    if training or running_mean is None or running_var is None:
        raise Unsupported(b.op, "training=True, which returns and updates statistics", b.source)
    return native_batch_norm_no_training(b, x, weight, bias, running_mean, running_var, momentum, eps)


def instance_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Value:
    if not use_input_stats:
        return batch_norm(b, x, weight, bias, running_mean, running_var, False, momentum, eps)
    if running_mean is not None:
        raise Unsupported(b.op, "updating running statistics", b.source)
    return _group_norm(b, x, x.shape[1], weight, bias, eps)[0]


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    return {
        "aten.softmax.int": softmax, "aten._softmax.default": softmax, "aten.special_softmax.int": softmax,
        "aten.log_softmax.int": log_softmax, "aten._log_softmax.default": log_softmax, "aten.special_log_softmax.int": log_softmax,
        "aten._safe_softmax.default": safe_softmax,
        "aten.rms_norm.default": rms_norm, "aten.layer_norm.default": first(layer_norm), "aten.native_layer_norm.default": layer_norm,
        "aten.group_norm.default": group_norm, "aten.native_group_norm.default": native_group_norm,
        "aten.batch_norm.default": batch_norm, "aten._native_batch_norm_legit_no_training.default": native_batch_norm_no_training,
        "aten.native_batch_norm.default": native_batch_norm,
        "aten.instance_norm.default": instance_norm,
    }  # fmt: skip
