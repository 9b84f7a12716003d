"""Activation functions, written on the dtype to compute in and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable

from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.lower.builder import Builder, Scalar, Value
from emmy_eq.lower.dtypes import compute_dtype
from emmy_eq.lower.elementwise import clamp, compare, pointwise, where
from emmy_eq.lower.row import Row
from emmy_eq.lower.views import slice_
from emmy_eq.ops import FLOATS


def floats_only(f: Callable[..., Value]) -> Row:
    """An activation written on the compute dtype: ``f(b, x, ...)`` sees f32 or f64, and the result is rounded once."""

    def row(b: Builder, x: Value, *args: Scalar, **kwargs: Scalar) -> Value:
        if x.dtype not in FLOATS:
            raise Unsupported(b.op, f"{x.dtype} operands", b.source)
        return b.cast(f(b, b.cast(x, compute_dtype(x.dtype)), *args, **kwargs), x.dtype)

    row.__wrapped__ = f  # type: ignore[attr-defined]  # the signature that arguments are checked against
    return row


def relu(b: Builder, x: Value) -> Value:
    return pointwise(b, "maximum", (x, 0), x.dtype, x.dtype)


def relu6(b: Builder, x: Value) -> Value:
    return clamp(b, x, 0, 6)


def gelu(b: Builder, x: Value, approximate: str = "none") -> Value:
    if approximate == "none":
        inner = b.apply("erf", b.apply("mul", x, math.sqrt(0.5)))
        return b.apply("mul", b.apply("mul", x, 0.5), b.apply("add", inner, 1.0))
    if approximate != "tanh":
        raise InvalidInput("gelu", f"approximate={approximate!r} is not 'none' or 'tanh'", b.source)
    cube = b.apply("mul", b.apply("mul", x, x), x)
    inner = b.apply("mul", b.apply("add", x, b.apply("mul", cube, 0.044715)), math.sqrt(2 / math.pi))
    return b.apply("mul", b.apply("mul", x, 0.5), b.apply("add", b.apply("tanh", inner), 1.0))


def silu(b: Builder, x: Value) -> Value:
    return b.apply("mul", x, b.apply("sigmoid", x))


def mish(b: Builder, x: Value) -> Value:
    return b.apply("mul", x, b.apply("tanh", softplus(b, x)))


def softplus(b: Builder, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    scaled = b.apply("mul", x, beta)
    soft = b.apply("div", b.apply("log1p", b.apply("exp", scaled)), beta)
    return b.where(b.apply("gt", scaled, threshold), x, soft)


def elu(b: Builder, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    negative = b.apply("mul", b.apply("expm1", b.apply("mul", x, input_scale)), alpha * scale)
    return b.where(b.apply("le", x, 0.0), negative, b.apply("mul", x, scale))


def celu(b: Builder, x: Value, alpha: float = 1.0) -> Value:
    return elu(b, x, alpha, 1.0, 1 / alpha)


def selu(b: Builder, x: Value) -> Value:
    return elu(b, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def leaky_relu(b: Builder, x: Value, negative_slope: float = 0.01) -> Value:
    return b.where(b.apply("gt", x, 0.0), x, b.apply("mul", x, negative_slope))


def hardtanh(b: Builder, x: Value, min_val: Scalar = -1, max_val: Scalar = 1) -> Value:
    if x.dtype not in FLOATS:
        min_val, max_val = int(min_val), int(max_val)
    return clamp(b, x, min_val, max_val)


def _shifted(b: Builder, x: Value) -> Value:
    """clamp(x + 3, 0, 6)"""
    return b.apply("minimum", b.apply("maximum", b.apply("add", x, 3.0), 0.0), 6.0)


def hardsigmoid(b: Builder, x: Value) -> Value:
    return b.apply("div", _shifted(b, x), 6.0)


def hardswish(b: Builder, x: Value) -> Value:
    return b.apply("div", b.apply("mul", x, _shifted(b, x)), 6.0)


def logsigmoid(b: Builder, x: Value) -> Value:
    return b.apply("sub", b.apply("minimum", x, 0.0), b.apply("log1p", b.apply("exp", b.apply("neg", b.apply("abs", x)))))


def threshold(b: Builder, x: Value, threshold: Scalar, value: Scalar) -> Value:
    return where(b, compare("le")(b, x, threshold), b.const(value, x.dtype), x)


def glu(b: Builder, x: Value, dim: int = -1) -> Value:
    half = x.shape[dim] // 2
    if x.shape[dim] % 2:
        raise InvalidInput(b.op, f"dim {dim} of shape {x.shape} cannot be halved", b.source)
    gate = pointwise(b, "sigmoid", (slice_(b, x, dim, half),), x.dtype)
    return pointwise(b, "mul", (slice_(b, x, dim, 0, half), gate), x.dtype, x.dtype)


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    return {
        "aten.relu.default": relu, "aten.relu6.default": relu6, "aten.hardtanh.default": hardtanh,
        "aten.threshold.default": threshold, "aten.glu.default": glu, "aten.log_sigmoid.default": floats_only(logsigmoid),
        **{f"aten.{f.__name__}.default": floats_only(f)
           for f in (gelu, silu, mish, softplus, elu, celu, selu, leaky_relu, hardsigmoid, hardswish)},
    }  # fmt: skip
