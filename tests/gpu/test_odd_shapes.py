"""What schedule families choose by shape, at shapes that fit none of their tiles: few rows, grouped queries, heads, filters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import emmy_eq
from emmy_eq.execute import EAGER_FACTOR
from tests.gpu.test_kernels import here

HALVES = [torch.float16, torch.bfloat16]


def check(function: Callable[..., torch.Tensor], shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> None:
    """Within the contract of the default accuracy of float64, each position, twice over the same buffers."""
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(shape, generator=generator).to(dtype).cuda() for shape in shapes]
    compiled = emmy_eq.compile(function, tuple(given), target=here().arch)
    wanted = function(*(x.double() for x in given))
    scale = wanted.abs().max()
    # Four roundings of the largest value are for where eager happens to be exact.
    limit = EAGER_FACTOR * ((function(*given).double() - wanted).abs().max() + torch.finfo(dtype).eps * scale)
    for _ in range(2):
        found = compiled(*given)
        assert found.dtype == dtype
        assert (found.double() - wanted).abs().max() <= limit


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("k", "n"), [(136, 200), (1000, 1000), (64, 2056), (4096, 520), (520, 4104), (1001, 333)])
@pytest.mark.parametrize("m", [2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 50])
def test_few_rows(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    check(lambda x, w, b: F.linear(x, w, b), ((m, k), (n, k), (n,)), dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("keys", [1, 77, 1000, 4097])
@pytest.mark.parametrize("group", [1, 2, 3, 5, 8, 9, 17])
def test_queries_of_a_group(group: int, keys: int, dtype: torch.dtype) -> None:
    def decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    check(decode, ((2, 3 * group, 1, 128), (2, 3, keys, 128), (2, 3, keys, 128)), dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [63, 257, 1000])
@pytest.mark.parametrize("size", [8, 24, 40, 56, 72, 80, 104, 120])
def test_sizes_of_heads(size: int, length: int, causal: bool) -> None:
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), ((2, 3, length, size),) * 3, torch.float16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("length", [65, 197])
def test_heads_side_by_side_in_one_product(length: int, heads: int, dtype: torch.dtype) -> None:
    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in F.linear(x, w).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    check(layer, ((2, length, 64 * heads), (3 * 64 * heads, 64 * heads)), dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("image", "weight", "stride", "padding", "dilation", "groups"),
    [
        ((2, 64, 14, 14), (64, 64, 3, 3), 1, 1, 1, 1),
        ((3, 17, 13, 9), (33, 17, 3, 3), 1, 1, 1, 1),
        ((2, 32, 31, 30), (48, 32, 3, 5), 2, 2, 1, 1),
        ((1, 24, 29, 27), (24, 24, 3, 3), 1, 2, 2, 1),
        ((2, 24, 17, 19), (36, 8, 3, 3), 1, 0, 1, 3),
        ((2, 40, 15, 33), (40, 1, 3, 3), 1, 1, 1, 40),
        ((2, 3, 65, 67), (64, 3, 7, 7), 2, 3, 1, 1),
        ((2, 3, 64, 64), (96, 3, 16, 16), 16, 0, 1, 1),
        ((2, 96, 9, 11), (33, 96, 1, 1), 1, 0, 1, 1),
    ],
)
def test_convolutions(
    image: tuple[int, ...], weight: tuple[int, ...], stride: int, padding: int, dilation: int, groups: int, dtype: torch.dtype
) -> None:
    def convolution(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, b, stride, padding, dilation, groups)

    check(convolution, (image, weight, (weight[0],)), dtype)
