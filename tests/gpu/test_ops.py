"""Every operation's CUDA text against its NumPy reference, on ordinary and on hostile values."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from emmy_eq.arrays import to_numpy, to_torch
from emmy_eq.codegen import cuda, nvrtc, simulate
from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.runtime import Executable, Launch, Program
from emmy_eq.index import const, var
from emmy_eq.loop_ir import Buffer
from emmy_eq.ops import DTYPES, exact, ops
from tests.gpu.test_kernels import here

Array = np.ndarray[Any, Any]
FLOATS = ("f32", "f64")
# Correctly rounded by IEEE 754, or defined by comparisons and bits: these agree bit for bit (NaN's payload apart).
ROUNDED = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
           "sinh", "cosh", "tanh", "erf", "sigmoid", "pow")  # fmt: skip
ULPS = 8  # CUDA C++ Programming Guide, "Mathematical Functions": at most 4 ulp (powf); NumPy's own error and a subnormal's ulp come on top
BITS = ("and", "or", "xor", "not", "shl", "shr")  # their text is for integers
SHIFTS = ("shl", "shr", "div", "isnan")  # no distance is drawn; the others are float operations
# The simulator rounds an f64 fma twice.
NOT_FOR = {"f32": BITS, "f64": (*BITS, "fma"), "i32": SHIFTS, "i64": SHIFTS}


@cache
def values(dtype: str) -> tuple[Array, Array]:
    """Pairs: all of a list of hard values, then random ones."""
    rng = np.random.default_rng(0)
    hard: Array
    loose: Array
    if dtype in FLOATS:
        hard = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.0, 1e-30, -1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan, 88.0, -104.0])
        loose = rng.standard_normal((2, 2000)) * 10 ** rng.uniform(-3, 2, (2, 2000))
    else:
        info = np.iinfo(DTYPES[dtype])
        hard = np.array([0, 1, -1, 2, 3, -3, 7, -7, info.min, info.max, info.min + 1, 1 << 20])
        loose = rng.integers(-1000, 1000, (2, 2000))
    a, b = (x.ravel() for x in np.meshgrid(hard, hard))
    return np.concatenate([a, loose[0]]).astype(DTYPES[dtype]), np.concatenate([b, loose[1]]).astype(DTYPES[dtype])


def kernel(name: str, dtype: str) -> ir.Kernel:
    n = len(values(dtype)[0])
    row = ops()[name]
    at, inside = var("bx") * 128 + var("tid"), (ir.Cmp(var("bx") * 128 + var("tid"), "<", const(n)),)
    result = row.gives(dtype)
    args = ("t", "a", "b") if name == "where" else ("a", "b", "a")[: row.arity]
    body: tuple[ir.Stmt, ...] = (
        ir.Load(("a",), dtype, "global", "x", at, inside), ir.Load(("b",), dtype, "global", "y", at, inside),
        ir.Let("t", "bool", "lt", ("a", "b")),
        ir.Let("r", result, name, args),
        ir.Store(("r",), result, "global", "o", at, inside),
    )  # fmt: skip
    params = (ir.Param("x", dtype, n, "input"), ir.Param("y", dtype, n, "input"), ir.Param("o", result, n, "output"))
    return ir.Kernel(f"op_{name}", params, (-(-n // 128), 1, 1), 128, (), body)


CASES = [
    (row.name, dtype) for dtype in ("f32", "f64", "i32", "i64") for row in ops().values()
    if row.cuda.keys() & {dtype, "*"} and row.name not in NOT_FOR[dtype]
    and exact(row.name) == row.name  # approximations have bounds of their own, in test_accuracy
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_device_agrees_with_numpy(name: str, dtype: str) -> None:
    k, target = kernel(name, dtype), here()
    ir.verify(k, target)
    x, y = values(dtype)
    result = k.params[2].dtype
    arrays = {"x": x, "y": y, "o": np.empty(len(x), DTYPES[result])}
    simulate.run(k, arrays)
    buffers = [Buffer(p.name, (p.size,), p.dtype) for p in k.params]
    launch = Launch(k, nvrtc.compile_cubin(cuda.source(k), target.arch), {p.name: p.name for p in k.params})
    run = Executable(Program((launch,), tuple(buffers[:2]), (), (buffers[2],), target.arch))
    (found,) = run(to_torch(x, dtype).cuda(), to_torch(y, dtype).cuda())
    got, wanted = to_numpy(found), arrays["o"]
    if result not in FLOATS:
        np.testing.assert_array_equal(got, wanted)
        return
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    real = ~np.isnan(wanted)
    if name not in ROUNDED:
        np.testing.assert_array_equal(got[real].view(f"i{got.itemsize}"), wanted[real].view(f"i{got.itemsize}"))
        return
    finite = real & np.isfinite(wanted)
    np.testing.assert_array_equal(got[real & ~finite], wanted[real & ~finite])
    off = np.abs(got[finite].astype(np.float64) - wanted[finite])
    assert (off <= ULPS * np.spacing(np.abs(wanted[finite])).astype(np.float64)).all()
