"""Folds in parts: over blocks (attention of few queries over many keys: flash-decoding), and over chunks of a thread's steps."""

from __future__ import annotations

import numpy as np
import pytest

from emmy_eq import tensor_ir
from emmy_eq.arrays import to_numpy
from emmy_eq.codegen import cuda, tile_ir
from emmy_eq.codegen.families import schedules
from emmy_eq.codegen.lower import lower
from emmy_eq.codegen.nvrtc import compile_cubin
from emmy_eq.extract.targets import target
from emmy_eq.pipeline import Compiled, Options
from emmy_eq.torch_ir import capture_code
from tests import tile_kernels as kernels
from tests.test_lower import check

HEADS = "q,k,v=torch.randn(1,{h},{q},64),torch.randn(1,{kv},{n},64),torch.randn(1,{kv},{n},{d}); "
CASES = {
    "heads": (HEADS.format(h=3, kv=3, q=1, n=512, d=64) + "F.scaled_dot_product_attention(q,k,v)", 3),
    "shared keys": (HEADS.format(h=4, kv=2, q=1, n=640, d=64) + "F.scaled_dot_product_attention(q,k,v,enable_gqa=True)", 2),
    "odd extents": (HEADS.format(h=2, kv=2, q=1, n=1027, d=40) + "F.scaled_dot_product_attention(q,k,v)", 2),
    "masks": (HEADS.format(h=2, kv=2, q=3, n=520, d=64) + "torch.softmax((q@k.mT/8).masked_fill(torch.randn(3,520)>1,-9e9),-1)@v", 2),
    "spelled out": (HEADS.format(h=2, kv=2, q=1, n=512, d=64) + "torch.softmax(q@k.transpose(2,3)/8,-1)@v", 2),
}


@pytest.mark.parametrize("name", CASES)
def test_keys_are_split_over_blocks(name: str) -> None:
    code, tiles = CASES[name]
    made = Compiled(lambda: capture_code(code), Options(target="H200", place="fuse"))
    (kernel,) = made.kernel_ir
    assert kernel.grid[0] % tiles == 0
    assert kernel.grid[0] > tiles
    given = made.torch_ir.examples()
    (exact,) = tensor_ir.run(made.tensor_ir, {n: to_numpy(x) for n, x in given.items()}, float64=True)
    (got,) = made.run(given)
    np.testing.assert_allclose(to_numpy(got), exact, rtol=0, atol=2e-6)  # scores of up to 4 in f32, 3e-7 off, are exponents


def test_many_rows_keep_tiles_of_keys() -> None:
    code = HEADS.format(h=4, kv=4, q=256, n=256, d=64) + "F.scaled_dot_product_attention(q,k,v)"
    made = Compiled(lambda: capture_code(code), Options(place="fuse"))
    assert all(split.blocks == 1 for tile in made.tile_ir for _, split in tile.schedule.reduce)


@pytest.mark.parametrize(
    "code", ["torch.randn(1<<20).sum()", "torch.randn(1<<18).argmax()", "torch.logsumexp(torch.randn(1<<20),0)", "torch.randn(1<<20).std()"]
)
def test_one_fold_of_many_elements_is_split_over_blocks(code: str) -> None:
    """Whatever is folded: a monoid, a position, a twist that rescales, one that adjusts."""
    (tile,) = Compiled(lambda: capture_code(code), Options(target="H200")).tile_ir
    assert max(split.blocks for _, split in tile.schedule.reduce) > 1


@pytest.mark.parametrize("code", ["torch.rand({n}).sum()", "(torch.rand({n})**2).sum().sqrt()"])
def test_a_long_sum_is_added_in_chunks(code: str) -> None:
    """A thread's 4000 steps: one chain of additions of 0.1 is 4e-5 off, since all its roundings go one way."""
    made = Compiled(lambda: capture_code(code.format(n=32 * 4000)), Options(schedule="WORK=t32 REDUCE=i0:s.t32 RASTER=row"))
    (given,) = made.torch_ir.examples().values()
    given.fill_(0.1)
    given[0] = 9
    (exact,) = tensor_ir.run(made.tensor_ir, {n: to_numpy(given) for n in made.torch_ir.examples()}, float64=True)
    (got,) = made.run(dict.fromkeys(made.torch_ir.examples(), given))
    np.testing.assert_allclose(float(got), float(exact), rtol=3e-6)


@pytest.mark.parametrize(("group", "dtype", "dim"), [(4, "bf16", 64), (7, "f16", 40), (2, "bf16", 128)])
def test_queries_of_a_group_are_rows_of_tensor_cores(group: int, dtype: str, dim: int) -> None:
    """A thread did every query's sums by fma (H200, 64 groups of 4 queries, 4096 keys, 128 columns: 75.9 us, so 42.0)."""
    text = kernels.attention_halves(3, group, 520, dim, dtype)
    row = schedules(kernels.kernel(text), target("H200"))[0]
    assert row.atoms["i1"] == "m16"
    assert row.split("i4").blocks > 1
    check(text, row, roundings=3)
    for arch in ("sm_80", "sm_90a", "sm_120"):
        at = target(arch)
        made = lower(tile_ir.to_tile(kernels.kernel(text), schedules(kernels.kernel(text), at)[0]), at)
        assert compile_cubin(cuda.source(made, at), arch)
