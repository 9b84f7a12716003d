"""Tensor cores: 16-bit products of every order, shape and epilogue agree in the simulator with float64; CUDA for three targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emmy_eq.codegen import cuda, kernel_ir, schedule, tile_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.errors import InvalidInput
from emmy_eq.extract.targets import target
from tests import tile_kernels as kernels
from tests.test_lower import H200, check

SMALL = "WORK=t64 TILE=i0:w2.m16,i1:r2.n8 REDUCE=i2:s.k16 STAGE=2:async"
WIDE = "WORK=t128 TILE=i0:w2.r2.m16,i1:w2.r3.n8 REDUCE=i2:s.r2.k16 STAGE="
BATCHED = "WORK=t64 TILE=i1:r2.m16,i2:w2.r2.n8 REDUCE=i3:s.r2.k16 STAGE="


def used(kernel: kernel_ir.Kernel) -> set[type]:
    return {type(s) for s in walk.statements(kernel.body)}


def roundings(text: str) -> int:
    """Of a prologue to 16 bits, once for each product it enters, and of the result."""
    return {"mlp_halves": 3, "norm_then_linear_halves": 2, "attention_halves": 3}.get(kernels.kernel(text).name, 1)


def lowered(text: str, row: str, arch: str = "sm_90a") -> kernel_ir.Kernel:
    return lower(tile_ir.to_tile(kernels.kernel(text), schedule.parse(row)), target(arch))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("left", ["mk", "km"])
@pytest.mark.parametrize("right", ["kn", "nk"])
def test_operand_orders(dtype: str, left: str, right: str) -> None:
    check(kernels.halves(72, 56, 104, dtype, left, right), WIDE + "3:async")


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (kernels.halves(32, 16, 32), SMALL),
        (kernels.halves(33, 19, 49), SMALL),
        (kernels.halves(1, 1, 1), SMALL),
        (kernels.halves(70, 58, 34, "bf16", "km", "nk"), WIDE + "2:async"),
        (kernels.halves(67, 50, 90), WIDE + "4:async"),
        (kernels.halves(67, 50, 16), WIDE + "4:async"),
        (kernels.halves(67, 50, 90), WIDE + "1:shared"),
        (kernels.halves(64, 48, 96), WIDE + "2:shared"),
        (kernels.halves(40, 24, 200), "WORK=t64 TILE=i0:w2.m16,i1:r2.n8 REDUCE=i2:b3.s.k16 STAGE=3:async"),
        (kernels.halves(40, 24, 64), "WORK=t64 TILE=i0:s2.w2.m16,i1:r2.n8 REDUCE=i2:s.k16 STAGE=3:async"),
        (kernels.batched_halves(3, 37, 40, 48), BATCHED + "3:async"),
        (kernels.batched_halves(2, 32, 33, 47), BATCHED + "2:shared"),
        (kernels.mlp_halves(50, 40, 72), WIDE + "3:async"),
        (kernels.mlp_halves(50, 41, 33), WIDE + "2:async"),
        (kernels.norm_linear_halves(50, 40, 72), WIDE + "3:async"),
        (kernels.norm_linear_halves(50, 40, 71), WIDE + "2:shared"),
        (kernels.norm_linear_halves(50, 40, 200), "WORK=t64 TILE=i0:w2.m16,i1:r2.n8 REDUCE=i2:b2.s.k16 STAGE=3:async"),
        (kernels.norm_then_linear_halves(50, 40, 72), WIDE + "3:async"),
        (kernels.norm_then_linear_halves(50, 40, 75), WIDE + "2:shared"),
        (kernels.heads_linear_halves(50, 40, 5, 24), "WORK=t64 TILE=i0:w2.m16,i1:r2.n8 REDUCE=i2:s,i3:s.k16 STAGE=3:async"),
        (kernels.heads_linear_halves(50, 40, 4, 32), "WORK=t64 TILE=i0:w2.m16,i1:r2.n8 REDUCE=i2:s,i3:r2.k16 STAGE=2:async"),
    ],
)
def test_agrees_with_float64(text: str, row: str) -> None:
    assert kernel_ir.Mma in used(lowered(text, row))
    check(text, row, roundings=roundings(text))


TWISTED = "WORK=t64 TILE=i1:w2.m16,i2:r{columns}.n8 REDUCE=i4:s.r{keys}.k16,i3:r{depth}.k16 STAGE="


@pytest.mark.parametrize(
    ("shape", "stage", "keys"),
    [
        ((2, 32, 64, 32), "2:async", 2),
        ((1, 70, 100, 64, "bf16", True), "2:async", 2),
        ((2, 5, 17, 40, "bf16"), "3:async", 1),
        ((2, 5, 17, 40, "f16", True), "1:shared", 2),
        ((4, 70, 33, 16, "f16", True, 2, True), "3:async", 1),
        ((1, 1, 1, 16), "2:async", 1),
        ((1, 40, 70, 80, "bf16", False, 1, True), "2:shared", 4),
        ((2, 33, 48, 24, "f16"), "4:async", 1),
        ((1, 20, 40, 128, "f16", True), "2:async", 2),
    ],
)
def test_both_products_of_attention_of_16_bits(shape: tuple[Any, ...], stage: str, keys: int) -> None:
    text, dim = kernels.attention_halves(*shape), shape[3]
    row = TWISTED.format(columns=-(-dim // 8), depth=-(-dim // 16), keys=keys) + stage
    made = lowered(text, row)
    products = [s for s in walk.statements(made.body) if isinstance(s, kernel_ir.Mma)]
    assert len(products) == 2 * keys * -(-dim // 16) + keys * -(-dim // 8)
    check(text, row, roundings=3)  # of the weights, in sum and product, and of the result


@pytest.mark.parametrize(
    ("shape", "stage", "keys"),
    [
        ((2, 32, 32, 16), "2:async", 2),
        ((1, 70, 100, 64, True), "2:async", 4),
        ((2, 20, 17, 40), "1:shared", 2),
        ((4, 70, 33, 16, True, 2), "3:async", 1),
    ],
)
def test_both_products_of_attention_of_f32(shape: tuple[Any, ...], stage: str, keys: int) -> None:
    text, steps = kernels.attention(*shape), -(-shape[3] // 8)
    row = f"WORK=t64 TILE=i1:w2.m16,i2:r{steps}.n8 REDUCE=i4:s.r{keys}.k8x3,i3:r{steps}.k8x3 STAGE={stage}"
    assert sum(isinstance(s, kernel_ir.Mma) for s in walk.statements(lowered(text, row).body)) == 6 * keys * steps
    check(text, row)


def test_scores_are_made_anew_for_each_step_of_columns() -> None:
    row = "WORK=t64 TILE=i1:w2.m16,i2:s2.r2.n8 REDUCE=i4:s.r2.k16,i3:r2.k16 STAGE=2:async"
    check(kernels.attention_halves(2, 40, 50, 32, "bf16", True, safe=True), row, roundings=3)


EVERY = [
    kernels.halves(256, 256, 256, "bf16"),
    kernels.halves(100, 77, 333, "f16", "km", "nk"),
    kernels.batched_halves(2, 40, 32, 64),
    kernels.mlp_halves(128, 128, 64),
    kernels.norm_linear_halves(64, 64, 128),
    kernels.norm_then_linear_halves(64, 64, 128),
    kernels.heads_linear_halves(64, 64, 2, 64),
    kernels.attention_halves(2, 128, 128, 64, "bf16", causal=True, safe=True),
    kernels.attention_halves(4, 70, 100, 40, groups=2),
]


@pytest.mark.parametrize("text", EVERY)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_tensor_cores_are_the_default(text: str, arch: str) -> None:
    kernel = kernels.kernel(text)
    row = schedules(kernel, target(arch))[0]
    made = lower(tile_ir.to_tile(kernel, row), target(arch))
    assert {kernel_ir.Mma, kernel_ir.Wgmma} & used(made)
    assert compile_cubin(cuda.source(made, target(arch)), arch)
    if arch == "sm_90a":
        check(text, row, roundings=roundings(text))


@pytest.mark.parametrize(
    "text",
    [
        kernels.matmul(64, 64, 64),
        kernels.matmul_f16(64, 64, 64),  # of two types
        kernels.halves(4, 64, 64),  # few rows
        kernels.norm_linear(64, 64, 64),
        kernels.attention(2, 64, 64, 32),
    ],
)
def test_what_tensor_cores_do_not_take_has_no_such_row(text: str) -> None:
    assert "k16" not in " ".join(map(str, schedules(kernels.kernel(text), H200)))


def test_aligned_operands_are_copied_and_odd_ones_go_through_registers() -> None:
    assert kernel_ir.CpAsync in used(lowered(kernels.halves(64, 48, 96), WIDE + "3:async"))
    assert kernel_ir.CpAsync not in used(lowered(kernels.halves(67, 49, 91), WIDE + "3:async"))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("WORK=t64 TILE=i0:w2.m16,i1:r2.n8 REDUCE=i2:s.r16 STAGE=2:async", "k16, k8, k8x3 in REDUCE"),
        ("WORK=t64 TILE=i0:w2.m16,i1:t2 REDUCE=i2:s.k16 STAGE=2:async", "n8 stand in TILE"),
        ("WORK=t64 TILE=i0:t2.m16,i1:r2.n8 REDUCE=i2:s.k16 STAGE=2:async", "whole warps"),
        ("WORK=t64 TILE=i0:w2.v2.m16,i1:n8 REDUCE=i2:s.k16 STAGE=2:async", "no vector lanes"),
        ("WORK=t64 TILE=i0:m16,i1:n8 REDUCE=i2:s.k16 STAGE=2:async", "are 32 threads"),
        ("WORK=t32 TILE=i0:m16,i1:n8 REDUCE=i2:s.k16", "shared memory"),
        ("WORK=t32 TILE=i0:m16,i1:n8 REDUCE=i2:s.k16 STAGE=5:async", "2 to 4"),
        ("WORK=t32 TILE=i0:m16.w2,i1:n8 REDUCE=i2:s.k16 STAGE=2:async", "m16, n8, k16, k8, k8x3 end one"),
    ],
)
def test_illegal_row_says_why(row: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        schedule.parse(row)


def test_canonical_spelling() -> None:
    text = "STAGE=4:async REDUCE=i2:r2.s.k16 TILE=i0:r4.w2.m16,i1:w4.r4.n8 WORK=t256"
    assert str(schedule.parse(text)) == "WORK=t256 TILE=i0:w2.r4.m16,i1:w4.r4.n8 REDUCE=i2:s.r2.k16 STAGE=4:async RASTER=row"


def test_cuda_of_a_product_on_tensor_cores(golden: Callable[[str, str], None]) -> None:
    text = kernels.halves(64, 32, 64, right="kn")
    row = "WORK=t64 TILE=i0:w2.m16,i1:r2.n8 REDUCE=i2:s.k16 STAGE=3:async"
    golden("lower_matrix.cu", cuda.source(lowered(text, row), target("sm_90a")))
