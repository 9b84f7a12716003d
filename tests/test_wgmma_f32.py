"""f32 products by warpgroups, as three products of tf32 parts: agreement with float64, hostile values, what families propose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emmy_eq.codegen import cuda, kernel_ir, schedule, simulate, tile_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.codegen.tune.candidates import legal
from emmy_eq.errors import Unsupported
from emmy_eq.extract.targets import contracted
from tests import tile_kernels as kernels
from tests.kernel_samples import without
from tests.test_lower import H200, check, simulated
from tests.test_mma import lowered, used
from tests.test_tf32 import SPECIAL, drawn, in_float64

Array = np.ndarray[Any, Any]
ONE = "WORK=t128 TILE=i0:w4.m16,i1:r2.n8 REDUCE=i2:s.r4.k8x3 STAGE=3:tma"
TURNED = "WORK=t128 TILE=i1:w4.m16,i0:r3.n8 REDUCE=i2:s.r4.k8x3 STAGE=2:tma"
TWO = "WORK=t256 TILE=i0:w8.m16,i1:r5.n8 REDUCE=i2:s.r8.k8x3 STAGE=2:tma"
SPLIT = "WORK=t128 TILE=i0:w4.m16,i1:r2.n8 REDUCE=i2:b3.s.r4.k8x3 STAGE=2:tma"
LOST = 2.0**-136  # of an operand: the last bit of a subnormal tf32 value


@pytest.mark.parametrize(
    ("left", "right", "row"),
    [("mk", "nk", ONE), ("km", "nk", TWO), ("mk", "kn", TURNED), ("mk", "nk", TURNED), ("mk", "nk", SPLIT)],
)
def test_operand_orders(left: str, right: str, row: str) -> None:
    text = kernels.floats(72, 44, 140, left, right)
    assert {kernel_ir.Wgmma, kernel_ir.TmaLoad} <= used(lowered(text, row))
    check(text, row)


def gated(m: int, n: int, k: int, right: str) -> str:
    """Two products, a residual, and a second output."""
    shape, index = ((k, n), "i2, i1") if right == "kn" else ((n, k), "i1, i2")
    weight = f"f32[{shape[0]},{shape[1]}]"
    return f"""
kernel gated(x: f32[{m},{k}], g: {weight}, u: {weight}, r: f32[{m},{n}]) -> out: f32[{m},{n}], up: f16[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {k}:
      v0 = load x[i0, i2]
      v1 = load g[{index}]
      v2 = load u[{index}]
      v3 = mul v0, v1
      v4 = mul v0, v2
      carry v5 = sum(v3)
      carry v6 = sum(v4)
    v7 = sigmoid v5
    v8 = mul v7, v6
    v9 = load r[i0, i1]
    v10 = add v8, v9
    v11 = cast f16 v6
    store out[i0, i1] = v10
    store up[i0, i1] = v11
"""


def prologue(m: int, n: int, k: int) -> str:
    """RMSNorm with a gain and a residual before the product, and their sum stored."""
    return f"""
kernel prologue(x: f32[{m},{k}], r: f32[{m},{k}], g: f32[{k}], s: f32[{m}], w: f32[{n},{k}]) -> out: f32[{m},{n}]:
  loop i0 < {m}, i1 < {n}:
    fold i2 < {k}:
      v0 = load x[i0, i2]
      v1 = load r[i0, i2]
      v2 = add v0, v1
      v3 = load g[i2]
      v4 = load s[i0]
      v5 = mul v2, v3
      v6 = mul v5, v4
      v7 = load w[i1, i2]
      v8 = mul v6, v7
      v9 = mul v2, v2
      carry v10 = sum(v8)
      carry v11 = sum(v9)
    v12 = mul v10, v11
    store out[i0, i1] = v12
"""


def batched(count: int, m: int, n: int, k: int) -> str:
    return f"""
kernel batched(a: f32[{count},{m},{k}], b: f32[{count},{n},{k}], bias: f32[{n}]) -> out: f32[{count},{m},{n}]:
  loop i0 < {count}, i1 < {m}, i2 < {n}:
    fold i3 < {k}:
      v0 = load a[i0, i1, i3]
      v1 = load b[i0, i2, i3]
      v2 = mul v0, v1
      carry v3 = sum(v2)
    v4 = load bias[i2]
    v5 = add v3, v4
    store out[i0, i1, i2] = v5
"""


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (kernels.floats(8, 8, 8, "mk", "nk"), ONE),
        (kernels.product_by_norm(70, 24, 72), ONE),
        (kernels.product_by_norm(130, 44, 72), TWO),
        (kernels.product_by_norm(70, 24, 200), SPLIT),
        (gated(70, 40, 72, "nk"), TWO),
        (gated(40, 72, 72, "kn"), TURNED),
        (kernels.linear_relu(33, 20, 52), ONE),  # a prologue that is not 0 beyond k
        (prologue(70, 40, 76), ONE),
        (prologue(70, 40, 76), SPLIT),
        (batched(3, 40, 24, 48), "WORK=t128 TILE=i1:w4.m16,i2:r2.n8 REDUCE=i3:s.r4.k8x3 STAGE=2:tma"),
    ],
)
def test_agrees_with_float64(text: str, row: str) -> None:
    check(text, row)


@pytest.mark.parametrize(
    ("left", "right", "row"),
    [
        ("mk", "kn", ONE),
        ("km", "nk", TURNED),
        ("km", "kn", ONE),
    ],
)
def test_operands_in_shared_memory_lie_along_k(left: str, right: str, row: str) -> None:
    with pytest.raises(Unsupported, match="do not lie along i2"):
        lowered(kernels.floats(64, 64, 64, left, right), row)


@pytest.mark.parametrize(
    ("text", "by_warpgroups"),
    [
        (kernels.floats(256, 256, 256, "mk", "nk"), True),
        (kernels.floats(1000, 520, 512, "mk", "kn"), True),
        (kernels.floats(24, 512, 512, "mk", "kn"), True),
        (kernels.product_by_norm(256, 256, 256), True),
        (gated(256, 256, 256, "nk"), True),
        (gated(256, 256, 256, "kn"), True),
        (batched(2, 40, 32, 64), True),
        (kernels.floats(256, 256, 256, "km", "kn"), False),
        (kernels.linear_relu(256, 256, 256), True),
        (kernels.norm_linear(256, 256, 256), False),  # one operand is computed, the other lies across
        (kernels.norm_then_linear(256, 256, 256), False),  # an operand needs a fold of its own
        (kernels.floats(256, 255, 254, "mk", "nk"), False),  # rows of 1016 bytes
    ],
)
def test_rows_of_warpgroups_where_they_can_be(text: str, by_warpgroups: bool) -> None:
    kernel = kernels.kernel(text)
    rows = schedules(kernel, H200)
    row = next((row for row in rows if row.stage.path == "tma" and legal(kernel, row, H200)), rows[0])
    made = lower(tile_ir.to_tile(kernel, row), H200)
    assert (kernel_ir.Wgmma in used(made)) == by_warpgroups
    kernel_ir.verify(made, H200)
    assert compile_cubin(cuda.source(made, H200), H200.arch)


def test_few_rows_are_the_columns_of_a_wgmma() -> None:
    kernel = kernels.kernel(kernels.floats(24, 4096, 4096, "mk", "nk"))
    row = next(row for row in schedules(kernel, H200) if row.stage.path == "tma")
    assert row.split("i1").atom == "m16"
    assert row.split("i0").tile == 32 or row.split("i0").tile == 24


def product(a: Array, b: Array, row: str) -> Array:
    """a @ b.T in the simulator."""
    text = kernels.floats(len(a), len(b), a.shape[1], "mk", "nk")
    with np.errstate(over="ignore", invalid="ignore"):
        return simulated(kernels.kernel(text), schedule.parse(row), {"a": a, "b": b}, contracted(H200, "default"))[0]


@pytest.mark.parametrize("row", [ONE, TURNED])
def test_infinity_and_nan_as_in_float64(row: str) -> None:
    """Every special value meets every other in one product of a sum whose other products are finite."""
    a, b = drawn((11, 24)), drawn((10, 24), 2.0**-40)
    a[:10, 5], b[:, 5] = SPECIAL, SPECIAL
    a[10, 5] = np.uint32(0x7F800001).view(np.float32)  # NaN in bits that tf32 drops
    got, want = product(a, b, row), in_float64(a, b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    with np.errstate(invalid="ignore"):
        left, right = (np.abs(x).astype(np.float64) for x in (a, b))
        limit = 1e-6 * (left[:, None, :] * right[None, :, :]).max(-1) + LOST * (left.max(1)[:, None] + right.max(1)[None, :])
        assert (np.abs(got - want) <= limit)[np.isfinite(want)].all()


@pytest.mark.parametrize(("left", "right"), [(1e-18, 1e-18), (1e-37, 1.0), (1e-40, 1.0), (8e37, 0.05), (1e-30, 8e37)])
def test_scales_at_the_ends_of_the_range(left: float, right: float) -> None:
    """As near as the three products are for ordinary values, but for what the parts lose."""
    a, b = drawn((16, 40), left), drawn((16, 40), right)
    got, want = product(a, b, ONE), in_float64(a, b)
    lost = LOST * (np.abs(b.astype(np.float64)).sum(1)[None, :] + np.abs(a.astype(np.float64)).sum(1)[:, None])
    assert np.isfinite(want).all()
    assert (np.abs(got - want) - lost).max() <= 4e-7 * np.abs(want).max()


def test_whole_numbers_are_exact_and_others_as_near_as_f32() -> None:
    a = np.random.default_rng(0).integers(-100, 100, (64, 256)).astype(np.float32)
    np.testing.assert_array_equal(product(a, a[:16], ONE), in_float64(a, a[:16]))
    a, b = drawn((64, 512)), drawn((16, 512))
    want = in_float64(a, b)
    # Two of f32's roundings: what is left out of a product, and one of the sum of 32.
    assert np.linalg.norm(product(a, b, ONE) - want) <= 2 * 2.0**-24 * np.linalg.norm(want) * 2


@pytest.mark.parametrize(
    ("kind", "reported"),
    [
        (kernel_ir.ProxyFence, "proxy fence"),
        (kernel_ir.WgmmaFence, "wgmma.fence"),
        (kernel_ir.MbarArrive, "deadlock"),
        (kernel_ir.MbarWait, "race"),
        (kernel_ir.WarpSync, "race"),
    ],
)
def test_the_simulator_needs_every_part_of_the_pipeline(kind: type, reported: str) -> None:
    broken = without(lowered(kernels.floats(64, 16, 256, "mk", "nk"), ONE), kind)
    memory = {p.name: np.ones(p.size, "f4") for p in broken.params}
    with pytest.raises(simulate.KernelFault, match=reported):
        simulate.run(broken, memory)


def test_the_small_parts_have_a_warpgroup_of_their_own() -> None:
    made = lowered(kernels.floats(64, 16, 256, "mk", "nk"), ONE)
    (role,) = (s for s in walk.statements(made.body) if isinstance(s, kernel_ir.Role))
    assert [count for _, count in role.warps] == [4, 4, 4]
