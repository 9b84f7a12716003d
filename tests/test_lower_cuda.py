"""One CUDA source a family, kept as it is, and accepted by NVRTC for three targets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emmy_eq.codegen import cuda, schedule, tile_ir
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.extract.targets import target
from tests import tile_kernels as kernels

FAMILIES = {
    "map": (kernels.add_bias(64, 256), "WORK=t64 TILE=i0:t2,i1:t32.v4"),
    "transpose": (kernels.transpose(64, 64), "WORK=t256 TILE=i0:t8,i1:t32 STAGE=1:shared"),
    "row_reduction": (kernels.softmax(64, 128), "WORK=t64 TILE=i0:t2 REDUCE=i1:t32.v4"),
    "column_reduction": (kernels.column_sum(64, 64), "WORK=t64 TILE=i1:t32 REDUCE=i0:s.r2.w2"),
    "split_reduction": (kernels.full_sum(4096), "WORK=t32 REDUCE=i0:b8.s.t32.v4"),
    "contraction": (kernels.matmul(64, 64, 64), "WORK=t256 TILE=i0:t16.v2,i1:t16.v2 REDUCE=i2:s.r16 STAGE=2:shared"),
    "attention": (kernels.attention(1, 32, 32, 16), "WORK=t64 TILE=i1:t8.v2,i2:t8 REDUCE=i4:s.t8,i3:r16 STAGE=1:shared"),
    "scan": (kernels.cumsum(8, 64), "WORK=t64 TILE=i0:t4 REDUCE=i1:s.t16.v2"),
    "gather": (kernels.gather(64, 100, 32), "WORK=t64 TILE=i0:t8,i1:t8.v4"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_cuda_of_a_family(name: str, golden: Callable[[str, str], None]) -> None:
    text, row = FAMILIES[name]
    tile = tile_ir.to_tile(kernels.kernel(text), schedule.parse(row))
    for arch in ("sm_80", "sm_90a", "sm_120"):
        source = cuda.source(lower(tile, target(arch)), target(arch))
        assert compile_cubin(source, arch)
    golden(f"lower_{name}.cu", source)
