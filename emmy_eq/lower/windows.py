"""Convolution, pooling and resampling: windows are index maps, padding a `where` over clamped reads."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from emmy_eq import index as ix
from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.index import Idx
from emmy_eq.lower.builder import Builder, Value, dims
from emmy_eq.lower.dtypes import compute_dtype
from emmy_eq.lower.products import contract
from emmy_eq.lower.row import Row
from emmy_eq.lower.views import constant_pad
from emmy_eq.ops import FLOATS

Ints = int | Sequence[int]


def per_dim(x: Ints, n: int) -> list[int]:
    """A setting for each of ``n`` spatial dims; one number serves all."""
    listed = [x] if isinstance(x, int) else list(x)
    return listed * n if len(listed) == 1 else listed


def convolve(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Value:
    """conv1d, conv2d, conv3d; ``padding`` may be "same" or "valid"."""
    if isinstance(padding, str):
        kernel = weight.shape[2:]
        pads = [d * (k - 1) if padding == "same" else 0 for d, k in zip(per_dim(dilation, len(kernel)), kernel, strict=True)]
        x = constant_pad(b, x, [p for total in reversed(pads) for p in (total // 2, total - total // 2)])
        padding = 0
    return convolution(b, x, weight, bias, stride, padding, dilation, False, 0, groups)


def convolve_transposed(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Value:
    return convolution(b, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


def convolution(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Value:
    """(N, C, *space) with (O, C / groups, *kernel), or, transposed, with (C, O / groups, *kernel)."""
    n = weight.rank - 2
    if x.rank == n + 1:
        batch = convolution(b, b.unsqueeze(x, [0]), weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        return b.squeeze(batch, [0])
    stride, padding, dilation = per_dim(stride, n), per_dim(padding, n), per_dim(dilation, n)
    kernel = weight.shape[2:]
    if x.dtype != weight.dtype or x.shape[1] != weight.shape[0 if transposed else 1] * (1 if transposed else groups):
        raise InvalidInput(b.op, f"{x.dtype}{list(x.shape)} and the weight {weight.dtype}{list(weight.shape)} do not fit", b.source)
    if 0 in weight.shape[:2]:
        raise Unsupported(b.op, f"no channels, in the weight {weight.dtype}{list(weight.shape)}", b.source)
    if transposed:
        x = _spread(b, x, kernel, stride, padding, dilation, per_dim(output_padding, n))
        stride = [1] * n
        outputs = weight.shape[1] * groups
    else:
        x = constant_pad(b, x, [p for k in reversed(padding) for p in (k, k)])
        outputs = weight.shape[0]
    space = tuple((e - d * (k - 1) - 1) // s + 1 for e, d, k, s in zip(x.shape[2:], dilation, kernel, stride, strict=True))
    if any(e < 1 for e in space):
        raise InvalidInput(b.op, f"the kernel {kernel} is larger than the padded input {x.shape[2:]}", b.source)

    shape = (x.shape[0], outputs, *space)
    summed = (x.shape[1] // groups, *kernel)
    every = dims(len(shape) + len(summed))
    channel, taps = every[len(shape)], every[len(shape) + 1 :]
    group = every[1] // (outputs // groups)
    places = [d * s + t * a for d, s, t, a in zip(every[2 : 2 + n], stride, taps, dilation, strict=True)]
    if transposed:
        flipped = [t * -1 + (k - 1) for t, k in zip(taps, kernel, strict=True)]
        weight_index = [group * summed[0] + channel, every[1] % (outputs // groups), *flipped]
    else:
        weight_index = [every[1], channel, *taps]
    found = contract(b, x, [every[0], group * summed[0] + channel, *places], weight, weight_index, shape, summed)
    if bias is not None:
        found = b.apply("add", found, b.cast(b.reshape(bias, (outputs, *[1] * n)), found.dtype))
    return b.cast(found, x.dtype)


def _spread(
    b: Builder,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    extra: Sequence[int],
) -> Value:
    """``x`` with stride - 1 zeros between elements, and padded so that a plain convolution gives the transposed one."""
    for k, (size, s, p, d, more) in enumerate(zip(kernel, stride, padding, dilation, extra, strict=True)):
        dim = k + 2
        old = x.shape[dim]
        before = d * (size - 1) - p
        extent = (old - 1) * s + 1 + 2 * before + more
        if extent < 1:
            raise InvalidInput(b.op, f"padding {list(padding)} leaves nothing of dim {dim}", b.source)
        shape = (*x.shape[:dim], extent, *x.shape[dim + 1 :])
        place = ix.var(f"d{dim}") + -before
        read = b.along(x, dim, (place // s).max(0).min(old - 1), extent)
        at = b.apply("sub", b.position(shape, dim), before) if before else b.position(shape, dim)
        kept = b.apply("and", b.apply("ge", at, 0), b.apply("lt", at, (old - 1) * s + 1))
        if s > 1:
            kept = b.apply("and", kept, b.apply("eq", b.apply("mod", at, s), 0))
        x = b.where(kept, read, b.const(0, x.dtype))
    return x


def _pooled_extent(extent: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """A window may hang over the end with ``ceil_mode``, but starts within the input or its left padding."""
    span = extent + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-span // stride) if ceil_mode else span // stride) + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= extent + padding else count


def _windows(
    b: Builder,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    space: Sequence[int],
    fill: float,
) -> Value:
    """(*lead, *space, *kernel): the windows of the last dims, ``fill`` outside the input."""
    n = len(kernel)
    first = x.rank - n
    pads = []
    for k in range(n):
        reach = (space[k] - 1) * stride[k] + dilation[k] * (kernel[k] - 1) + 1
        pads.append((padding[k], max(0, reach - x.shape[first + k] - padding[k])))
    padded = constant_pad(b, x, [p for pair in reversed(pads) for p in pair], fill)
    every = dims(x.rank + n)
    index = [every[first + k] * stride[k] + every[x.rank + k] * dilation[k] for k in range(n)]
    return b.remap(padded, [*every[:first], *index], (*x.shape[:first], *space, *kernel))


def max_pool(n: int, with_indices: bool) -> Row:
    def row(
        b: Builder, x: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1, ceil_mode: bool = False
    ) -> Value | tuple[Value, Value]:
        kernel, pads, steps = per_dim(kernel_size, n), per_dim(padding, n), per_dim(dilation, n)
        strides = per_dim(stride, n) if stride != () else kernel
        first = x.rank - n
        if any(2 * p > k for p, k in zip(pads, kernel, strict=True)):
            raise InvalidInput(b.op, f"padding {pads} is more than half of the kernel {kernel}", b.source)
        space = [_pooled_extent(x.shape[first + k], kernel[k], strides[k], pads[k], steps[k], ceil_mode) for k in range(n)]
        value = b.cast(x, compute_dtype(x.dtype))
        lowest = -np.inf if value.dtype in FLOATS else int(np.iinfo("int64" if value.dtype == "i64" else "int32").min)
        windows = _windows(b, value, kernel, strides, pads, steps, space, lowest)
        over = range(x.rank, x.rank + n)
        best = b.cast(b.reduce("max", windows, over), x.dtype)
        if not with_indices:
            return best
        return best, _flat_position(b, b.reduce("argmax", windows, over), x, kernel, strides, pads, steps)

    return row


def _flat_position(
    b: Builder, tap: Value, x: Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Value:
    """Position in the flattened spatial dims of ``x`` of the winning tap of each window."""
    n, first = len(kernel), x.rank - len(kernel)
    out: Value | None = None
    for k in range(n):
        inner = prod(kernel[k + 1 :])
        at = b.apply("mod", b.apply("floordiv", tap, inner), kernel[k])
        start = b.apply("sub", b.apply("mul", b.position(tap.shape, first + k), stride[k]), padding[k])
        place = b.apply("add", start, b.apply("mul", at, dilation[k]))
        out = place if out is None else b.apply("add", b.apply("mul", out, x.shape[first + k]), place)
    assert out is not None
    return out


def avg_pool(n: int) -> Row:
    def row(
        b: Builder,
        x: Value,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        kernel, pads = per_dim(kernel_size, n), per_dim(padding, n)
        strides = per_dim(stride, n) if stride != () else kernel
        first = x.rank - n
        space = [_pooled_extent(x.shape[first + k], kernel[k], strides[k], pads[k], 1, ceil_mode) for k in range(n)]
        value = b.cast(x, compute_dtype(x.dtype))
        summed = b.reduce("sum", _windows(b, value, kernel, strides, pads, [1] * n, space, 0), range(x.rank, x.rank + n))
        if divisor_override is not None:
            return b.cast(b.apply("div", summed, float(divisor_override)), x.dtype)
        for k in range(n):
            starts = [o * strides[k] - pads[k] for o in range(space[k])]
            extent = x.shape[first + k]
            if count_include_pad:
                counts = [min(s + kernel[k], extent + pads[k]) - s for s in starts]
            else:
                counts = [min(s + kernel[k], extent) - max(s, 0) for s in starts]
            if len(set(counts)) == 1:
                count = b.const(float(counts[0]), value.dtype)
            else:
                count = b.cast(_clipped(b, summed, first + k, strides[k], pads[k], kernel[k], extent, count_include_pad), value.dtype)
            summed = b.apply("div", summed, count)
        return b.cast(summed, x.dtype)

    return row


def _clipped(b: Builder, like: Value, dim: int, stride: int, padding: int, kernel: int, extent: int, include: bool) -> Value:
    """How many elements the window at each position along ``dim`` averages."""
    start = b.apply("sub", b.apply("mul", b.position(like.shape, dim), stride), padding)
    end = b.apply("minimum", b.apply("add", start, kernel), extent + padding if include else extent)
    return b.apply("sub", end, start if include else b.apply("maximum", start, 0))


def adaptive_avg_pool(n: int) -> Row:
    """Window i spans floor(i * extent / size) to ceil((i + 1) * extent / size)."""

    def row(b: Builder, x: Value, output_size: Ints) -> Value:
        value = b.cast(x, compute_dtype(x.dtype))
        for k, size in enumerate(per_dim(output_size, n)):
            value = _adaptive_dim(b, value, x.rank - n + k, size)
        return b.cast(value, x.dtype)

    return row


def _adaptive_dim(b: Builder, x: Value, dim: int, size: int) -> Value:
    extent = x.shape[dim]
    spans = [(o * extent // size, -(-(o + 1) * extent // size)) for o in range(size)]
    width = max(end - start for start, end in spans)
    shape = (*x.shape[:dim], size, *x.shape[dim + 1 :], width)
    out, tap = ix.var(f"d{dim}"), ix.var(f"d{x.rank}")
    index = dims(x.rank)
    index[dim] = ((out * extent) // size + tap).min(extent - 1)
    windows = b.remap(x, index, shape)
    if all(end - start == width for start, end in spans):
        return b.apply("div", b.reduce("sum", windows, [x.rank]), float(width))
    place = b.position(shape, dim)
    start = b.apply("floordiv", b.apply("mul", place, extent), size)
    end = b.apply("floordiv", b.apply("add", b.apply("mul", b.apply("add", place, 1), extent), size - 1), size)
    count = b.apply("sub", end, start)
    kept = b.where(b.apply("lt", b.position(shape, x.rank), count), windows, 0.0)
    first = b.remap(count, [ix.const(0) if k == x.rank else d for k, d in enumerate(dims(x.rank + 1))], (*shape[:-1],))
    return b.apply("div", b.reduce("sum", kept, [x.rank]), b.cast(first, x.dtype))


def upsample_nearest(n: int) -> Row:
    def row(b: Builder, x: Value, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None = None) -> Value:
        first = x.rank - n
        if output_size is None:
            assert scale_factors is not None
            output_size = [int(x.shape[first + k] * f) for k, f in enumerate(scale_factors)]
        for k, size in enumerate(output_size):
            old = x.shape[first + k]
            # Torch multiplies by the scale in f32; where that differs from exact arithmetic it is not a quasi-affine index.
            scale = np.float32(1 / scale_factors[k]) if scale_factors is not None else np.float32(old) / np.float32(size)
            places = np.minimum((np.arange(size, dtype=np.float32) * scale).astype(int), old - 1)
            if not np.array_equal(places, np.arange(size) * old // size):
                raise Unsupported(b.op, f"resizing {old} to {size} with scale {scale}", b.source)
            place: Idx = ix.var(f"d{first + k}")
            x = b.along(x, first + k, place // (size // old) if size % old == 0 else place * old // size, size)
        return x

    return row


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    table: dict[str, Row] = {"aten.convolution.default": convolution}
    for n in (1, 2, 3):
        table |= {f"aten.conv{n}d.{kind}": convolve for kind in ("default", "padding")}
        table[f"aten.conv_transpose{n}d.{'default' if n == 1 else 'input'}"] = convolve_transposed
        table[f"aten.max_pool{n}d.default"] = max_pool(n, False)
        table[f"aten.max_pool{n}d_with_indices.default"] = max_pool(n, True)
        table[f"aten.avg_pool{n}d.default"] = avg_pool(n)
        table[f"aten.adaptive_avg_pool{n}d.default"] = adaptive_avg_pool(n)
        table[f"aten.upsample_nearest{n}d.vec"] = upsample_nearest(n)
    return table
