"""Lowering: every kernel, under rows of every kind, agrees in the simulator with the Loop IR interpreter in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emmy_eq import loop_ir
from emmy_eq.codegen import kernel_ir, schedule, simulate, tile_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.lower import barriers, lower
from emmy_eq.errors import Unsupported
from emmy_eq.extract.targets import Target, target
from emmy_eq.index import const
from emmy_eq.ops import DTYPES
from tests import tile_kernels as kernels

H200 = target("H200")
ROUNDED = {"float32": 5e-6, "float64": 5e-6, "float16": 2.0**-11, "bfloat16": 2.0**-8}
Arrays = dict[str, np.ndarray[Any, Any]]


def inputs(kernel: loop_ir.Kernel) -> Arrays:
    """Normal floats; integers that index any buffer here."""
    random = np.random.default_rng(0)
    return {
        b.name: random.integers(0, 7, b.shape).astype(DTYPES[b.dtype])
        if DTYPES[b.dtype].kind in "iu"
        else random.standard_normal(b.shape).astype(DTYPES[b.dtype])
        for b in kernel.inputs
    }


def simulated(kernel: loop_ir.Kernel, row: schedule.Schedule, given: Arrays, on: Target = H200) -> list[np.ndarray[Any, Any]]:
    lowered = lower(tile_ir.to_tile(kernel, row), on)
    kernel_ir.verify(lowered)
    memory = {name: np.ascontiguousarray(x).reshape(-1) for name, x in given.items()}
    memory |= {b.name: np.zeros(int(np.prod(b.shape)), DTYPES[b.dtype]) for b in kernel.outputs}
    simulate.run(lowered, memory)
    return [memory[b.name].reshape(b.shape) for b in kernel.outputs]


def check(text: str, row: str | schedule.Schedule, given: Arrays | None = None, roundings: int = 1) -> None:
    """``roundings``: to 16 bits, on the way to a result of that type."""
    kernel = kernels.kernel(text)
    given = inputs(kernel) if given is None else given
    made = simulated(kernel, schedule.parse(row) if isinstance(row, str) else row, given)
    for got, want in zip(made, loop_ir.run(kernel, given, float64=True), strict=True):
        if got.dtype.name not in ROUNDED:
            np.testing.assert_array_equal(got, want)
            continue
        # f32 sums of up to a few thousand terms: about sqrt(n) roundings of 6e-8, of terms as large as the largest result;
        # a rounding to 16 bits is at most 2**-11 (f16) or 2**-8 (bf16) of the result, ties included.
        error = roundings * ROUNDED[got.dtype.name] * np.nanmax(np.abs(want))
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=error)


TWO_PRODUCTS = """
kernel k(a: f32[5,6], b: f32[6,4], c: f32[4,3]) -> out: f32[5,3]:
  loop i0 < 5, i1 < 3:
    fold i2 < 6:
      x = load a[i0, i2]
      fold i3 < 4:
        y = load b[i2, i3]
        z = load c[i3, i1]
        p = mul y, z
        carry w = sum(p)
      q = mul x, w
      carry s = sum(q)
    store out[i0, i1] = s
"""

MAPS = [
    (kernels.exp_neg(1000), "WORK=t64 TILE=i0:r2.t64.v4"),
    (kernels.exp_neg(1001), "WORK=t64 TILE=i0:s2.r2.t64.v4"),
    (kernels.add_bias(33, 64), "WORK=t64 TILE=i0:s2.r2.t4,i1:t16.v4"),
    (kernels.transpose(50, 70), "WORK=t256 TILE=i0:r4.t8,i1:t32 STAGE=1:shared"),
    (kernels.transpose(64, 64), "WORK=t256 TILE=i0:r8.t8,i1:r2.t32 STAGE=1:shared RASTER=late"),
    (kernels.gather(7, 9, 30), "WORK=t64 TILE=i0:r2.t4,i1:t16.v2"),
]
REDUCTIONS = [
    (kernels.softmax(5, 100), "WORK=t64 TILE=i0:t2 REDUCE=i1:t32.v4"),
    (kernels.softmax(5, 1001), "WORK=t256 REDUCE=i1:t256.v4"),
    (kernels.softmax(5, 1000), "WORK=t64 TILE=i0:t2 REDUCE=i1:s.r2.t32.v4"),
    (kernels.softmax(3, 17), "WORK=t32 TILE=i0:t32 REDUCE=i1:s"),
    (kernels.rmsnorm(5, 1000), "WORK=t256 REDUCE=i1:t256.v4"),
    (kernels.row_sum(7, 300), "WORK=t128 TILE=i0:t2 REDUCE=i1:s.r2.t64.v2"),
    (kernels.column_sum(70, 300), "WORK=t128 TILE=i1:t32.v4 REDUCE=i0:s.r4.w4"),
    (kernels.logsumexp(7, 300), "WORK=t128 TILE=i0:t2 REDUCE=i1:s.r2.t64.v2"),
    (kernels.argmax(7, 300), "WORK=t128 TILE=i0:t2 REDUCE=i1:s.r2.t64.v2"),
    (kernels.variance(7, 301), "WORK=t128 TILE=i0:t2 REDUCE=i1:r3.t64.v2"),
    (kernels.variance(7, 300), "WORK=t128 TILE=i0:t2 REDUCE=i1:s.r2.t32.v2"),
]
SPLIT = [
    (kernels.variance(3, 301), "WORK=t64 TILE=i0:t2 REDUCE=i1:b3.s.t32"),
    (kernels.full_sum(10000), "WORK=t128 REDUCE=i0:b7.s.r2.t128.v4"),
    (kernels.full_sum(1000), "WORK=t64 REDUCE=i0:b130.s.t64"),
    (kernels.column_sum(300, 100), "WORK=t128 TILE=i1:t32.v4 REDUCE=i0:b3.s.r4.w4"),
    (kernels.logsumexp(3, 1000), "WORK=t128 TILE=i0:t2 REDUCE=i1:b3.s.r2.t64.v2"),
    (kernels.argmax(3, 1000), "WORK=t128 TILE=i0:t2 REDUCE=i1:b3.s.r2.t64.v2"),
    (kernels.matmul(20, 30, 70), "WORK=t64 TILE=i0:t8.v4,i1:t8.v4 REDUCE=i2:b3.s.r8 STAGE=2:shared"),
    (kernels.attention(1, 10, 70, 16), "WORK=t64 TILE=i1:t8.v4,i2:t8.v2 REDUCE=i4:b2.s.t8.v4,i3:r16 STAGE=1:shared"),
]
SMALL_TILE = "WORK=t64 TILE=i0:t8.v4,i1:t8.v4 REDUCE=i2:s.r8 STAGE="
CONTRACTIONS = [
    (kernels.matmul(7, 9, 30), "WORK=t64 TILE=i0:r2,i1:t4 REDUCE=i2:s.t16.v2"),
    (kernels.matmul(37, 50, 33), SMALL_TILE + "1:shared"),
    (kernels.matmul(37, 50, 33), SMALL_TILE + "2:shared"),
    (kernels.matmul(130, 150, 40), "WORK=t256.b2 TILE=i0:r2.t16.v4,i1:r2.t16.v4 REDUCE=i2:s.r16 STAGE=2:shared"),
    (kernels.matmul(128, 96, 24), "WORK=t64 TILE=i0:t8.v4,i1:t8.v4 REDUCE=i2:s.r8 STAGE=2:shared RASTER=g2"),
    (kernels.linear_relu(37, 50, 33), SMALL_TILE + "2:shared"),
    (kernels.norm_linear(37, 50, 33), SMALL_TILE + "2:shared"),
    (kernels.norm_then_linear(37, 50, 33), SMALL_TILE + "2:shared"),
    (kernels.norm_linear(37, 50, 33), "WORK=t64 TILE=i0:t8.v4,i1:t8.v4 REDUCE=i2:s.t8.v2 STAGE=2:shared"),
    (kernels.norm_then_linear(37, 50, 33), "WORK=t64 TILE=i0:t8.v4,i1:t8.v4 REDUCE=i2:s.t8 STAGE=2:shared"),
    (kernels.mlp(37, 50, 33), SMALL_TILE + "2:shared"),
    (kernels.matmul_f16(40, 64, 48), "WORK=t64 TILE=i0:t8.v4,i1:t8.v8 REDUCE=i2:s.r16 STAGE=2:shared"),
    (kernels.two_matmuls(37, 50, 33, 29), "WORK=t64 TILE=i0:t8.v4,i1:t8.v4 REDUCE=i2:s.t8.v2,i3:s.r8 STAGE=1:shared"),
]
ATTENTION = [
    (kernels.attention(2, 16, 16, 16), "WORK=t64 TILE=i1:t8.v2,i2:t8.v2 REDUCE=i4:s.t8.v2,i3:r16 STAGE=1:shared"),
    (kernels.attention(1, 50, 70, 24), "WORK=t64 TILE=i1:t8.v4,i2:t8.v4 REDUCE=i4:s.t8.v4,i3:r24 STAGE=1:shared"),
    (kernels.attention(4, 50, 50, 24, True, 2), "WORK=t64 TILE=i1:t8.v4,i2:t8.v4 REDUCE=i4:s.t8.v4,i3:s.r8 STAGE=2:shared RASTER=late"),
    (kernels.attention(1, 5, 9, 8), "WORK=t32 TILE=i1:t4,i2:t8 REDUCE=i4:s,i3:s"),
]  # fmt: skip
SCANS = [
    (kernels.cumsum(5, 100), "WORK=t64 TILE=i0:t2 REDUCE=i1:t32.v4"),
    (kernels.cumsum(3, 300), "WORK=t64 TILE=i0:t4 REDUCE=i1:s.t16.v4"),
    (kernels.cumsum(3, 1000), "WORK=t128 REDUCE=i1:s.r2.t128.v2"),
    (kernels.cumsum(5, 50), "WORK=t32 TILE=i0:t32 REDUCE=i1:s"),
]


@pytest.mark.parametrize(("text", "row"), [*MAPS, *REDUCTIONS, *SPLIT, *CONTRACTIONS, *ATTENTION, *SCANS])
def test_agrees_with_float64(text: str, row: str) -> None:
    check(text, row)


RAGGED = [
    *(f(rows, cols) for f in (kernels.softmax, kernels.column_sum, kernels.argmax, kernels.cumsum) for rows, cols in ((3, 40), (7, 129))),
    *(kernels.linear_relu(m, n, k) for m, n, k in ((1, 33, 70), (4, 64, 128), (3, 5, 7), (20, 40, 36))),
    kernels.attention(2, 1, 40, 16),
    kernels.full_sum(70001),
]


@pytest.mark.parametrize("text", RAGGED)
def test_default_row_agrees_with_float64(text: str) -> None:
    kernel = kernels.kernel(text)
    check(text, schedules(kernel, H200)[0])


def test_every_proposed_row_lowers_right() -> None:
    text = kernels.rmsnorm(3, 130)
    for row in schedules(kernels.kernel(text), H200):
        check(text, row)


def test_row_held_in_registers_is_read_once() -> None:
    lowered = lower(tile_ir.to_tile(kernels.kernel(kernels.softmax(4, 128)), schedule.parse("WORK=t64 TILE=i0:t2 REDUCE=i1:t32.v4")), H200)
    loads = [s for s in lowered.body if isinstance(s, kernel_ir.Load) and s.space == "global"]
    assert [len(s.names) for s in loads] == [4]


def test_nan_and_ties_of_argmax() -> None:
    x = np.array([[1, 5, 5, 2], [np.nan, 9, np.nan, 1], [-np.inf] * 4, [2, np.inf, 1, np.inf]], np.float32)
    kernel = kernels.kernel(kernels.argmax(4, 4))
    for row in ("WORK=t32 TILE=i0:t8 REDUCE=i1:t4", "WORK=t32 REDUCE=i1:s.r2", "WORK=t32 TILE=i0:t8 REDUCE=i1:b2.s.t2"):
        (got,) = simulated(kernel, schedule.parse(row), {"x": x})
        assert got.tolist() == [1, 0, 0, 1]


def test_masked_rows_of_a_twist() -> None:
    """A row masked in part is right though exp(-inf - -inf) is NaN; a row masked wholly gives log 0 = -inf, as logsumexp does."""
    x = np.full((3, 40), -np.inf, np.float32)
    x[0, 33], x[1, :5] = 2, 1
    for row in ("WORK=t64 TILE=i0:t2 REDUCE=i1:s.t32", "WORK=t32 REDUCE=i1:t32.v4", "WORK=t32 REDUCE=i1:b2.s.t8"):
        (got,) = simulated(kernels.kernel(kernels.logsumexp(3, 40)), schedule.parse(row), {"x": x})
        # One logarithm and a sum of five: two roundings at most.
        np.testing.assert_allclose(got, [2, 1 + np.log(5), -np.inf], rtol=3e-7)


def test_infinity_beyond_the_rows_end_does_not_reach_the_sum() -> None:
    """Lanes past the end are masked after the prologue: exp(0) of a padded zero must not count."""
    (got,) = simulated(
        kernels.kernel(kernels.row_sum(2, 33)), schedule.parse("WORK=t64 TILE=i0:t2 REDUCE=i1:r2.t32"), {"x": np.zeros((2, 33), np.float32)}
    )
    assert got.tolist() == [33, 33]


def test_an_empty_scan_leaves_the_rest_of_its_kernel() -> None:
    """Merged with results that are not empty; the scan alone needs no kernel."""
    text = """
kernel k() -> out0: f32[], out1: f32[0]:
  v0 = lit f32 2.0
  fold i0 < 0:
    carry v1 = sum(v0)
  observe:
    store out1[i0] = v1
  v2 = add v0, v1
  store out0[] = v2
"""
    kernel = kernels.kernel(text)
    total, running = simulated(kernel, schedules(kernel, H200)[0], {})
    assert total == 2.0
    assert running.size == 0


def test_threads_of_result_and_fold_cannot_be_the_same() -> None:
    with pytest.raises(Unsupported, match="STAGE=1:shared"):
        lower(tile_ir.to_tile(kernels.kernel(kernels.matmul(8, 32, 32)), schedule.parse("WORK=t32 TILE=i1:t32 REDUCE=i2:t32")), H200)


def test_no_two_axes_of_a_value_go_over_the_same_threads() -> None:
    """b @ c over i2's columns and i3's threads, which are the same: only its diagonal would be computed."""
    row = schedule.parse("WORK=t64 TILE=i0:t8.v2,i1:t8.v2 REDUCE=i2:t8,i3:s.v4 STAGE=2:shared")
    with pytest.raises(Unsupported, match="go over the same threads"):
        lower(tile_ir.to_tile(kernels.kernel(TWO_PRODUCTS), row), H200)


def test_shared_memory_has_a_limit() -> None:
    row = schedule.parse("WORK=t256 TILE=i1:r2.t16.v4,i2:r2.t16.v4 REDUCE=i4:s.t16.v4,i3:r128 STAGE=1:shared")
    tile = tile_ir.to_tile(kernels.kernel(kernels.attention(1, 256, 256, 128)), row)
    with pytest.raises(Unsupported, match="bytes of shared memory"):
        lower(tile, target("RTX5090"))


def test_a_deep_nest_gets_its_barriers_without_walking_it_over_and_over() -> None:
    """A write, a read, and in the next iteration a write again: two barriers, at any depth; passes that double would take years."""
    zero = const(0)
    write = kernel_ir.Store((kernel_ir.Lit("f32", 0),), "f32", "shared", "s", zero)
    body: tuple[kernel_ir.Stmt, ...] = (write, kernel_ir.Load(("v",), "f32", "shared", "s", zero))
    for depth in range(40):
        body = (kernel_ir.For(f"i{depth}", zero, const(2), 1, body),)
    found = barriers.insert(body)
    for _ in range(40):
        (loop,) = found
        assert isinstance(loop, kernel_ir.For)
        found = loop.body
    assert [type(s) for s in found] == [kernel_ir.Barrier, kernel_ir.Store, kernel_ir.Barrier, kernel_ir.Load]


CLAMPED = """
kernel k(x: {dtype}[9,{wide}]) -> out: {dtype}[9,64]:
  loop i0 < 9, i1 < 64:
    v0 = load x[i0, {at}]
    store out[i0, i1] = v0
"""


@pytest.mark.parametrize(
    ("wide", "at"), [(64, "min(i1, 31) + 32"), (32, "max(i1 - 32, 0)"), (64, "max(i1 - 24, 8)"), (40, "min(i1 + 16, 39)")]
)
@pytest.mark.parametrize(("dtype", "vector"), [("bf16", 8), ("f32", 4)])
def test_vectors_lie_within_a_bound_or_beyond_it(wide: int, at: str, dtype: str, vector: int) -> None:
    text, row = CLAMPED.format(dtype=dtype, wide=wide, at=at), f"WORK=t32 TILE=i0:t2,i1:t16.v{vector}"
    check(text, row)
    lowered = lower(tile_ir.to_tile(kernels.kernel(text), schedule.parse(row)), H200)
    assert {len(s.names) for s in walk.statements(lowered.body) if isinstance(s, kernel_ir.Load)} == {vector}


@pytest.mark.parametrize("at", ["min(i1, 29) + 32", "max(i1 - 31, 0)", "min(i1, 31) + min(i1, 15)"])
def test_a_bound_within_a_vector_is_read_by_element(at: str) -> None:
    check(CLAMPED.format(dtype="bf16", wide=64, at=at), "WORK=t32 TILE=i0:t4,i1:t8.v8")
