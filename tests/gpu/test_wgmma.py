"""Warpgroups and the copy engine on the device: right, the same every time, and in captured calls that follow each other at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from emmy_eq import loop_ir
from emmy_eq.arrays import to_numpy, to_torch
from emmy_eq.codegen import schedule
from emmy_eq.codegen.tune.device import executable
from tests import tile_kernels as kernels
from tests.gpu.test_kernels import here
from tests.test_lower import ROUNDED, inputs
from tests.test_mma import roundings
from tests.test_warpgroups import row
from tests.test_wgmma import BATCHED, BESIDE, ONE, TWO, persistent

LARGE = "WORK=t256 TILE=i0:w8.m16,i1:r32.n8 REDUCE=i2:s.r4.k16 STAGE=4:tma"
TWO_BLOCKS = "WORK=t256.b2 TILE=i0:w8.m16,i1:r16.n8 REDUCE=i2:s.r4.k16 STAGE=3:tma RASTER=row"
SPLIT = "WORK=t128 TILE=i0:w4.m16,i1:r8.n8 REDUCE=i2:b3.s.r4.k16 STAGE=4:tma"


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (kernels.halves(1000, 1096, 1032), LARGE),
        (kernels.halves(1000, 1096, 1032, "bf16", "km", "nk"), TWO_BLOCKS),
        (kernels.halves(200, 328, 2056, right="nk"), SPLIT),
        (kernels.halves(300, 77, 520, right="nk"), TWO),
        (kernels.batched_halves(5, 300, 200, 264), BATCHED),
        (kernels.gated_halves(300, 264, 520), ONE),
        (kernels.projections_halves(300, 264, 520), ONE),
        (kernels.norm_linear_halves(300, 264, 520), BESIDE),
        (kernels.halves(1000, 1096, 1032), persistent(LARGE, 7)),
        (kernels.halves(1000, 1096, 1032, "bf16", "km", "nk"), persistent(TWO_BLOCKS.replace("STAGE=3", "STAGE=2"), 20)),
        (kernels.projections_halves(300, 264, 520), persistent(ONE, 11)),
        (kernels.norm_linear_halves(300, 264, 520), persistent(BESIDE, 3)),
        (kernels.attention_halves(6, 1000, 1000, 128, "bf16", True, 2, True), row(8, 128, 128, raster="late3")),
        (kernels.attention_halves(6, 1000, 1000, 128, "bf16", True, 2, True), persistent(row(8, 128, 128, raster="late3"), 20)),
        (kernels.attention_halves(4, 300, 777, 64, "f16"), persistent(row(4, 64, 64, 3), 7)),
        (kernels.attention_halves(4, 300, 777, 64, "f16"), row(8, 64, 64, 3).replace("t256", "t256.b2")),
        (kernels.attention_halves(3, 130, 333, 80, "bf16", False, 1, True), row(4, 80, 64)),
        (kernels.attention_halves(2, 300, 300, 256, "f16", True), row(4, 256, 64, raster="late")),
    ],
)
def test_rows_of_warpgroups(text: str, how: str) -> None:
    if not here().wgmma:
        pytest.skip(f"{here()} lacks wgmma")
    kernel = kernels.kernel(text)
    arrays = inputs(kernel)
    run = executable(kernel, schedule.parse(how), here())
    given = [to_torch(arrays[b.name], b.dtype).cuda() for b in kernel.inputs]
    first = run(*given)
    for found, want in zip(first, loop_ir.run(kernel, arrays, float64=True), strict=True):
        got = to_numpy(found)
        # As in tests/test_lower.py, and the tensor core truncates its sums: 2**-21 of a product for each of the terms.
        error = (roundings(text) * ROUNDED[got.dtype.name] + 2.0**-16) * np.abs(want).max()
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=error)
    replay = run.capture(*given)
    for _ in range(50):
        again = replay()
    torch.cuda.synchronize()
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
