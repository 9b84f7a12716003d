"""Scaled dot-product attention, as scores, mask, softmax, weighted sum."""

from __future__ import annotations

import math

from emmy_eq import index as ix
from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.index import Idx
from emmy_eq.lower.builder import Builder, Value, broadcast_shapes, dims
from emmy_eq.lower.norms import softmax_parts
from emmy_eq.lower.products import contract
from emmy_eq.lower.row import Row
from emmy_eq.tensor_ir import Shape


def attention(
    b: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """(..., L, E), (..., S, E), (..., S, V) -> (..., L, V).  A row whose scores are all -inf gives 0 (safe softmax).  A score that
    a bool or causal mask hides does not count, be it NaN or +inf; torch's CPU kernels add -inf to it.

    Weights are rounded to the operands' type, as the fused and the 16-bit backends of torch do; scores keep 32 bits.
    """
    if dropout_p:
        raise Unsupported(b.op, f"argument dropout_p={dropout_p}", b.source)
    if is_causal and attn_mask is not None:
        raise InvalidInput(b.op, "attn_mask and is_causal=True exclude each other", b.source)
    if not query.dtype == key.dtype == value.dtype:
        raise InvalidInput(b.op, f"operands of dtypes {query.dtype}, {key.dtype}, {value.dtype} do not match", b.source)
    group = _heads_per_key(b, query, key, value) if enable_gqa else 1
    batches = [query.shape[:-2], *((*x.shape[:-3], x.shape[-3] * group) if group > 1 else x.shape[:-2] for x in (key, value))]
    batch = broadcast_shapes(b.op, batches)
    rows, columns = query.shape[-2], key.shape[-2]
    if key.shape[-1] != query.shape[-1] or value.shape[-2] != columns:
        raise InvalidInput(b.op, f"shapes {query.shape}, {key.shape}, {value.shape} do not fit together", b.source)

    shape = (*batch, rows, columns)
    n = len(shape)
    i, j, inner = (ix.var(f"d{k}") for k in (n - 2, n - 1, n))
    width = query.shape[-1]
    scores = contract(b, query, [*_lead(query, batch, 1), i, inner], key, [*_lead(key, batch, group), j, inner], shape, (width,))
    scores = b.apply("mul", scores, 1 / math.sqrt(width) if scale is None and width else scale if scale is not None else 1.0)
    scores = _masked(b, scores, attn_mask, is_causal)
    top, weights, norm = softmax_parts(b, scores, n - 1)
    found = contract(
        b,
        b.cast(b.apply("div", weights, norm), value.dtype),
        [*dims(n - 1), inner],
        value,
        [*_lead(value, batch, group), inner, j],
        (*batch, rows, value.shape[-1]),
        (columns,),
    )
    # Dividing 0 by 0 made such a row NaN; the choice is per row, so it stands outside the weighted sum.
    return b.cast(b.where(b.apply("eq", top, -math.inf), 0.0, found), query.dtype)


def _heads_per_key(b: Builder, query: Value, key: Value, value: Value) -> int:
    heads, shared = query.shape[-3], key.shape[-3]
    if value.shape[-3] != shared or heads % shared:
        raise InvalidInput(b.op, f"{heads} query heads cannot share {shared} key and {value.shape[-3]} value heads", b.source)
    return heads // shared


def _lead(x: Value, batch: Shape, group: int) -> list[Idx]:
    """Index of ``x``'s leading dims in the broadcast ``batch``; ``group`` query heads read one head of ``x``."""
    skip = len(batch) - (x.rank - 2)
    index = [ix.const(0) if n == 1 and batch[skip + k] != 1 else ix.var(f"d{skip + k}") for k, n in enumerate(x.shape[:-2])]
    if group > 1:
        index[-1] = ix.var(f"d{len(batch) - 1}") // group
    return index


def _masked(b: Builder, scores: Value, mask: Value | None, is_causal: bool) -> Value:
    if is_causal:
        # Aligned at the top left: row i sees columns 0..i, whatever the two lengths are.
        i, j = (b.position(scores.shape, scores.rank - k) for k in (2, 1))
        return b.where(b.apply("ge", i, j), scores, -math.inf)
    if mask is None:
        return scores
    if mask.dtype == "bool":
        return b.where(mask, scores, -math.inf)
    return b.apply("add", scores, b.cast(mask, scores.dtype))


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    return {"aten.scaled_dot_product_attention.default": attention}
