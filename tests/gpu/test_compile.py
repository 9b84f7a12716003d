"""Small programs from PyTorch to the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import emmy_eq
from emmy_eq.execute import EAGER_FACTOR
from tests.gpu.test_kernels import here

Function = Callable[..., torch.Tensor]

PROGRAMS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "pointwise": (lambda x, y: torch.nn.functional.silu(x) * y + 1.0, ((33, 65), (33, 65))),
    "softmax": (lambda x: torch.softmax(x, -1), ((37, 1000),)),
    "column sum": (lambda x: x.sum(0), ((300, 70),)),
    "full sum": (lambda x: x.sum(), ((513, 1027),)),
    "matmul": (lambda x, y: torch.relu(x @ y), ((70, 130), (130, 50))),
    "rms_norm": (lambda x, w: torch.nn.functional.rms_norm(x, (512,), w), ((64, 512), (512,))),
    "attention": (lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) / 8.0, -1) @ v, ((2, 3, 100, 64),) * 3),
    "one kernel launched twice": (lambda x, w: (x @ w) @ w, ((256, 256), (256, 256))),
    "transpose": (lambda x: x.t().contiguous() * 2.0, ((100, 60),)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_against_float64(name: str, dtype: torch.dtype) -> None:
    function, shapes = PROGRAMS[name]
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(shape, generator=generator).to(dtype).cuda() for shape in shapes]
    found = emmy_eq.compile(function, tuple(given), target=here().arch)(*given).double()
    wanted = function(*(x.double() for x in given))
    eager = (function(*given).double() - wanted).norm() / wanted.norm()
    # The contract of the default accuracy; the floor (an ulp) is for where eager happens to be exact.
    error = (found - wanted).norm() / wanted.norm()
    assert error <= EAGER_FACTOR * eager + torch.finfo(dtype).eps
