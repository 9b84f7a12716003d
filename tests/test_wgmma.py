"""Warpgroups (wgmma) and the copy engine: 16-bit products agree in the simulator with float64; CUDA for sm_90a."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emmy_eq.codegen import cuda, kernel_ir, schedule, simulate, tile_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.kernel_ir import walk
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.errors import InvalidInput, Unsupported
from tests import tile_kernels as kernels
from tests.kernel_samples import without
from tests.test_lower import H200, check
from tests.test_mma import lowered, used

ONE = "WORK=t128 TILE=i0:w4.m16,i1:r8.n8 REDUCE=i2:s.r4.k16 STAGE=3:tma"
TWO = "WORK=t256 TILE=i0:w8.m16,i1:r9.n8 REDUCE=i2:s.r4.k16 STAGE=2:tma"
BESIDE = "WORK=t256 TILE=i1:w2.r8.n8,i0:w4.m16 REDUCE=i2:s.r8.k16 STAGE=2:tma"
BATCHED = "WORK=t128 TILE=i1:w4.m16,i2:r5.n8 REDUCE=i3:s.r4.k16 STAGE=4:tma"

TURNED = "WORK=t128 TILE=i1:w4.m16,i0:r{columns}.n8 REDUCE=i2:b{parts}.s.r4.k16 STAGE=4:tma"


@pytest.mark.parametrize("left", ["mk", "km"])
@pytest.mark.parametrize("right", ["kn", "nk"])
@pytest.mark.parametrize(("dtype", "row"), [("f16", ONE), ("bf16", TWO), ("f16", BESIDE)])
def test_operand_orders(dtype: str, left: str, right: str, row: str) -> None:
    check(kernels.halves(72, 136, 136, dtype, left, right), row)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (kernels.halves(64, 64, 64), ONE),
        (kernels.halves(64, 64, 64), TWO),
        (kernels.halves(9, 8, 8), ONE),
        (kernels.halves(130, 77, 72, right="nk"), TWO),  # no tensor has rows of 77 elements
        (kernels.halves(65, 72, 1032, "bf16"), ONE + " RASTER=late"),
        (kernels.halves(256, 144, 128), TWO + " RASTER=g2"),
        (kernels.batched_halves(3, 70, 44, 136), BATCHED),
        (kernels.gated_halves(130, 136, 136), TWO),
        (kernels.gated_halves(70, 136, 200), ONE),
        (kernels.gated_halves(130, 130, 136, "nk"), BESIDE),
        (kernels.projections_halves(130, 72, 136), ONE),
        (kernels.halves(70, 72, 520), "WORK=t128 TILE=i0:w4.m16,i1:r8.n8 REDUCE=i2:b3.s.r4.k16 STAGE=2:tma"),
        (kernels.halves(2, 136, 520, right="nk"), TURNED.format(columns=1, parts=3)),
        (kernels.halves(13, 136, 264, "bf16"), TURNED.format(columns=2, parts=1)),
        (kernels.gated_halves(24, 136, 264, "nk"), TURNED.format(columns=3, parts=2)),
        (kernels.norm_linear_halves(64, 128, 512), "WORK=t128 TILE=i0:w4.m16,i1:r8.n8 REDUCE=i2:b2.s.r4.k16 STAGE=2:tma"),
        (kernels.norm_linear_halves(130, 75, 200), TWO),
        (kernels.norm_linear_halves(70, 130, 200), BESIDE),
        (kernels.heads_linear_halves(70, 72, 3, 72), "WORK=t128 TILE=i0:w4.m16,i1:r9.n8 REDUCE=i2:s,i3:s.r4.k16 STAGE=3:tma"),
        (kernels.heads_linear_halves(70, 72, 5, 64), "WORK=t128 TILE=i0:w4.m16,i1:r9.n8 REDUCE=i2:s,i3:r4.k16 STAGE=3:tma"),
        (kernels.heads_linear_halves(70, 72, 5, 72), "WORK=t128 TILE=i0:w4.m16,i1:r9.n8 REDUCE=i2:b3.s,i3:s.r4.k16 STAGE=3:tma"),
    ],
)
def test_agrees_with_float64(text: str, row: str) -> None:
    assert {kernel_ir.Wgmma, kernel_ir.TmaLoad} <= used(lowered(text, row))
    check(text, row)


def persistent(row: str, blocks: int) -> str:
    """``row``, by so many blocks that take one tile after another."""
    work, rest = row.split(" ", 1)
    return f"{work}.p{blocks} {rest}"


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (kernels.halves(200, 200, 136), persistent(ONE, 3)),  # 16 tiles: the last round has work for one block
        (kernels.halves(136, 144, 136, "bf16", "km", "nk"), persistent(TWO, 9)),  # more blocks than tiles
        (kernels.halves(130, 77, 72, right="nk"), persistent(TWO, 1)),  # stored without the copy engine
        (
            kernels.halves(64, 392, 72),
            persistent("WORK=t128 TILE=i0:w4.m16,i1:r24.n8 REDUCE=i2:s.r4.k16 STAGE=2:tma", 2),
        ),  # three boxes a warp
        (kernels.gated_halves(130, 130, 136, "nk"), persistent(BESIDE, 2)),
        (kernels.projections_halves(130, 136, 136), persistent(ONE, 2)),  # two outputs
        (kernels.batched_halves(3, 70, 44, 136), persistent(BATCHED, 5)),
        (kernels.norm_linear_halves(130, 75, 200), persistent(TWO, 1)),
        (
            kernels.heads_linear_halves(70, 72, 3, 72),
            persistent("WORK=t128 TILE=i0:w4.m16,i1:r9.n8 REDUCE=i2:s,i3:s.r4.k16 STAGE=3:tma", 1),
        ),
        (kernels.halves(70, 72, 520), persistent("WORK=t128 TILE=i0:w4.m16,i1:r8.n8 REDUCE=i2:b3.s.r4.k16 STAGE=2:tma", 2)),
    ],
)
def test_persistent_blocks_agree_with_float64(text: str, row: str) -> None:
    made, parsed = lowered(text, row), schedule.parse(row)
    kernel_ir.verify(made, H200)
    assert made.grid[0] <= parsed.persistent
    assert schedule.parse(str(parsed)) == parsed
    check(text, row)


def test_results_of_a_persistent_block_have_room_of_their_own() -> None:
    row = persistent(ONE, 2)
    made = lowered(kernels.halves(200, 200, 136), row)
    assert [a.name for a in made.shared if a.name.startswith("result")] == ["result0"]
    broken = without(made, kernel_ir.TmaWait)
    with pytest.raises(simulate.KernelFault, match="race"):
        simulate.run(broken, {p.name: np.ones(p.size, "f2") for p in broken.params})


EVERY = [
    kernels.halves(256, 256, 256, "bf16"),
    kernels.halves(104, 77, 336, "f16", "km", "nk"),
    kernels.batched_halves(2, 40, 32, 64),
    kernels.gated_halves(128, 128, 64),
    kernels.norm_linear_halves(64, 64, 128),
    kernels.heads_linear_halves(64, 64, 2, 64),
]


@pytest.mark.parametrize("text", EVERY)
def test_what_the_copy_engine_can_read_has_rows_of_warpgroups(text: str) -> None:
    row = next(row for row in schedules(kernels.kernel(text), H200) if row.stage.path == "tma")
    made = lower(tile_ir.to_tile(kernels.kernel(text), row), H200)
    assert kernel_ir.Wgmma in used(made)
    kernel_ir.verify(made, H200)
    assert compile_cubin(cuda.source(made, H200), H200.arch)
    check(text, row)


def test_small_products_are_left_to_warps() -> None:
    """H200, 64 x 64 x 64: 1.48 us, by warpgroups 1.8; 256 x 256 x 256: 2.55 by warpgroups, 2.7."""
    first = {n: schedules(kernels.kernel(kernels.halves(n, n, n, "bf16")), H200)[0].stage.path for n in (64, 1024)}
    assert first == {64: "async", 1024: "tma"}


@pytest.mark.parametrize(
    "text",
    [
        kernels.halves(100, 77, 333),  # rows of 666 bytes
        kernels.halves(104, 77, 336),  # rows of 154 bytes
        kernels.mlp_halves(128, 128, 64),  # an operand is computed
        kernels.norm_then_linear_halves(64, 64, 128),
    ],
)
def test_what_the_copy_engine_cannot_read_has_no_such_row(text: str) -> None:
    rows = schedules(kernels.kernel(text), H200)
    assert {row.stage.path for row in rows if row.atoms} == {"async"}
    with pytest.raises(Unsupported, match="copy engine"):
        lowered(text, ONE)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("WORK=t64 TILE=i0:w2.m16,i1:r8.n8 REDUCE=i2:s.r4.k16 STAGE=2:tma", "w4.m16"),
        ("WORK=t128 TILE=i0:w4.r2.m16,i1:r8.n8 REDUCE=i2:s.r4.k16 STAGE=2:tma", "w4.m16"),
        ("WORK=t256 TILE=i0:w4.m16,i1:w2.r8.n8 REDUCE=i2:s.r4.k16 STAGE=2:tma", "no axis after it"),
        ("WORK=t128 TILE=i0:w4.m16,i1:r33.n8 REDUCE=i2:s.r4.k16 STAGE=2:tma", "256 columns"),
        ("WORK=t128 TILE=i0:w4.m16,i1:r8.n8 REDUCE=i2:s.r2.k16 STAGE=2:tma", "rows of 128 bytes"),
        ("WORK=t128 TILE=i0:t16,i1:t8 REDUCE=i2:s.r16 STAGE=2:tma", "missing"),
        ("WORK=t128 TILE=i0:w4.m16,i1:r8.n8 REDUCE=i2:s.r4.k16 STAGE=9:tma", "2 to 8"),
        ("WORK=t128.p4 TILE=i0:w4.m16,i1:r8.n8 REDUCE=i2:s.r4.k16 STAGE=3:async", "several tiles"),
    ],
)
def test_illegal_row_says_why(row: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        schedule.parse(row)


@pytest.mark.parametrize(
    ("right", "row", "columns"), [("kn", ONE, 128), ("nk", ONE, 128), ("nk", TWO, 144), ("kn", TWO, 72), ("nk", BESIDE, 64)]
)
def test_products_of_one_operand_are_one_wgmma_where_the_others_can_lie_side_by_side(right: str, row: str, columns: int) -> None:
    made = lowered(kernels.gated_halves(64, 144, 128, right), row)
    assert {s.n for s in walk.statements(made.body) if isinstance(s, kernel_ir.Wgmma)} == {columns}


def test_a_buffer_may_have_a_name_that_lowering_would_give() -> None:
    text = kernels.halves(64, 64, 64).replace("a: f16", "box0: f16").replace("load a[", "load box0[").replace("out", "map0")
    check(text, ONE)
    assert compile_cubin(cuda.source(lowered(text, ONE), H200), H200.arch)


def test_results_leave_by_the_copy_engine_where_it_can_write_them() -> None:
    made = used(lowered(kernels.projections_halves(130, 72, 136), ONE))
    assert {kernel_ir.Stmatrix, kernel_ir.TmaStore} <= made
    made = used(lowered(kernels.halves(130, 77, 72, right="nk"), TWO))
    assert kernel_ir.Store in made
    assert kernel_ir.TmaStore not in made


def test_columns_of_two_warpgroups_start_at_panels() -> None:
    row = "WORK=t256 TILE=i1:w2.r9.n8,i0:w4.m16 REDUCE=i2:s.r4.k16 STAGE=2:tma"
    check(kernels.halves(64, 144, 64, right="nk"), row)
    with pytest.raises(Unsupported, match="multiples of 64"):
        lowered(kernels.halves(64, 144, 64), row)


@pytest.mark.parametrize(
    ("kind", "reported"),
    [
        (kernel_ir.WgmmaFence, "wgmma.fence"),
        (kernel_ir.MbarExpect, "deadlock"),
        (kernel_ir.MbarArrive, "deadlock"),
        (kernel_ir.WgmmaWait, "race"),
        (kernel_ir.MbarWait, "race"),
    ],
)
def test_the_simulator_needs_every_part_of_the_pipeline(kind: type, reported: str) -> None:
    """A row without one of its synchronizations is found out, so that agreement above means something."""
    text = kernels.halves(64, 64, 512)
    broken = without(lowered(text, ONE), kind)
    memory = {p.name: np.ones(p.size, "f2") for p in broken.params}
    with pytest.raises(simulate.KernelFault, match=reported):
        simulate.run(broken, memory)


def test_cuda_of_a_product_by_warpgroups(golden: Callable[[str, str], None]) -> None:
    text = kernels.halves(64, 16, 256, right="nk")
    row = "WORK=t128 TILE=i0:w4.m16,i1:r2.n8 REDUCE=i2:s.r4.k16 STAGE=3:tma"
    golden("lower_wgmma.cu", cuda.source(lowered(text, row), H200))


@pytest.mark.parametrize("rows", [5, 8, 13, 32])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_few_rows_are_the_columns_of_a_wgmma(rows: int, dtype: str) -> None:
    """Rows of x padded to a warpgroup's 64 wait for boxes that are mostly empty (H200, 16 x 4096 x 4096: 16.6 us, as columns 9.0)."""
    row = schedules(kernels.kernel(kernels.halves(rows, 4096, 4096, dtype, right="nk")), H200)[0]
    assert (row.stage.path, row.split("i1").atom, row.split("i0").tile) == ("tma", "m16", -(-rows // 8) * 8)
    assert 4096 // row.split("i1").tile * row.split("i2").blocks > H200.sms // 2


@pytest.mark.parametrize("right", ["kn", "nk"])
def test_default_of_few_rows_agrees_with_float64(right: str) -> None:
    for text in (kernels.halves(5, 256, 512, "bf16", right=right), kernels.gated_halves(9, 256, 512, right)):
        kernel = kernels.kernel(text)
        row = schedules(kernel, H200)[0]
        assert kernel_ir.Wgmma in used(lower(tile_ir.to_tile(kernel, row), H200))
        check(text, row)
