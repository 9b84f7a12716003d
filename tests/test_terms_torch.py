"""Terms of captured programs: the same results as Tensor IR, and the axes that the rewrites count on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from emmy_eq import terms as tm
from emmy_eq.lower import lower
from emmy_eq.tensor_ir import Program
from emmy_eq.terms import TermProgram
from emmy_eq.to_terms import to_terms
from emmy_eq.torch_ir import capture

from .term_checks import check


class Llama(nn.Module):
    """One decoder block: RMSNorm, grouped-query attention with rotary embedding and a causal mask, SwiGLU, residuals."""

    def __init__(self, hidden: int, heads: int, shared: int, inner: int) -> None:
        super().__init__()
        self.heads, self.shared, self.width = heads, shared, hidden // heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.q, self.o = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = (nn.Linear(hidden, shared * self.width, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def rotate(self, t: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = t.chunk(2, -1)
        return t * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, tokens, hidden = x.shape
        y = self.norm1(x)
        q, k, v = (
            f(y).view(batch, tokens, n, self.width).transpose(1, 2)
            for f, n in ((self.q, self.heads), (self.k, self.shared), (self.v, self.shared))
        )
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k, v = (t.repeat_interleave(self.heads // self.shared, 1) for t in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(batch, tokens, hidden))
        y = self.norm2(x)
        out: torch.Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


class Stack(nn.Module):
    def __init__(self, layers: int, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make() for _ in range(layers))

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, *rest)
        return x


def llama(layers: int, hidden: int, heads: int, shared: int, inner: int, tokens: int, dtype: torch.dtype = torch.float32) -> Program:
    model = Stack(layers, lambda: Llama(hidden, heads, shared, inner)).to(dtype)
    width = hidden // heads
    shapes = ((1, tokens, hidden), (tokens, width), (tokens, width))
    return lower(capture(model, tuple(torch.zeros(s, dtype=dtype) for s in shapes)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_llama_block(dtype: torch.dtype) -> None:
    terms = check(llama(1, 32, 4, 2, 48, 6, dtype))
    assert len(terms.axes.axes) <= 12
    _three_reductions_over_the_keys(terms)


def test_llama_block_for_one_token() -> None:
    assert len(check(llama(1, 32, 4, 2, 48, 1)).axes.axes) <= 10


def _three_reductions_over_the_keys(terms: TermProgram) -> None:
    """The maximum of the scores, the sum of their weights and the weighted sum of values have one mask."""
    values = [load.attr[0].val for _, load, _ in terms.seams]
    reductions = [v.attr for v in values if v.op == "reduce"]
    ((_, keys),) = {r for r in reductions if r[0] == "max"}
    assert reductions.count(("sum", keys)) == 2


def test_full_size_llama_block_is_fast() -> None:
    program = llama(1, 2048, 32, 4, 5632, 128)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        terms = to_terms(program)
        seconds.append(time.perf_counter() - start)
    tm.verify(terms)
    assert min(seconds) < 0.3  # usually a tenth of this


def test_twelve_llama_blocks_need_no_sharing() -> None:
    assert 40 < len(check(llama(12, 16, 2, 1, 24, 4)).axes.axes) <= 62


def test_sixteen_llama_blocks_fit_by_sharing() -> None:
    terms = to_terms(llama(16, 16, 2, 1, 24, 4))
    tm.verify(terms)
    assert len(terms.axes.axes) <= 16  # four a block and six in common would be 70; those of distant blocks never meet


def t(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "product with transpose": (lambda x: torch.relu(x) @ torch.relu(x).T, (t(5, 4),)),
    "self-attention without projections": (lambda x: F.scaled_dot_product_attention(x.exp(), x.exp(), x.exp()), (t(2, 6, 8),)),
    "cached keys": (
        lambda q, k, v, c, d: F.scaled_dot_product_attention(q.exp(), torch.cat((c, k.exp()), 1), torch.cat((d, v), 1)),
        (t(2, 1, 8), t(2, 1, 8), t(2, 1, 8), t(2, 5, 8), t(2, 5, 8)),
    ),
    "interleaved rotary": (lambda x: torch.stack((-x.exp()[..., 1::2], x.exp()[..., ::2]), -1).flatten(-2), (t(4, 6),)),
    "scan, flip, roll": (lambda x: torch.cumsum(x.exp(), -1).flip(0).roll(1, 1), (t(5, 4),)),
    "group norm": (nn.GroupNorm(2, 6), (t(2, 6, 3, 3),)),
    "layer norm over two dims": (nn.LayerNorm((4, 6)), (t(3, 4, 6),)),
    "convolution": (nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 2, 3, stride=2, groups=2)), (t(2, 4, 7, 7),)),
    "patches": (nn.Sequential(nn.Conv2d(3, 8, 2, 2), nn.Flatten(2), nn.LayerNorm(4)), (t(2, 3, 4, 4),)),
    "pooling": (lambda x: F.max_pool2d(F.silu(x), 3, 2, 1), (t(1, 2, 7, 7),)),
    "packed projection": (lambda x, w: F.softmax((x @ w).unflatten(-1, (3, 2, 4)).select(1, 1).sum(1), -1), (t(5, 6), t(6, 24))),
    "batched reduction of a flattened tensor": (lambda x: x.exp().flatten(1).softmax(-1).argmax(-1), (t(3, 2, 4),)),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    f, arguments = CASES[name]
    check(lower(capture(f.eval() if isinstance(f, nn.Module) else f, arguments)))
