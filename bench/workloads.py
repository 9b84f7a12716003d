"""What is timed: one table row a workload.

A row builds a callable and states its inputs as data, so that a GPU run draws values, and a dump of the generated code
needs only their shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.models import DecoderBlock

f32, f16, bf16, i64 = torch.float32, torch.float16, torch.bfloat16, torch.int64


@dataclass(frozen=True, slots=True)
class In:
    """One input: normal values, or integers in [0, ``below``)."""

    shape: tuple[int, ...]
    dtype: torch.dtype = f32
    below: int | None = None

    def draw(self, device: torch.device | str, seed: int) -> Tensor:
        generator = torch.Generator(device).manual_seed(seed)
        if self.below is not None:
            return torch.randint(self.below, self.shape, dtype=self.dtype, device=device, generator=generator)
        return torch.randn(self.shape, dtype=self.dtype, device=device, generator=generator)

    def blank(self) -> Tensor:
        """The shape alone, on the CPU: pages that are never touched take no memory."""
        return torch.empty(self.shape, dtype=self.dtype)


@dataclass(frozen=True, slots=True)
class Workload:
    """``build()`` makes the callable on the default device; ``dtype`` is that of a module's parameters.

    ``sample``: (dim, count); the float64 reference is taken on the first ``count`` positions of that dim of every input
    and of the result, where the whole would not fit.  Only for programs that keep that dim's positions apart.
    """

    name: str
    build: Callable[[], Callable[..., Any]]
    inputs: tuple[In, ...]
    dtype: torch.dtype = f32
    sample: tuple[int, int] | None = None

    def function(self, device: torch.device | str) -> Callable[..., Any]:
        """The callable, a module's parameters drawn from a fixed seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made = self.build()
        return made.to(device=device, dtype=self.dtype).eval().requires_grad_(False) if isinstance(made, nn.Module) else made

    def skeleton(self) -> Callable[..., Any]:
        """The callable with undefined parameters, on the CPU."""
        with torch.device("meta"):
            made = self.build()
        if not isinstance(made, nn.Module):
            return made
        return made.to(dtype=self.dtype).to_empty(device="cpu").eval().requires_grad_(False)


def tanh_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.797 * (x + 0.044 * x * x * x)))


def swiglu(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(x @ gate) * (x @ up)


def norm_linear(x: Tensor, scale: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), scale) @ weight


def chain(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a @ b) @ c


def bias_matmul_relu(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    return torch.relu((x + bias) @ weight)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def logsumexp(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1)


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def column_sum(x: Tensor) -> Tensor:
    return x.sum(0)


def total_sum(x: Tensor) -> Tensor:
    return x.sum()


def qkv(batch: int, heads: int, length: int, size: int, dtype: torch.dtype) -> tuple[In, ...]:
    return (In((batch, heads, length, size), dtype),) * 3


def block(name: str, hidden: int, heads: int, kv_heads: int, intermediate: int, length: int, dtype: torch.dtype) -> Workload:
    size = hidden // heads
    inputs = (In((1, length, hidden), dtype), In((length, size), dtype), In((length, size), dtype))
    return Workload(name, lambda: DecoderBlock(hidden, heads, kv_heads, intermediate), inputs, dtype)


_ROWS = (
    Workload("rmsnorm_f32_32x2048", lambda: nn.RMSNorm(2048, eps=1e-6), (In((1, 32, 2048)),)),
    Workload("rmsnorm_f32_512x2304", lambda: nn.RMSNorm(2304, eps=1e-6), (In((1, 512, 2304)),)),
    Workload("rmsnorm_bf16_16384x4096", lambda: nn.RMSNorm(4096, eps=1e-6), (In((16384, 4096), bf16),), bf16),
    Workload("layernorm_f32_4096x4096", lambda: nn.LayerNorm(4096), (In((4096, 4096)),)),
    Workload("gelu_f32_32x18944", lambda: tanh_gelu, (In((32, 18944)),)),
    Workload("gelu_f32_512x18944", lambda: tanh_gelu, (In((512, 18944)),)),
    Workload("softmax_f32_28x2048x2048", lambda: nn.Softmax(dim=-1), (In((1, 28, 2048, 2048)),)),
    Workload("linear_f32_32x3584x3584", lambda: nn.Linear(3584, 3584, bias=False), (In((32, 3584)),)),
    Workload("linear_f32_512x3584x3584", lambda: nn.Linear(3584, 3584, bias=False), (In((512, 3584)),)),
    Workload("matmul_f32_4096", lambda: torch.matmul, (In((4096, 4096)), In((4096, 4096)))),
    Workload("matmul_f16_1024", lambda: torch.matmul, (In((1024, 1024), f16), In((1024, 1024), f16))),
    Workload("matmul_f16_4096", lambda: torch.matmul, (In((4096, 4096), f16), In((4096, 4096), f16))),
    Workload("matmul_bf16_8192", lambda: torch.matmul, (In((8192, 8192), bf16), In((8192, 8192), bf16))),
    Workload(
        "mlp_up_silu_mul_bf16_2048x4096x11008", lambda: swiglu, (In((2048, 4096), bf16), In((4096, 11008), bf16), In((4096, 11008), bf16))
    ),
    Workload("rms_linear_bf16_2048x4096x4096", lambda: norm_linear, (In((2048, 4096), bf16), In((4096,), bf16), In((4096, 4096), bf16))),
    Workload("matmul_chain_f32_4096x64x4096x64", lambda: chain, (In((4096, 64)), In((64, 4096)), In((4096, 64)))),
    Workload("biasmatmulrelu_f32_16x64x16", lambda: bias_matmul_relu, (In((16, 64)), In((64,)), In((64, 16)))),
    Workload("sdpa_f32_1x32x128x64", lambda: attention, qkv(1, 32, 128, 64, f32)),
    Workload("sdpa_f32_1x28x2048x128", lambda: attention, qkv(1, 28, 2048, 128, f32)),
    Workload("sdpa_f16_causal_1x32x1024x64", lambda: causal_attention, qkv(1, 32, 1024, 64, f16)),
    Workload("sdpa_bf16_causal_4x32x4096x128", lambda: causal_attention, qkv(4, 32, 4096, 128, bf16), sample=(1, 1)),
    Workload("logsumexp_f32_8192x50304", lambda: logsumexp, (In((8192, 50304)),)),
    Workload("crossentropy_f32_4096x50304", lambda: cross_entropy, (In((4096, 50304)), In((4096,), i64, below=50304))),
    Workload("colsum_f32_65536x1024", lambda: column_sum, (In((65536, 1024)),)),
    Workload("sum_f32_all_2^28", lambda: total_sum, (In((1 << 28,)),)),
    block("tinyllama_block_f32_128", 2048, 32, 4, 5632, 128, f32),
    block("qwen7b_block_f32_128", 3584, 28, 4, 18944, 128, f32),
    block("llama8b_block_bf16_2048", 4096, 32, 8, 14336, 2048, bf16),
    block("llama8b_block_bf16_decode1", 4096, 32, 8, 14336, 1, bf16),
)


@cache
def workloads(more: bool = False) -> dict[str, Workload]:
    """The workloads by name, in the order of the report; ``more``: those of `bench.more` instead."""
    from bench.more import ROWS

    return {row.name: row for row in (ROWS if more else _ROWS)}


def named(name: str) -> Workload:
    return workloads()[name]


def select(patterns: list[str], more: bool = False) -> list[Workload]:
    """Rows whose name contains one of ``patterns`` (all rows for none)."""
    return [w for w in workloads(more).values() if matches(w.name, patterns)]


def matches(name: str, patterns: list[str]) -> bool:
    return not patterns or any(p in name for p in patterns)
