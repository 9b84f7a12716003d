"""Losses."""

from __future__ import annotations

from emmy_eq import index as ix
from emmy_eq.errors import InvalidInput
from emmy_eq.lower.builder import Builder, Value, dims
from emmy_eq.lower.dtypes import compute_dtype
from emmy_eq.lower.elementwise import pointwise
from emmy_eq.lower.norms import log_softmax_of
from emmy_eq.lower.row import Row
from emmy_eq.tensor_ir import total

_REDUCTIONS = ("none", "mean", "sum")


def _reduced(b: Builder, x: Value, reduction: int) -> Value:
    """``reduction``: 0 none, 1 mean, 2 sum, as in at::Reduction."""
    if _REDUCTIONS[reduction] == "none":
        return x
    out = b.reduce("sum", x, range(x.rank))
    return out if _REDUCTIONS[reduction] == "sum" else b.apply("div", out, float(total(x.shape)))


def mse_loss(b: Builder, x: Value, target: Value, reduction: int = 1) -> Value:
    difference = pointwise(b, "sub", (x, target), x.dtype)
    return b.cast(_reduced(b, b.apply("mul", difference, difference), reduction), x.dtype)


def l1_loss(b: Builder, x: Value, target: Value, reduction: int = 1) -> Value:
    difference = pointwise(b, "sub", (x, target), x.dtype)
    return b.cast(_reduced(b, b.apply("abs", difference), reduction), x.dtype)


def nll_loss(b: Builder, x: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100) -> Value:
    """``x``: log probabilities (N, C, ...) or (C,); ``target``: classes (N, ...) or ()."""
    return b.cast(_nll(b, b.cast(x, compute_dtype(x.dtype)), target, weight, reduction, ignore_index, 0.0), x.dtype)


def _nll(b: Builder, logs: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int, smoothing: float) -> Value:
    if target.dtype not in ("i64", "u8"):
        raise InvalidInput(b.op, f"class indices of dtype {target.dtype}; they must be int64", b.source)
    channel = 0 if logs.rank == 1 else 1
    classes = logs.shape[channel]
    if target.shape != (*logs.shape[:channel], *logs.shape[channel + 1 :]):
        raise InvalidInput(b.op, f"target of shape {target.shape} for an input of shape {logs.shape}", b.source)
    wanted = b.cast(target, "i64")
    counted = b.apply("ne", wanted, ignore_index)
    # An ignored entry may hold any number, so it reads class 0 and is left out afterwards.
    safe = b.where(counted, wanted, 0)
    out = dims(target.rank)
    picked = b.gather(logs, [*out[:channel], ix.var("g0"), *out[channel:]], [safe], target.shape)
    each: Value | None = None
    if weight is not None:
        each = b.gather(b.cast(weight, logs.dtype), [ix.var("g0")], [safe], target.shape)
    loss = b.apply("neg", picked if each is None else b.apply("mul", picked, each))
    if smoothing:
        weights = b.reshape(b.cast(weight, logs.dtype), (classes, *[1] * (logs.rank - channel - 1))) if weight is not None else None
        spread = b.reduce("sum", logs if weights is None else b.apply("mul", logs, weights), [channel])
        smooth = b.apply("mul", spread, -smoothing / classes)
        loss = b.apply("add", b.apply("mul", loss, 1 - smoothing), smooth)
    loss = b.where(counted, loss, 0.0)
    if _REDUCTIONS[reduction] == "none":
        return loss
    summed = b.reduce("sum", loss, range(loss.rank))
    if _REDUCTIONS[reduction] == "sum":
        return summed
    share = b.where(counted, b.const(1.0, logs.dtype) if each is None else each, 0.0)
    return b.apply("div", summed, b.reduce("sum", b.expand(share, target.shape), range(target.rank)))


def cross_entropy(
    b: Builder,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    """Against class indices, or against probabilities of ``x``'s shape."""
    channel = 0 if x.rank == 1 else 1
    logs = log_softmax_of(b, b.cast(x, compute_dtype(x.dtype)), channel)
    if target.shape != x.shape:
        return b.cast(_nll(b, logs, target, weight, reduction, ignore_index, label_smoothing), x.dtype)
    if not target.dtype[0] == "f" and target.dtype != "bf16":
        raise InvalidInput(b.op, f"class probabilities of dtype {target.dtype}", b.source)
    wanted = b.cast(target, logs.dtype)
    if label_smoothing:
        kept = b.apply("mul", wanted, 1 - label_smoothing)
        wanted = b.apply("add", kept, label_smoothing / x.shape[channel])
    if weight is not None:
        logs = b.apply("mul", logs, b.reshape(b.cast(weight, logs.dtype), (x.shape[channel], *[1] * (x.rank - channel - 1))))
    loss = b.apply("neg", b.reduce("sum", b.apply("mul", logs, wanted), [channel]))
    return b.cast(_reduced(b, loss, reduction), x.dtype)


def binary_cross_entropy_with_logits(
    b: Builder, x: Value, target: Value, weight: Value | None = None, pos_weight: Value | None = None, reduction: int = 1
) -> Value:
    """(1 - y) * x + (1 + (p - 1) * y) * log(1 + exp(-x)), shifted so that no exp overflows."""
    wide = compute_dtype(x.dtype)
    value, wanted = b.cast(x, wide), b.cast(target, wide)
    softplus = b.apply(
        "add", b.apply("maximum", b.apply("neg", value), 0.0), b.apply("log1p", b.apply("exp", b.apply("neg", b.apply("abs", value))))
    )
    if pos_weight is not None:
        share = b.apply("add", b.apply("mul", b.apply("sub", b.cast(pos_weight, wide), 1.0), wanted), 1.0)
        softplus = b.apply("mul", share, softplus)
    loss = b.apply("add", b.apply("mul", b.apply("sub", b.const(1.0, wide), wanted), value), softplus)
    if weight is not None:
        loss = b.apply("mul", loss, b.cast(weight, wide))
    return b.cast(_reduced(b, loss, reduction), x.dtype)


def kl_div(b: Builder, x: Value, target: Value, reduction: int = 1, log_target: bool = False) -> Value:
    wide = compute_dtype(x.dtype)
    value, wanted = b.cast(x, wide), b.cast(target, wide)
    if log_target:
        loss = b.apply("mul", b.apply("exp", wanted), b.apply("sub", wanted, value))
    else:
        # 0 * log 0 is 0 here.
        entropy = b.where(b.apply("eq", wanted, 0.0), 0.0, b.apply("mul", wanted, b.apply("log", wanted)))
        loss = b.apply("sub", entropy, b.apply("mul", wanted, value))
    return b.cast(_reduced(b, loss, reduction), x.dtype)


def smooth_l1_loss(b: Builder, x: Value, target: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    if beta == 0:
        return l1_loss(b, x, target, reduction)
    distance = b.apply("abs", pointwise(b, "sub", (x, target), x.dtype))
    square = b.apply("div", b.apply("mul", b.apply("mul", distance, distance), 0.5), beta)
    return b.cast(_reduced(b, b.where(b.apply("lt", distance, beta), square, b.apply("sub", distance, 0.5 * beta)), reduction), x.dtype)


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    return {
        "aten.mse_loss.default": mse_loss, "aten.l1_loss.default": l1_loss, "aten.smooth_l1_loss.default": smooth_l1_loss,
        "aten.nll_loss.default": nll_loss, "aten.nll_loss_nd.default": nll_loss, "aten.nll_loss2d.default": nll_loss,
        "aten.cross_entropy_loss.default": cross_entropy,
        "aten.binary_cross_entropy_with_logits.default": binary_cross_entropy_with_logits, "aten.kl_div.default": kl_div,
    }  # fmt: skip
