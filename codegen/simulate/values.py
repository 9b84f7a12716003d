"""Scalar operations on registers, one value a thread, rounded exactly as the kernel's are.

An f32 ``fma`` is formed in float64, where the product is exact; the one case in which the second rounding (float64 to
float32) could differ from a single one, a sum that lies exactly between two floats, is decided by the sign of the first
rounding's error.  Subnormal results may still be rounded twice, and an f64 ``fma`` always is.
"""

from __future__ import annotations

from functools import cache
from types import CodeType
from typing import Any

import numpy as np

from emmy_eq import index
from emmy_eq.index import Idx
from emmy_eq.ops import DTYPES, FLOATS, ops

Value = Any  # a NumPy scalar (one value for all threads) or an array of one element a thread

_BELOW_F32 = np.int64((1 << 29) - 1)  # the bits of a float64's mantissa that float32 has no room for
_HALF_F32 = np.int64(1 << 28)


def fma(a: Value, b: Value, c: Value) -> Value:
    """a * b + c with one rounding (see the module's docstring)."""
    if a.dtype != np.float32:
        return a * b + c
    product = a.astype(np.float64) * b
    total = np.asarray(product + c)
    if np.any((total.view(np.int64) & _BELOW_F32) == _HALF_F32):
        part = total - product
        error = (product - (total - part)) + (c - part)
        tie = (total.view(np.int64) & _BELOW_F32) == _HALF_F32
        total = np.where(tie & (error != 0), np.nextafter(total, np.copysign(np.inf, error)), total)
    return total.astype(np.float32)


def cast(x: Value, dtype: str) -> Value:
    """Conversion as CUDA does it: floats saturate into integers, narrow integers wrap (PTX ISA, ``cvt``)."""
    to = DTYPES[dtype]
    if x.dtype == to:
        return np.copy(x) if x.ndim else x
    if dtype == "bool":
        return x != 0
    if x.dtype.kind not in "iub" and dtype not in FLOATS:
        return _truncate(x, dtype)
    if dtype in ("f16", "bf16") or x.dtype.itemsize == 2:
        x = x.astype(np.float32)  # conversions to and from 16-bit floats go by f32
    return x.astype(to)


def _truncate(x: Value, dtype: str) -> Value:
    """Float to integer: through i32 (i64 for i64 and u8), as torch's CUDA kernels do.  NaN gives 0, and the lowest integer
    where 64 bits take part."""
    wide = np.int64 if dtype in ("i64", "u8") else np.int32
    nan = np.iinfo(wide).min if wide is np.int64 or x.dtype == np.float64 else 0
    x = np.trunc(x.astype(np.float64))
    low, high = np.iinfo(wide).min, np.iinfo(wide).max
    inside = np.where((x > low) & (x < float(high)), x, 0.0).astype(wide)
    out = np.where(np.isnan(x), wide(nan), np.where(x >= float(high), wide(high), np.where(x <= low, wide(low), inside)))
    return out.astype(DTYPES[dtype])


def _pack(low: Value, high: Value) -> Value:
    low, high = np.broadcast_arrays(low, high)
    return (_bits(low, np.uint16).astype(np.uint32) | (_bits(high, np.uint16).astype(np.uint32) << np.uint32(16))).view(np.int32)


def _bits(x: Value, dtype: Any) -> Value:
    return np.ascontiguousarray(x).view(dtype).reshape(np.shape(x))


def apply(op: str, args: list[Value], dtype: str) -> Value:
    """The value of ``op args`` in ``dtype``."""
    match op:
        case "mov":
            return np.copy(args[0])
        case "cast":
            return cast(args[0], dtype)
        case "bitcast":
            return _bits(args[0], DTYPES[dtype])
        case "pack":
            return _pack(*args)
        case "exp2_approx":
            return np.exp2(args[0])
        case "pack_f16" | "pack_bf16":
            return _pack(*(cast(x, op.removeprefix("pack_")) for x in args))
        case "fma":
            return fma(*args)
    out = ops()[op].numpy(*args)
    return out if out.dtype == DTYPES[dtype] else np.asarray(out).astype(DTYPES[dtype])


def poison(dtype: str, size: int) -> np.ndarray[Any, Any]:
    """Memory that nobody has written: NaN, or a pattern of integers that is far out of any range."""
    to = DTYPES[dtype]
    if dtype in FLOATS:
        return np.full(size, np.nan, to)
    return np.ones(size, to) if dtype == "bool" else np.full(size, np.array(0x7BADBADBADBADBAD).astype(to), to)


@cache
def _compiled(x: Idx) -> tuple[CodeType, tuple[str, ...]]:
    return compile(index.show(x), "<index>", "eval"), tuple(sorted(index.variables(x)))


_GLOBALS = {"__builtins__": {}, "min": np.minimum, "max": np.maximum}


def evaluate(x: Idx, env: dict[str, Value]) -> Any:
    """An index expression in 64 bits: an int, or an array of one a thread."""
    if x.op == "const":
        return x.value
    code, names = _compiled(x)
    values = {n: _wide(env[n]) for n in names}
    return eval(code, _GLOBALS, values)


def _wide(x: Value) -> Value:
    return x.astype(np.int64) if isinstance(x, np.ndarray | np.generic) and x.dtype != np.int64 else x
