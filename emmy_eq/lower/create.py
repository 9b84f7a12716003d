"""Tensors from nothing: constants and aranges."""

from __future__ import annotations

from collections.abc import Sequence

from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.lower.builder import Builder, Scalar, Value
from emmy_eq.lower.dtypes import compute_dtype, scalar_dtype
from emmy_eq.lower.row import Row
from emmy_eq.ops import FLOATS


def filled(number: Scalar | None = None) -> Row:
    """Full of ``number``, or of what the call says; shape and dtype are those of ``x`` where they are not stated."""

    def row(
        b: Builder, x: Value | None = None, size: Sequence[int] | None = None, fill_value: Scalar = 0, dtype: str | None = None
    ) -> Value:
        value, default = (fill_value, scalar_dtype(fill_value)) if number is None else (number, "f32")
        shape = x.shape if size is None and x is not None else tuple(size or ())
        return b.full(shape, value, dtype or (default if x is None else x.dtype))

    return row


def fill(b: Builder, x: Value, value: Value | Scalar) -> Value:
    return b.expand(b.cast(value, x.dtype), x.shape) if isinstance(value, Value) else b.full(x.shape, value, x.dtype)


def scalar_tensor(b: Builder, s: Scalar, dtype: str | None = None) -> Value:
    return b.full((), s, dtype or "f32")


def arange(b: Builder, start: Scalar = 0, end: Scalar = 0, step: Scalar = 1, dtype: str | None = None) -> Value:
    """start + step * i, in f64 for float results as torch's CPU kernel does, rounded once; i64 truncates the arguments first."""
    out = dtype or ("f32" if any(isinstance(v, float) for v in (start, end, step)) else "i64")
    if out == "i64":
        start, end, step = int(start), int(end), int(step)
    if step == 0 or (end - start) * step < 0:
        raise InvalidInput(b.op, f"arange from {start} to {end} by {step} has no elements", b.source)
    extent = int(-(-(end - start) // step))
    wide = "f64" if out in FLOATS and any(isinstance(v, float) for v in (start, step)) else "i64"
    if wide == "i64":
        start, step = int(start), int(step)
    place = b.cast(b.iota(extent), wide)
    if step != 1:
        place = b.apply("mul", place, step)
    if start != 0:
        place = b.apply("add", place, start)
    return b.cast(place, out)


def linspace(b: Builder, start: Scalar, end: Scalar, steps: int, dtype: str | None = None) -> Value:
    """From both ends toward the middle, as torch does, so that the last element is ``end`` exactly."""
    out = dtype or "f32"
    if steps == 1:
        return b.full((1,), start, out)
    wide = compute_dtype(out) if out in FLOATS else "f64"
    if out not in FLOATS:
        start, end = int(start), int(end)
    step = (end - start) / (steps - 1)
    place = b.iota(steps)
    up = b.apply("add", b.apply("mul", b.cast(place, wide), step), float(start))
    back = b.apply("sub", b.const(steps - 1, "i64"), place)
    down = b.apply("sub", b.const(float(end), wide), b.apply("mul", b.cast(back, wide), step))
    return b.cast(b.where(b.apply("lt", place, steps // 2), up, down), out)


def eye(b: Builder, n: int, m: int | None = None, dtype: str | None = None) -> Value:
    shape = (n, n if m is None else m)
    return b.cast(b.apply("eq", b.position(shape, 0), b.position(shape, 1)), dtype or "f32")


def one_hot(b: Builder, x: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise Unsupported(b.op, "num_classes=-1, whose value depends on the data", b.source)
    shape = (*x.shape, num_classes)
    return b.cast(b.apply("eq", b.unsqueeze(x, [x.rank]), b.position(shape, x.rank)), "i64")


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    table: dict[str, Row] = {}
    # The values of an uninitialized tensor are unspecified: zeros are one choice.
    for name, value in (("zeros", 0), ("ones", 1), ("empty", 0)):
        table[f"aten.{name}.memory_format" if name == "empty" else f"aten.{name}.default"] = filled(value)
        table |= {f"aten.{name}_like.default": filled(value), f"aten.new_{name}.default": filled(value)}
    return table | {
        "aten.full.default": filled(), "aten.full_like.default": filled(), "aten.new_full.default": filled(),
        "aten.fill.Scalar": fill, "aten.fill.Tensor": fill, "aten.zero.default": filled(0), "aten.scalar_tensor.default": scalar_tensor,
        "aten.arange.default": arange, "aten.arange.start": arange, "aten.arange.start_step": arange,
        "aten.linspace.default": linspace, "aten.eye.default": eye, "aten.eye.m": eye, "aten.one_hot.default": one_hot,
    }  # fmt: skip
