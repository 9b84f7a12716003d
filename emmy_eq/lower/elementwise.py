"""Pointwise operations: promotion, then one row of the op table, then the result's dtype."""

from __future__ import annotations

import math

from emmy_eq.errors import InvalidInput
from emmy_eq.lower.builder import Builder, Scalar, Value
from emmy_eq.lower.dtypes import compute_dtype, float_dtype, result_dtype
from emmy_eq.lower.row import Row
from emmy_eq.ops import FLOATS
from emmy_eq.terms import from_bits, to_bits

Operand = Value | Scalar


def compute(b: Builder, x: Operand, dtype: str) -> Operand:
    """``x`` as ``dtype`` and then as the dtype to compute in; a Python scalar is never rounded to 16 bits."""
    if not isinstance(x, Value):
        return x
    return b.cast(b.convert(x, dtype), compute_dtype(dtype))


def rounded(b: Builder, x: Operand, dtype: str) -> Value:
    """``x`` in the dtype to compute in, a Python scalar rounded (an integer one wrapped) to ``dtype`` first."""
    if not isinstance(x, Value):
        return b.const(from_bits(dtype, to_bits(dtype, x)).item(), compute_dtype(dtype))
    return b.cast(b.convert(x, dtype), compute_dtype(dtype))


def pointwise(b: Builder, op: str, args: tuple[Operand, ...], dtype: str, result: str | None = None) -> Value:
    """``op`` computed in ``dtype``; the result is ``result``, or the op's own."""
    taken = compute if dtype in FLOATS else rounded
    values = [b.const(x, compute_dtype(dtype)) if not isinstance(x, Value) else x for x in (taken(b, x, dtype) for x in args)]
    out = b.apply(op, *values)
    return b.cast(out, result) if result else out


def unary(op: str) -> Row:
    """Float in, float out; integers are converted (exp, sqrt, ...)."""

    def row(b: Builder, x: Value) -> Value:
        dtype = float_dtype(x.dtype)
        return pointwise(b, op, (x,), dtype, dtype)

    return row


def unary_same(op: str, on_ints: bool = True) -> Row:
    """Keeps the dtype; with ``on_ints`` false, integers pass through (floor, round, ...)."""

    def row(b: Builder, x: Value) -> Value:
        if x.dtype not in FLOATS and not on_ints:
            return x
        if x.dtype == "bool":
            raise InvalidInput(b.op, "a bool tensor has no such operation", b.source)
        return pointwise(b, op, (x,), x.dtype, x.dtype)

    return row


def binary(op: str, to_float: bool = False) -> Row:
    """Both operands promoted; the result has the promoted dtype."""

    def row(b: Builder, x: Operand, other: Operand) -> Value:
        dtype = result_dtype((x, other))
        dtype = float_dtype(dtype) if to_float else dtype
        return pointwise(b, op, (x, other), dtype, dtype)

    return row


def modulo(op: str) -> Row:
    """A divisor is rounded to the operands' dtype, as torch does here (and not in a division): 0.1 by 0.1 leaves nothing."""

    def row(b: Builder, x: Operand, other: Operand) -> Value:
        dtype = result_dtype((x, other))
        return b.cast(b.apply(op, rounded(b, x, dtype), rounded(b, other, dtype)), dtype)

    return row


def ignoring_nan(op: str) -> Row:
    """fmax, fmin: NaN only where both are."""

    def row(b: Builder, x: Value, other: Value) -> Value:
        dtype = result_dtype((x, other))
        best = pointwise(b, op, (x, other), dtype)
        if dtype in FLOATS:
            left, right = (compute(b, v, dtype) for v in (x, other))
            best = b.where(isnan(b, x), right, b.where(isnan(b, other), left, best))
        return b.cast(best, dtype)

    return row


def compare(op: str) -> Row:
    """Operands meet in their common dtype: 0.1 equals what a 16-bit tensor holds for it."""

    def row(b: Builder, x: Operand, other: Operand) -> Value:
        dtype = result_dtype((x, other))
        return b.apply(op, rounded(b, x, dtype), rounded(b, other, dtype))

    return row


def _accumulating(op: str) -> Row:
    """x + alpha * other, and x - alpha * other."""

    def row(b: Builder, x: Operand, other: Operand, alpha: Scalar = 1) -> Value:
        dtype = result_dtype((x, other))
        if dtype == "bool" and op == "sub":
            raise InvalidInput(b.op, "subtraction of bool tensors is not defined", b.source)
        if isinstance(alpha, float) and dtype not in FLOATS:
            raise InvalidInput(b.op, f"alpha={alpha} must be an integer for {dtype} operands", b.source)
        if alpha != 1:
            other = pointwise(b, "mul", (other, alpha), dtype)
        return pointwise(b, op, (x, other), dtype, dtype)

    return row


def rsub(b: Builder, x: Value, other: Operand, alpha: Scalar = 1) -> Value:
    dtype = result_dtype((x, other))
    scaled = pointwise(b, "mul", (x, alpha), dtype) if alpha != 1 else x
    return pointwise(b, "sub", (other, scaled), dtype, dtype)


def div(b: Builder, x: Operand, other: Operand, rounding_mode: str | None = None) -> Value:
    dtype = result_dtype((x, other))
    if rounding_mode is None:
        return pointwise(b, "div", (x, other), float_dtype(dtype), float_dtype(dtype))
    if rounding_mode not in ("floor", "trunc"):
        raise InvalidInput(b.op, f"rounding_mode={rounding_mode!r} is not 'floor' or 'trunc'", b.source)
    return pointwise(b, f"{rounding_mode}div", (x, other), dtype, dtype)


def floor_divide(b: Builder, x: Operand, other: Operand) -> Value:
    return div(b, x, other, "floor")


def logical(op: str) -> Row:
    def row(b: Builder, x: Value, other: Value) -> Value:
        return b.apply(op, b.cast(x, "bool"), b.cast(other, "bool"))

    return row


def logical_not(b: Builder, x: Value) -> Value:
    return b.apply("not", b.cast(x, "bool"))


def bitwise_not(b: Builder, x: Value) -> Value:
    if x.dtype in FLOATS:
        raise InvalidInput(b.op, "the operand must be integer or bool", b.source)
    return pointwise(b, "not", (x,), x.dtype, x.dtype)


def bitwise(op: str) -> Row:
    def row(b: Builder, x: Operand, other: Operand) -> Value:
        dtype = result_dtype((x, other))
        if dtype in FLOATS:
            raise InvalidInput(b.op, "the operands must be integer or bool", b.source)
        return pointwise(b, op, (x, other), dtype, dtype)

    return row


def pow_(b: Builder, x: Operand, exponent: Operand) -> Value:
    """Small constant exponents are multiplied out as torch does; 2 is one product, -1 one reciprocal."""
    dtype = result_dtype((x, exponent))
    if isinstance(x, Value) and not isinstance(exponent, Value):
        if x.dtype not in FLOATS and not isinstance(exponent, float) and exponent < 0:
            raise InvalidInput(b.op, "integers to negative integer powers are not allowed", b.source)
        base = compute(b, x, dtype)
        assert isinstance(base, Value)
        special = _special_power(b, base, exponent)
        if special is not None:
            return b.cast(special, dtype)
    return pointwise(b, "pow", (x, exponent), dtype, dtype)


def _special_power(b: Builder, x: Value, exponent: Scalar) -> Value | None:
    if exponent == 0:
        return b.full(x.shape, 1, x.dtype)
    if exponent == 1:
        return x
    if exponent in (2, 3) and x.dtype != "bool":
        square = b.apply("mul", x, x)
        return square if exponent == 2 else b.apply("mul", square, x)
    if x.dtype not in FLOATS:
        return None
    if exponent in (-1, -2):
        return b.apply("reciprocal", x if exponent == -1 else b.apply("mul", x, x))
    if exponent in (0.5, -0.5):
        return b.apply("sqrt" if exponent == 0.5 else "rsqrt", x)
    return None


def _neg_check(b: Builder, x: Value) -> Value:
    if x.dtype == "bool":
        raise InvalidInput(b.op, "negation of a bool tensor is not defined", b.source)
    return pointwise(b, "neg", (x,), x.dtype, x.dtype)


def abs_(b: Builder, x: Value) -> Value:
    if x.dtype in ("bool", "u8"):
        return x
    return pointwise(b, "abs", (x,), x.dtype, x.dtype)


def sign(b: Builder, x: Value) -> Value:
    return x if x.dtype == "bool" else pointwise(b, "sign", (x,), x.dtype, x.dtype)


def of_floats(test: Row) -> Row:
    """What is false of integers."""

    def row(b: Builder, x: Value) -> Value:
        found: Value = test(b, x) if x.dtype in FLOATS else b.full(x.shape, False, "bool")
        return found

    return row


isnan = of_floats(lambda b, x: pointwise(b, "isnan", (x,), x.dtype))
isinf = of_floats(lambda b, x: pointwise(b, "isinf", (x,), x.dtype))


def isfinite(b: Builder, x: Value) -> Value:
    return b.apply("not", b.apply("or", isnan(b, x), isinf(b, x)))


def where(b: Builder, condition: Value, x: Operand, other: Operand) -> Value:
    dtype = result_dtype((x, other))
    sides = [b.convert(v, dtype) if isinstance(v, Value) else b.const(v, dtype) for v in (x, other)]
    return b.where(b.cast(condition, "bool"), *sides)


def masked_fill(b: Builder, x: Value, mask: Value, value: Operand) -> Value:
    fill = b.cast(value, x.dtype) if isinstance(value, Value) else b.const(value, x.dtype)
    return b.where(mask, fill, x)


def clamp(b: Builder, x: Value, min: Operand | None = None, max: Operand | None = None) -> Value:
    """min(max(x, low), high): NaN stays NaN, and the upper bound wins where they cross."""
    bounds = [v for v in (min, max) if v is not None]
    if not bounds:
        raise InvalidInput(b.op, "at least one of min and max must be given", b.source)
    dtype = result_dtype((x, *bounds))
    out: Operand = x
    for op, bound in (("maximum", min), ("minimum", max)):
        if bound is not None:
            out = pointwise(b, op, (out, bound), dtype)
    assert isinstance(out, Value)
    return b.cast(out, dtype)


def adding(op: str) -> Row:
    """addcmul, addcdiv."""

    def row(b: Builder, x: Value, tensor1: Value, tensor2: Value, value: Scalar = 1) -> Value:
        dtype = result_dtype((x, tensor1, tensor2))
        if op == "div" and dtype not in FLOATS:
            raise InvalidInput(b.op, "integer division is not supported", b.source)
        scaled = pointwise(b, "mul", (tensor1, value), dtype) if value != 1 else tensor1
        return pointwise(b, "add", (x, pointwise(b, op, (scaled, tensor2), dtype)), dtype, dtype)

    return row


def lerp(b: Builder, x: Value, end: Value, weight: Operand) -> Value:
    """Torch's two-sided form: exact at both ends."""
    dtype = x.dtype
    difference = pointwise(b, "sub", (end, x), dtype)
    near = pointwise(b, "add", (x, pointwise(b, "mul", (difference, weight), dtype)), dtype)
    rest = pointwise(b, "sub", (1.0, weight), dtype)
    far = pointwise(b, "sub", (end, pointwise(b, "mul", (difference, rest), dtype)), dtype)
    small = pointwise(b, "lt", (pointwise(b, "abs", (weight,), dtype), 0.5), dtype)
    return b.cast(b.where(small, near, far), dtype)


def to_dtype(b: Builder, x: Value, dtype: str | None = None) -> Value:
    return b.convert(x, dtype or x.dtype)


def type_as(b: Builder, x: Value, other: Value) -> Value:
    return b.convert(x, other.dtype)


def copy(b: Builder, x: Value, src: Value) -> Value:
    return b.expand(b.convert(src, x.dtype), x.shape)


_UNARY = ("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh erf sigmoid reciprocal").split()
_COMPARE = "eq ne lt le gt ge".split()


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    table: dict[str, Row] = {f"aten.{op}.default": unary(op) for op in _UNARY}
    for name, op in (("arcsin", "asin"), ("arccos", "acos"), ("arctan", "atan"), ("special_expm1", "expm1")):
        table[f"aten.{name}.default"] = unary(op)
    for op in ("floor", "ceil", "round", "trunc"):
        table[f"aten.{op}.default"] = unary_same(op, on_ints=False)
    table["aten.fix.default"] = table["aten.trunc.default"]
    for op in _COMPARE:
        table |= {f"aten.{op}.{kind}": compare(op) for kind in ("Tensor", "Scalar")}
    for op in ("add", "sub"):
        table |= {f"aten.{op}.{kind}": _accumulating(op) for kind in ("Tensor", "Scalar")}
    for op in ("and", "or", "xor"):
        table |= {f"aten.bitwise_{op}.{kind}": bitwise(op) for kind in ("Tensor", "Scalar", "Scalar_Tensor")}
        table |= {f"aten.__{op}__.{kind}": bitwise(op) for kind in ("Tensor", "Scalar")}
        table[f"aten.logical_{op}.default"] = logical(op)
    table |= {
        "aten.mul.Tensor": binary("mul"), "aten.mul.Scalar": binary("mul"),
        "aten.maximum.default": binary("maximum"), "aten.minimum.default": binary("minimum"),
        "aten.max.other": binary("maximum"), "aten.min.other": binary("minimum"),
        "aten.copysign.Tensor": binary("copysign", to_float=True), "aten.copysign.Scalar": binary("copysign", to_float=True),
        "aten.fmax.default": ignoring_nan("maximum"), "aten.fmin.default": ignoring_nan("minimum"),
        "aten.atan2.default": binary("atan2", to_float=True),
        "aten.remainder.Tensor": modulo("mod"), "aten.remainder.Scalar": modulo("mod"), "aten.remainder.Scalar_Tensor": modulo("mod"),
        "aten.fmod.Tensor": modulo("fmod"), "aten.fmod.Scalar": modulo("fmod"),
        "aten.div.Tensor": div, "aten.div.Scalar": div, "aten.div.Tensor_mode": div, "aten.div.Scalar_mode": div,
        "aten.true_divide.Tensor": div, "aten.true_divide.Scalar": div,
        "aten.floor_divide.default": floor_divide, "aten.floor_divide.Scalar": floor_divide,
        "aten.rsub.Tensor": rsub, "aten.rsub.Scalar": rsub,
        "aten.pow.Tensor_Scalar": pow_, "aten.pow.Tensor_Tensor": pow_, "aten.pow.Scalar": pow_,
        "aten.square.default": lambda b, x: pow_(b, x, 2),
        "aten.neg.default": _neg_check, "aten.abs.default": abs_, "aten.sign.default": sign, "aten.sgn.default": sign,
        "aten.positive.default": lambda b, x: x,
        "aten.isnan.default": isnan, "aten.isinf.default": isinf, "aten.isfinite.default": isfinite,
        "aten.isposinf.default": of_floats(lambda b, x: compare("eq")(b, x, math.inf)),
        "aten.isneginf.default": of_floats(lambda b, x: compare("eq")(b, x, -math.inf)),
        "aten.logical_not.default": logical_not, "aten.bitwise_not.default": bitwise_not,
        "aten.bitwise_left_shift.Tensor": bitwise("shl"), "aten.bitwise_right_shift.Tensor": bitwise("shr"),
        "aten.__lshift__.Scalar": bitwise("shl"), "aten.__rshift__.Scalar": bitwise("shr"),
        "aten.__lshift__.Tensor": bitwise("shl"), "aten.__rshift__.Tensor": bitwise("shr"),
        "aten.where.self": where, "aten.where.Scalar": where, "aten.where.ScalarSelf": where, "aten.where.ScalarOther": where,
        "aten.masked_fill.Scalar": masked_fill, "aten.masked_fill.Tensor": masked_fill,
        "aten.clamp.default": clamp, "aten.clamp.Tensor": clamp, "aten.clip.default": clamp,
        "aten.clamp_min.default": clamp, "aten.clamp_min.Tensor": clamp, "aten.clamp_max.default": clamp, "aten.clamp_max.Tensor": clamp,
        "aten.addcmul.default": adding("mul"), "aten.addcdiv.default": adding("div"),
        "aten.lerp.Scalar": lerp, "aten.lerp.Tensor": lerp,
        "aten.to.dtype": to_dtype, "aten._to_copy.default": to_dtype, "aten.to.dtype_layout": to_dtype, "aten.to.device": to_dtype,
        "aten.type_as.default": type_as, "aten.to.other": type_as, "aten.copy.default": copy,
    }  # fmt: skip
    return table
