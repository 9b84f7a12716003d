"""Convolutions are products on tensor cores: channels are the deep axis, taps are steps, padding is made as a tile is staged."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import emmy_eq
from emmy_eq import index as ix
from emmy_eq.codegen.lower.access import strides
from emmy_eq.codegen.nvrtc import compile_cubin

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "padded": ((1, 20, 3, 18), (17, 20, 3, 3), {"padding": 1}),
    "strided": ((1, 16, 5, 21), (16, 16, 3, 3), {"padding": 1, "stride": 2}),
    "dilated": ((1, 16, 5, 18), (16, 16, 3, 3), {"padding": 2, "dilation": 2}),
    "grouped": ((1, 36, 4, 18), (34, 18, 1, 3), {"padding": (0, 1), "groups": 2}),
    "stem": ((1, 3, 14, 40), (16, 3, 7, 7), {"padding": 3, "stride": 2}),
    "patches": ((1, 3, 16, 288), (16, 3, 16, 16), {"stride": 16}),
    "1d": ((1, 20, 37), (17, 20, 5), {"padding": 2}),
    "3d": ((1, 16, 2, 3, 17), (16, 16, 1, 3, 3), {"padding": (0, 1, 1)}),
}
HALF = 2.0**-11  # a rounding of the result; products of 16-bit values are exact in f32


def convolved(name: str, dtype: torch.dtype) -> tuple[emmy_eq.Compiled, float]:
    """Compiled for sm_80, and the largest error against float64, of the largest result."""
    x_shape, w_shape, options = CASES[name]
    torch.manual_seed(0)
    x, w = torch.randn(x_shape).to(dtype), torch.randn(w_shape).to(dtype)
    f: Any = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(x_shape)]
    compiled = emmy_eq.compile(lambda x, w: f(x, w, **options), (x, w), target="sm_80")
    expected = f(x.double(), w.double(), **options)
    return compiled, float((compiled(x, w).double() - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("name", CASES)
def test_halves(name: str) -> None:
    compiled, error = convolved(name, torch.float16)
    assert error <= 1.01 * HALF
    assert [deep for t in compiled.tile_ir for deep in t.schedule.atoms.values() if deep.startswith("k")] == ["k16"]
    for arch in ("sm_80", "sm_90a", "sm_120"):
        compile_cubin(compiled.cuda[0], arch)


@pytest.mark.parametrize("name", ["padded", "strided"])
def test_floats(name: str) -> None:
    compiled, error = convolved(name, torch.float32)
    assert error <= 1e-6  # three products of tf32 parts lose little more than a rounding
    assert "k8x3" in compiled.tile_ir[0].schedule.atoms.values()


def test_channels_are_the_deep_axis_where_taps_are_few() -> None:
    (tile,) = convolved("padded", torch.float16)[0].tile_ir
    (deep,) = [a for a, atom in tile.schedule.atoms.items() if atom == "k16"]
    assert tile.schedule.split(deep).tile == 32  # of 20 channels, not of 3 taps


def test_what_padding_clamps_is_adjacent_within_its_limits() -> None:
    a, b = ix.var("a"), ix.var("b")
    assert strides(a * 56 + (b + -1).max(0).min(55)) == [("a", 56), ("b", 1)]
    assert strides((b * 2 + a + -1).max(0)) == [("b", 2), ("a", 1)]
    assert strides(a // 2 + b % 3) == []


def test_no_channels_are_refused() -> None:
    """PyTorch's result has none either, whatever the weight's shape says."""
    with pytest.raises(emmy_eq.Unsupported, match="no channels"):
        emmy_eq.compile(F.conv2d, (torch.randn(2, 0, 5, 5), torch.randn(4, 0, 3, 3)))
