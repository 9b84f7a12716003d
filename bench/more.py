"""Layers as models use them, at sizes of their own: none is in the files that the cost model's constants are fitted to.

``python -m bench --more`` times them as it does the table of `bench.workloads`, and shows where the generated code falls behind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.models import EncoderBlock, Form, rotate
from bench.workloads import In, Workload, attention, bf16, block, cross_entropy, f16, f32, i64, qkv
from emmy_eq.torch_ir import dtype_name


def residual_norm(x: Tensor, residual: Tensor, scale: Tensor) -> Tensor:
    return F.rms_norm(x + residual, (x.shape[-1],), scale)


def silu_mul(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def low_rank(x: Tensor, weight: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return x @ weight + (x @ a) @ b


def embed_norm(index: Tensor, rows: Tensor) -> Tensor:
    return F.layer_norm(rows[index], rows.shape[-1:])


def transposed(x: Tensor) -> Tensor:
    return x.t().contiguous()


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def grouped_qkv(batch: int, queries: int) -> tuple[In, ...]:
    """32 heads of queries, 8 of keys and values; 4096 keys for one query, else as many as queries."""
    keys = In((batch, 8, 4096 if queries == 1 else queries, 128), bf16)
    return In((batch, 32, queries, 128), bf16), keys, keys


def grouped_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Press et al. 2021, arXiv:2108.12409, with one slope."""
    place = torch.arange(q.shape[-2], device=q.device)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 - (place[:, None] - place).abs() * 0.0625
    return torch.softmax(scores, -1).to(q.dtype) @ v


def soft_cap(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(30 * torch.tanh(q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 / 30)), -1) @ v


def _operands(dtype: torch.dtype, *shapes: tuple[int, ...]) -> tuple[In, ...]:
    return tuple(In(shape, dtype) for shape in shapes)


def _norm(dtype: torch.dtype, rows: int, columns: int) -> Workload:
    return Workload(f"layernorm_{dtype_name(dtype)}_{rows}x{columns}", lambda: nn.LayerNorm(columns), (In((rows, columns), dtype),), dtype)


def _linear(dtype: torch.dtype, m: int, k: int, n: int) -> Workload:
    return Workload(f"linear_{dtype_name(dtype)}_{m}x{k}x{n}", lambda: nn.Linear(k, n), (In((m, k), dtype),), dtype)


def _product(dtype: torch.dtype, *shape: int) -> Workload:
    *batch, m, k, n = shape
    name = f"matmul_{dtype_name(dtype)}_{'x'.join(map(str, shape))}"
    return Workload(name, lambda: torch.matmul, (In((*batch, m, k), dtype), In((*batch, k, n), dtype)))


def _encoder(name: str, hidden: int, heads: int, batch: int, length: int, dtype: torch.dtype, form: Form) -> Workload:
    return Workload(name, lambda: EncoderBlock(hidden, heads, form), (In((batch, length, hidden), dtype),), dtype)


def _image(name: str, build: Callable[[], nn.Module], shape: tuple[int, ...], dtype: torch.dtype) -> Workload:
    return Workload(name, build, (In(shape, dtype),), dtype)


ROWS = (
    _norm(bf16, 8192, 768),
    _norm(f16, 2048, 5120),
    Workload("residual_rmsnorm_bf16_4096x4096", lambda: residual_norm, _operands(bf16, (4096, 4096), (4096, 4096), (4096,))),
    Workload("embed_layernorm_f32_4096x1024", lambda: embed_norm, (In((4096,), i64, below=32000), In((32000, 1024)))),
    _image("groupnorm_silu_f16_8x320x64x64", lambda: nn.Sequential(nn.GroupNorm(32, 320), nn.SiLU()), (8, 320, 64, 64), f16),
    _image("batchnorm_relu_f32_32x256x56x56", lambda: nn.Sequential(nn.BatchNorm2d(256), nn.ReLU()), (32, 256, 56, 56), f32),
    Workload("softmax_bf16_16x12x512x512", lambda: nn.Softmax(-1), (In((16, 12, 512, 512), bf16),)),
    Workload("logsoftmax_f32_128x32000", lambda: nn.LogSoftmax(-1), (In((128, 32000)),)),
    Workload("crossentropy_bf16_2048x128256", lambda: cross_entropy, (In((2048, 128256), bf16), In((2048,), i64, below=128256))),
    Workload("silu_mul_bf16_4096x22016", lambda: silu_mul, (In((4096, 22016), bf16),)),
    Workload("gelu_bf16_8192x3072", lambda: F.gelu, (In((8192, 3072), bf16),)),
    Workload("rope_bf16_32x4096x128", lambda: rotate, _operands(bf16, (1, 32, 4096, 128), (4096, 128), (4096, 128))),
    Workload("argmax_f32_256x50304", lambda: partial(torch.argmax, dim=-1), (In((256, 50304)),)),
    Workload("cumsum_f32_1024x4096", lambda: partial(torch.cumsum, dim=-1), (In((1024, 4096)),)),
    Workload("var_f32_4096x1024", lambda: partial(torch.var, dim=-1), (In((4096, 1024)),)),
    Workload("colmean_bf16_16384x4096", lambda: partial(torch.mean, dim=0), (In((16384, 4096), bf16),)),
    Workload("cosine_f32_8192x1024", lambda: partial(F.cosine_similarity, dim=-1), (In((8192, 1024)), In((8192, 1024)))),
    Workload("transpose_f32_4096", lambda: transposed, (In((4096, 4096)),)),
    *(_linear(bf16, *shape) for shape in ((1, 4096, 4096), (4, 4096, 14336), (16, 4096, 4096), (64, 4096, 4096), (128, 4096, 14336))),
    *(_linear(bf16, *shape) for shape in ((300, 5120, 5120), (4096, 768, 3072))),
    *(_linear(f32, *shape) for shape in ((8, 1024, 1024), (1024, 1024, 4096))),
    *(
        _product(bf16, *shape)
        for shape in ((2048, 1024, 4096), (512, 4096, 1024), (1000, 1000, 1000), (256, 16384, 256), (64, 512, 64, 512))
    ),
    *(_product(f16, *shape) for shape in ((128, 128, 128), (2048, 2048, 2048), (8192, 512, 8192), (1000, 1001, 1003), (96, 512, 512, 64))),
    *(_product(f32, *shape) for shape in ((512, 512, 512), (2048, 2048, 2048))),
    Workload(
        "low_rank_bf16_2048x4096r16",
        lambda: low_rank,
        tuple(In(shape, bf16) for shape in ((2048, 4096), (4096, 4096), (4096, 16), (16, 4096))),
    ),
    Workload(
        "mlp_relu_f32_256x1024",
        lambda: nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(1024, 1024), nn.ReLU()))),
        (In((256, 1024)),),
    ),
    Workload("sdpa_bf16_1x16x4096x64", lambda: attention, qkv(1, 16, 4096, 64, bf16)),
    Workload("sdpa_bf16_1x8x1000x80", lambda: attention, qkv(1, 8, 1000, 80, bf16)),
    Workload("sdpa_f16_16x12x512x64", lambda: attention, qkv(16, 12, 512, 64, f16)),
    Workload("sdpa_f16_2x8x4096x40", lambda: attention, qkv(2, 8, 4096, 40, f16)),
    Workload("sdpa_f32_8x12x512x64", lambda: attention, qkv(8, 12, 512, 64, f32)),
    Workload(
        "sdpa_f16_cross_2x8x4096x77x64", lambda: attention, (In((2, 8, 4096, 64), f16), In((2, 8, 77, 64), f16), In((2, 8, 77, 64), f16))
    ),
    Workload("gqa_bf16_causal_1x32x2048x128", lambda: grouped_causal, grouped_qkv(1, 2048)),
    Workload("gqa_bf16_decode_8x32x4096x128", lambda: grouped, grouped_qkv(8, 1)),
    Workload("alibi_bf16_1x16x2048x64", lambda: alibi, qkv(1, 16, 2048, 64, bf16)),
    Workload("softcap_f16_1x16x2048x128", lambda: soft_cap, qkv(1, 16, 2048, 128, f16)),
    _encoder("bert_block_f16_8x512", 768, 12, 8, 512, f16, "post"),
    _encoder("bert_block_f32_1x128", 768, 12, 1, 128, f32, "post"),
    _encoder("vit_l_block_f16_16x197", 1024, 16, 16, 197, f16, "pre"),
    _encoder("gpt2_block_bf16_4x1024", 768, 12, 4, 1024, bf16, "causal"),
    _encoder("gpt2_block_bf16_1x64", 768, 12, 1, 64, bf16, "causal"),
    block("llama1b_block_bf16_512", 2048, 32, 8, 8192, 512, bf16),
    block("llama8b_block_bf16_decode8", 4096, 32, 8, 14336, 8, bf16),
    block("llama_block_f32_16", 512, 8, 8, 1536, 16, f32),
    _image("conv_f16_8x64x56x56k3", lambda: nn.Conv2d(64, 64, 3, padding=1), (8, 64, 56, 56), f16),
    _image("conv_f16_2x320x64x64k3", lambda: nn.Conv2d(320, 320, 3, padding=1), (2, 320, 64, 64), f16),
    _image("conv_f32_8x64x56x56k3", lambda: nn.Conv2d(64, 64, 3, padding=1), (8, 64, 56, 56), f32),
    _image("conv_f16_8x3x224x224k7s2", lambda: nn.Conv2d(3, 64, 7, stride=2, padding=3), (8, 3, 224, 224), f16),
    _image("conv_f16_8x3x224x224k16s16", lambda: nn.Conv2d(3, 768, 16, stride=16), (8, 3, 224, 224), f16),
)
