"""f32 products by warpgroups on the device: right, as near to float64 as documented, special values, the same every time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from emmy_eq import loop_ir
from emmy_eq.arrays import to_numpy, to_torch
from emmy_eq.codegen import schedule
from emmy_eq.codegen.tune.device import executable
from emmy_eq.execute import EAGER_FACTOR
from tests import tile_kernels as kernels
from tests.gpu.test_kernels import here
from tests.test_lower import inputs
from tests.test_tf32 import SPECIAL, drawn, in_float64
from tests.test_wgmma_f32 import LOST, ONE, TURNED, batched, gated

LARGE = "WORK=t256 TILE=i0:w8.m16,i1:r16.n8 REDUCE=i2:s.r4.k8x3 STAGE=4:tma"
WIDE = "WORK=t256 TILE=i1:w8.m16,i0:r18.n8 REDUCE=i2:s.r4.k8x3 STAGE=4:tma"
SPLIT = "WORK=t256 TILE=i0:w8.m16,i1:r14.n8 REDUCE=i2:b4.s.r4.k8x3 STAGE=5:tma"
RESIDENT = "WORK=t128.b2 TILE=i1:w4.m16,i0:r4.n8 REDUCE=i2:b2.s.r4.k8x3 STAGE=4:tma"
BATCHED = "WORK=t256 TILE=i1:w8.m16,i2:r8.n8 REDUCE=i3:s.r4.k8x3 STAGE=5:tma"


@pytest.fixture(autouse=True)
def warpgroups() -> None:
    if not here().wgmma:
        pytest.skip(f"{here()} lacks wgmma")


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (kernels.floats(300, 328, 1032, "mk", "nk"), LARGE),
        (kernels.floats(300, 328, 1032, "km", "nk"), LARGE),
        (kernels.floats(300, 328, 1032, "mk", "kn"), WIDE),
        (kernels.floats(130, 328, 2056, "mk", "nk"), SPLIT),
        (kernels.floats(30, 328, 2056, "mk", "nk"), RESIDENT),
        (kernels.floats(30, 328, 2056, "mk", "kn"), RESIDENT),
        (batched(5, 300, 200, 264), BATCHED),
        (gated(300, 264, 520, "nk"), ONE),
        (gated(300, 264, 520, "kn"), TURNED),
        (kernels.product_by_norm(300, 264, 520), SPLIT),
    ],
)
def test_rows_of_warpgroups(text: str, row: str) -> None:
    kernel = kernels.kernel(text)
    arrays = inputs(kernel)
    run = executable(kernel, schedule.parse(row), here())
    given = [to_torch(arrays[b.name], b.dtype).cuda() for b in kernel.inputs]
    first = run(*given)
    for found, want in zip(first, loop_ir.run(kernel, arrays, float64=True), strict=True):
        got = to_numpy(found)
        # Of sums of up to 2056 products, and f16 results.
        error = (2.0**-11 if got.dtype == np.float16 else 2e-6) * np.abs(want).max()
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=error)
    replay = run.capture(*given)
    for _ in range(50):
        again = replay()
    torch.cuda.synchronize()
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


@pytest.mark.parametrize("depth", [64, 512, 4096])
def test_as_near_to_float64_as_the_documentation_says(depth: int) -> None:
    kernel = kernels.kernel(kernels.floats(256, 256, depth, "mk", "nk"))
    a, b = (torch.randn(256, depth, device="cuda") for _ in range(2))
    want = a.double() @ b.double().T
    (got,) = executable(kernel, schedule.parse(LARGE), here())(a, b)
    ours, eager = (((x.double() - want).norm() / want.norm()).item() for x in (got, a @ b.T))
    assert ours <= EAGER_FACTOR * eager


@pytest.mark.parametrize("row", [ONE, TURNED])
def test_infinity_and_nan_as_in_float64(row: str) -> None:
    a, b = drawn((11, 24)), drawn((10, 24), 2.0**-40)
    a[:10, 5], b[:, 5] = SPECIAL, SPECIAL
    a[10, 5] = np.uint32(0x7F800001).view(np.float32)  # NaN in bits that tf32 drops
    kernel = kernels.kernel(kernels.floats(11, 10, 24, "mk", "nk"))
    (found,) = executable(kernel, schedule.parse(row), here())(to_torch(a, "f32").cuda(), to_torch(b, "f32").cuda())
    got, want = to_numpy(found), in_float64(a, b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    with np.errstate(invalid="ignore"):
        left, right = (np.abs(x).astype(np.float64) for x in (a, b))
        limit = 1e-6 * (left[:, None, :] * right[None, :, :]).max(-1) + LOST * (left.max(1)[:, None] + right.max(1)[None, :])
        assert (np.abs(got - want) <= limit)[np.isfinite(want)].all()
