"""Torch tensors as NumPy arrays and back, bit for bit; bfloat16 is ml_dtypes' on the NumPy side."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from emmy_eq.ops import DTYPES
from emmy_eq.torch_ir import torch_dtype

Array = np.ndarray[Any, Any]


def to_numpy(x: torch.Tensor) -> Array:
    """A contiguous array of ``x``'s shape; it shares memory with a contiguous CPU tensor."""
    x = x.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(DTYPES["bf16"])
    return np.asarray(x.numpy())


def to_torch(x: Array, dtype: str) -> torch.Tensor:
    """A tensor that shares the memory of contiguous ``x``, whose dtype is ``dtype`` already."""
    if dtype == "bf16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x).to(torch_dtype(dtype))
