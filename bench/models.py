"""The transformer blocks of the benchmarks, in plain PyTorch."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DecoderBlock(nn.Module):
    """RMSNorm, grouped-query causal attention with rotary embedding, SwiGLU, both residuals (the Llama form).

    ``forward(x, cos, sin)``: x is (batch, sequence, hidden); cos and sin are (sequence, hidden // heads).
    """

    def __init__(self, hidden: int, heads: int, kv_heads: int, intermediate: int) -> None:
        super().__init__()
        size = hidden // heads
        self.heads, self.kv_heads, self.size = heads, kv_heads, size
        self.attention_norm = nn.RMSNorm(hidden, eps=1e-5)
        self.mlp_norm = nn.RMSNorm(hidden, eps=1e-5)
        self.query = nn.Linear(hidden, heads * size, bias=False)
        self.key = nn.Linear(hidden, kv_heads * size, bias=False)
        self.value = nn.Linear(hidden, kv_heads * size, bias=False)
        self.output = nn.Linear(heads * size, hidden, bias=False)
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        y = self.attention_norm(x)
        query = rotate(self._split(self.query(y), self.heads), cos, sin)
        key = rotate(self._split(self.key(y), self.kv_heads), cos, sin)
        value = self._split(self.value(y), self.kv_heads)
        key, value = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, -1))
        y = self.mlp_norm(x)
        down: Tensor = self.down(F.silu(self.gate(y)) * self.up(y))
        return x + down

    def _split(self, x: Tensor, heads: int) -> Tensor:
        """(batch, sequence, heads * size) to (batch, heads, sequence, size)."""
        return x.view(x.shape[0], x.shape[1], heads, self.size).transpose(1, 2)


Form = Literal["post", "pre", "causal"]


class EncoderBlock(nn.Module):
    """LayerNorm, attention, a GELU MLP of four times the width, both residuals.

    ``form``: norms behind the residuals as in BERT (``post``), before them as in ViT (``pre``) or, with causal attention, in GPT-2.
    ``forward(x)``: x is (batch, sequence, hidden).
    """

    def __init__(self, hidden: int, heads: int, form: Form) -> None:
        super().__init__()
        self.heads, self.form = heads, form
        self.attention_norm = nn.LayerNorm(hidden)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.output = nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "post":
            x = self.attention_norm(x + self._attend(x))
            post: Tensor = self.mlp_norm(x + self.mlp(x))
            return post
        x = x + self._attend(self.attention_norm(x))
        pre: Tensor = x + self.mlp(self.mlp_norm(x))
        return pre

    def _attend(self, x: Tensor) -> Tensor:
        query, key, value = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mixed: Tensor = self.output(
            F.scaled_dot_product_attention(query, key, value, is_causal=self.form == "causal").transpose(1, 2).flatten(2)
        )
        return mixed


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, the half-split form (Su et al. 2021, arXiv:2104.09864)."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin
