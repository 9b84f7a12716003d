"""f32 products on tensor cores as products of tf32 values: every order and shape against float64, and hostile values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import emmy_eq
from emmy_eq import report
from emmy_eq.codegen import cuda, kernel_ir, schedule, tile_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.errors import Unsupported
from emmy_eq.extract.targets import contracted, target
from tests import tile_kernels as kernels
from tests.test_lower import H200, check, simulated

Array = np.ndarray[Any, Any]
SMALL = "WORK=t64 TILE=i0:w2.m16,i1:r2.n8 REDUCE=i2:s.{} STAGE=2:async"
WIDE = "WORK=t128 TILE=i0:w2.r2.m16,i1:w2.r3.n8 REDUCE=i2:s.r2.{} STAGE="
LOST = 2.0**-145  # of an operand: the last bit of a subnormal tf32 value, 2^-136, by the scale of small parts


@pytest.mark.parametrize("left", ["mk", "km"])
@pytest.mark.parametrize("right", ["kn", "nk"])
@pytest.mark.parametrize("stage", ["1:shared", "3:async"])
def test_operand_orders(left: str, right: str, stage: str) -> None:
    check(kernels.floats(70, 57, 43, left, right), WIDE.format("k8x3") + stage)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (kernels.matmul(1, 1, 1), SMALL),
        (kernels.linear_relu(33, 19, 49), SMALL),
        (kernels.mlp(50, 40, 72), WIDE + "2:async"),
        (kernels.norm_linear(50, 40, 72), WIDE + "3:async"),
        (kernels.norm_then_linear(50, 40, 75), WIDE + "2:shared"),
        (kernels.matmul_f16(40, 64, 48), WIDE + "2:shared"),
        (kernels.matmul(40, 24, 200), "WORK=t64 TILE=i0:w2.m16,i1:r2.n8 REDUCE=i2:b3.s.{} STAGE=3:async"),
    ],
)
def test_agrees_with_float64(text: str, row: str) -> None:
    check(text, row.format("k8x3"))


def test_small_products_take_tensor_cores_first_where_warpgroups_cannot() -> None:
    kernel = kernels.kernel(kernels.floats(32, 96, 256, "km", "kn"))
    found = [str(row) for row in schedules(kernel, H200)]
    assert "k8x3" in found[0]
    assert any("STAGE=2:shared" in row for row in found)


def test_products_are_counted_on_the_unit_of_their_row() -> None:
    program = emmy_eq.compile(lambda a, b: torch.relu(a @ b) * 3, (torch.empty(32, 1024), torch.empty(1024, 1024)))
    (record,) = report.kernel_records(program)
    assert "k8x3" in record["schedule"]
    assert record["flops_by_unit"] == {"fma": 32 * 1024, "tf32x3": 2 * 32 * 1024 * 1024}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_fast_rounds_operands(arch: str) -> None:
    kernel, fast = kernels.kernel(kernels.matmul(100, 96, 64)), contracted(target(arch), "fast")
    tile = tile_ir.to_tile(kernel, schedules(kernel, fast)[0])
    made = lower(tile, fast)
    assert "tf32" in {s.dtype for s in walk.statements(made.body) if isinstance(s, kernel_ir.Mma)}
    assert compile_cubin(cuda.source(made, fast), arch)
    with pytest.raises(Unsupported, match="--accuracy fast"):
        lower(tile, target(arch))


def test_rounded_operands_keep_the_bound() -> None:
    a, b = drawn((16, 40)), drawn((16, 40))
    a[:2, 0] = 3.4028e38, np.nan
    b[:2, 0] = 1e-3, 2.0
    got, want = product(a, b, "k8"), in_float64(a, b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    with np.errstate(invalid="ignore"):
        limit = 2.0**-10 * (np.abs(a).astype(np.float64) @ np.abs(b).T.astype(np.float64))
        assert (np.abs(got - want) <= limit)[np.isfinite(want)].all()


def product(a: Array, b: Array, atom: str = "k8x3") -> Array:
    """a @ b.T in the simulator."""
    text = kernels.floats(len(a), len(b), a.shape[1], "mk", "nk")
    row = schedule.parse(SMALL.format(atom))
    with np.errstate(over="ignore", invalid="ignore"):
        return simulated(kernels.kernel(text), row, {"a": a, "b": b}, contracted(H200, "fast"))[0]


def in_float64(a: Array, b: Array) -> Array:
    """a @ b.T, infinite where f32 is."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact = a.astype(np.float64) @ b.T.astype(np.float64)
        return np.where(np.isinf(exact.astype(np.float32)), np.copysign(np.inf, exact), exact)


def drawn(shape: tuple[int, ...], scale: float = 1.0) -> Array:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * scale).astype(np.float32)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, 1 / 3, 2e-41, 3e38, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("swapped", [False, True])
def test_infinity_and_nan_as_in_float64(swapped: bool) -> None:
    """Every special value meets every other in one product of a sum whose other products are finite."""
    a, b = drawn((11, 24)), drawn((10, 24), 2.0**-40)
    a[:10, 5], b[:, 5] = SPECIAL, SPECIAL
    a[10, 5] = np.uint32(0x7F800001).view(np.float32)  # NaN in bits that tf32 drops
    got, want = (product(b, a).T, in_float64(b, a).T) if swapped else (product(a, b), in_float64(a, b))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    with np.errstate(invalid="ignore"):
        left, right = (np.abs(x).astype(np.float64) for x in (a, b))
        limit = 1e-6 * (left[:, None, :] * right[None, :, :]).max(-1) + LOST * (left.max(1)[:, None] + right.max(1)[None, :])
        assert (np.abs(got - want) <= limit)[np.isfinite(want)].all()


@pytest.mark.parametrize(
    ("left", "right"),
    [(1e-18, 1e-18), (1e-36, 1e30), (1e-37, 1.0), (1e-40, 1.0), (8e37, 0.05), (1e-30, 8e37), (2.0**-126, 2.0**100)],
)
def test_scales_at_the_ends_of_the_range(left: float, right: float) -> None:
    """As near as the three products are for ordinary values, but for what the small parts lose."""
    a, b = drawn((16, 40), left), drawn((16, 40), right)
    got, want = product(a, b), in_float64(a, b)
    lost = LOST * (np.abs(b.astype(np.float64)).sum(1)[None, :] + np.abs(a.astype(np.float64)).sum(1)[:, None])
    assert np.isfinite(want).all()
    assert (np.abs(got - want) - lost).max() <= 4e-7 * np.abs(want).max()
