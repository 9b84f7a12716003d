"""Views and copies that only move elements: index maps, and `where` over clamped reads for cat and pad."""

from __future__ import annotations

from collections.abc import Sequence

from emmy_eq import index as ix
from emmy_eq.errors import InvalidInput, Unsupported
from emmy_eq.lower.builder import Builder, Scalar, Value, broadcast_shapes, dims, extents, wrap_dim, wrap_dims
from emmy_eq.lower.dtypes import promote
from emmy_eq.lower.row import Row
from emmy_eq.tensor_ir import Shape, total


def identity(b: Builder, x: Value) -> Value:
    return x


def reshape(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    return b.reshape(x, infer_shape(b, x.shape, shape))


def infer_shape(b: Builder, old: Shape, new: Sequence[int]) -> Shape:
    """``new`` with its one -1 replaced."""
    known = total([n for n in new if n != -1])
    if list(new).count(-1) > 1 or (-1 in new and (known == 0 or total(old) % known)):
        raise InvalidInput(b.op, f"shape {list(new)} is invalid for {total(old)} elements", b.source)
    return tuple(total(old) // known if n == -1 else n for n in new)


def flatten(b: Builder, x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if not x.shape:
        return b.reshape(x, (1,))
    first, last = wrap_dim(b.op, start_dim, x.rank), wrap_dim(b.op, end_dim, x.rank)
    return b.reshape(x, (*x.shape[:first], total(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def unflatten(b: Builder, x: Value, dim: int, sizes: Sequence[int]) -> Value:
    dim = wrap_dim(b.op, dim, x.rank)
    return b.reshape(x, (*x.shape[:dim], *infer_shape(b, (x.shape[dim],), sizes), *x.shape[dim + 1 :]))


def permute(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    order = [wrap_dim(b.op, d, x.rank) for d in dims]
    if sorted(order) != list(range(x.rank)):
        raise InvalidInput(b.op, f"dims {list(dims)} are not a permutation", b.source)
    return b.permute(x, order)


def transpose(b: Builder, x: Value, dim0: int, dim1: int) -> Value:
    order = list(range(x.rank))
    if x.rank:
        i, j = wrap_dim(b.op, dim0, x.rank), wrap_dim(b.op, dim1, x.rank)
        order[i], order[j] = order[j], order[i]
    return b.permute(x, order)


def t(b: Builder, x: Value) -> Value:
    return transpose(b, x, 0, 1) if x.rank == 2 else x


def numpy_t(b: Builder, x: Value) -> Value:
    return b.permute(x, range(x.rank)[::-1])


def matrix_t(b: Builder, x: Value) -> Value:
    return transpose(b, x, -2, -1)


def movedim(b: Builder, x: Value, source: int | Sequence[int], destination: int | Sequence[int]) -> Value:
    sources = [wrap_dim(b.op, d, x.rank) for d in ([source] if isinstance(source, int) else source)]
    targets = [wrap_dim(b.op, d, x.rank) for d in ([destination] if isinstance(destination, int) else destination)]
    rest = iter(d for d in range(x.rank) if d not in sources)
    placed = dict(zip(targets, sources, strict=True))
    return b.permute(x, [placed[d] if d in placed else next(rest) for d in range(x.rank)])


def expand(b: Builder, x: Value, size: Sequence[int], implicit: bool = False) -> Value:
    lead = len(size) - x.rank
    return b.expand(x, tuple(x.shape[k - lead] if n == -1 and k >= lead else n for k, n in enumerate(size)))


def expand_as(b: Builder, x: Value, other: Value) -> Value:
    return b.expand(x, other.shape)


def view_as(b: Builder, x: Value, other: Value) -> Value:
    return b.reshape(x, other.shape)


def broadcast_tensors(b: Builder, tensors: Sequence[Value]) -> list[Value]:
    shape = broadcast_shapes(b.op, [x.shape for x in tensors])
    return [b.expand(x, shape) for x in tensors]


def unsqueeze(b: Builder, x: Value, dim: int) -> Value:
    return b.unsqueeze(x, [wrap_dim(b.op, dim, x.rank + 1)])


def squeeze(b: Builder, x: Value, dim: int | Sequence[int] | None = None) -> Value:
    if dim == ():
        return x
    named = wrap_dims(b.op, dim, x.rank)
    return b.squeeze(x, [d for d in named if x.rank and x.shape[d] == 1])


def slice_(b: Builder, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    dim = wrap_dim(b.op, dim, x.rank)
    if step < 1:
        raise InvalidInput(b.op, f"step={step} must be positive", b.source)
    first, last, _ = slice(start, end).indices(x.shape[dim])
    extent = max(0, -(-(last - first) // step))
    return b.along(x, dim, ix.var(f"d{dim}") * step + first, extent)


def narrow(b: Builder, x: Value, dim: int, start: int, length: int) -> Value:
    dim = wrap_dim(b.op, dim, x.rank)
    first = start + x.shape[dim] if start < 0 else start
    if not 0 <= first <= first + length <= x.shape[dim]:
        raise InvalidInput(b.op, f"start {start} and length {length} leave dim {dim} of shape {x.shape}", b.source)
    return slice_(b, x, dim, first, first + length)


def select(b: Builder, x: Value, dim: int, index: int) -> Value:
    dim = wrap_dim(b.op, dim, x.rank)
    if not x.shape or not -x.shape[dim] <= index < x.shape[dim]:
        raise InvalidInput(b.op, f"index {index} is out of range in dim {dim} of shape {x.shape}", b.source)
    out = dims(x.rank - 1)
    index = index % x.shape[dim]
    return b.remap(x, [*out[:dim], ix.const(index), *out[dim:]], (*x.shape[:dim], *x.shape[dim + 1 :]))


def unbind(b: Builder, x: Value, dim: int = 0) -> list[Value]:
    return [select(b, x, dim, i) for i in range(x.shape[dim])]


def split(b: Builder, x: Value, split_size: int, dim: int = 0) -> list[Value]:
    extent = x.shape[dim]
    return [slice_(b, x, dim, i, i + split_size) for i in range(0, max(extent, 1), max(split_size, 1))]


def split_with_sizes(b: Builder, x: Value, split_sizes: Sequence[int], dim: int = 0) -> list[Value]:
    if sum(split_sizes) != x.shape[dim]:
        raise InvalidInput(b.op, f"sizes {list(split_sizes)} do not sum to {x.shape[dim]}", b.source)
    starts = [sum(split_sizes[:k]) for k in range(len(split_sizes))]
    return [slice_(b, x, dim, i, i + n) for i, n in zip(starts, split_sizes, strict=True)]


def chunk(b: Builder, x: Value, chunks: int, dim: int = 0) -> list[Value]:
    extent = x.shape[dim]
    if extent == 0:
        return [x] * chunks
    return split(b, x, -(-extent // chunks), dim)


def tensor_split(b: Builder, x: Value, sections: int, dim: int = 0) -> list[Value]:
    extent = x.shape[dim]
    sizes = [extent // sections + (k < extent % sections) for k in range(sections)]
    return split_with_sizes(b, x, sizes, dim)


def flip(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    for dim in wrap_dims(b.op, dims, x.rank) if dims else ():
        x = b.along(x, dim, ix.var(f"d{dim}") * -1 + (x.shape[dim] - 1), x.shape[dim])
    return x


def roll(b: Builder, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    if not dims:
        return b.reshape(roll(b, b.reshape(x, (total(x.shape),)), shifts, [0]), x.shape)
    for shift, d in zip(shifts, dims, strict=True):
        dim = wrap_dim(b.op, d, x.rank)
        extent = x.shape[dim]
        if extent:
            x = b.along(x, dim, (ix.var(f"d{dim}") + -shift % extent) % extent, extent)
    return x


def repeat(b: Builder, x: Value, repeats: Sequence[int]) -> Value:
    x = b.unsqueeze(x, range(len(repeats) - x.rank))
    shape = tuple(n * r for n, r in zip(x.shape, repeats, strict=True))
    if not total(shape):
        return b.full(shape, 0, x.dtype)
    return b.remap(x, [d % n for d, n in zip(dims(x.rank), x.shape, strict=True)], shape)


def tile(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    return repeat(b, x, [*[1] * (x.rank - len(dims)), *dims])


def repeat_interleave(b: Builder, x: Value, repeats: int, dim: int | None = None, output_size: int | None = None) -> Value:
    if dim is None:
        x, dim = b.reshape(x, (total(x.shape),)), 0
    dim = wrap_dim(b.op, dim, x.rank)
    if not repeats:
        return slice_(b, x, dim, 0, 0)
    return b.along(x, dim, ix.var(f"d{dim}") // repeats, x.shape[dim] * repeats)


def unfold(b: Builder, x: Value, dimension: int, size: int, step: int) -> Value:
    """Windows: dim ``dimension`` counts them, the new last dim walks one."""
    dim = wrap_dim(b.op, dimension, x.rank)
    if not x.rank:
        return b.reshape(x, (size,))
    count = (x.shape[dim] - size) // step + 1
    index = dims(x.rank)
    index[dim] = ix.var(f"d{dim}") * step + ix.var(f"d{x.rank}")
    return b.remap(x, index, (*x.shape[:dim], count, *x.shape[dim + 1 :], size))


def diagonal(b: Builder, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    i, j = wrap_dim(b.op, dim1, x.rank), wrap_dim(b.op, dim2, x.rank)
    rest = [d for d in range(x.rank) if d not in (i, j)]
    extent = max(0, min(x.shape[i] + min(offset, 0), x.shape[j] - max(offset, 0)))
    walk = ix.var(f"d{len(rest)}")
    index = [ix.const(0)] * x.rank
    for new, old in enumerate(rest):
        index[old] = ix.var(f"d{new}")
    index[i], index[j] = walk + max(-offset, 0), walk + max(offset, 0)
    return b.remap(x, index, (*(x.shape[d] for d in rest), extent))


def as_strided(b: Builder, x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Value:
    """Over the row-major elements of ``x``."""
    flat = b.reshape(x, (total(x.shape),))
    where = ix.const(storage_offset or 0)
    for d, s in zip(dims(len(size)), stride, strict=True):
        where = where + d * s
    low, high = ix.bounds(where, extents(tuple(size)))
    if total(size) and not 0 <= low <= high < total(x.shape):
        raise Unsupported(b.op, f"elements {low} to {high} of a tensor of {total(x.shape)}", b.source)
    return b.remap(flat, [where], tuple(size))


def as_strided_scatter(
    b: Builder, x: Value, src: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    """``x`` with the strided window replaced by ``src``; the window's strides must nest (no element twice)."""
    n = total(x.shape)
    if not total(size):
        return x
    position = ix.var("d0") + -(storage_offset or 0)
    rest: ix.Idx = position
    inside = [(position, n)]
    coordinates: list[ix.Idx] = [ix.const(0)] * len(size)
    order = sorted((k for k in range(len(size)) if size[k] > 1), key=lambda k: -stride[k])
    for place, k in enumerate(order):
        span = sum((size[j] - 1) * stride[j] for j in order[place + 1 :])
        if stride[k] <= span:
            raise Unsupported(b.op, f"a write through an overlapping view (strides {list(stride)} of {list(size)})", b.source)
        coordinates[k] = (rest // stride[k]).max(0).min(size[k] - 1)
        inside.append((rest // stride[k], size[k]))
        rest = rest % stride[k]
    inside.append((rest, 1))
    flat = b.remap(src, coordinates, (n,))
    mask: Value | None = None
    for expression, extent in inside:
        here = _index_value(b, expression, n)
        checks = [b.apply("ge", here, 0), b.apply("lt", here, extent)]
        for check in checks:
            mask = check if mask is None else b.apply("and", mask, check)
    assert mask is not None
    return b.reshape(b.where(mask, flat, b.reshape(x, (n,))), x.shape)


def _index_value(b: Builder, x: ix.Idx, n: int) -> Value:
    """The i64 value of an index expression over ``d0``, at each of ``n`` positions."""
    if x.op == "var":
        return b.iota(n)
    if x.op == "const":
        return b.const(x.value, "i64")
    op = {"add": "add", "mul": "mul", "floordiv": "floordiv", "mod": "mod"}[x.op]
    return b.apply(op, *(_index_value(b, a, n) for a in x.args))


def cat(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Nested `where` over clamped reads; 1-D empty tensors are skipped, as torch's legacy rule says."""
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = promote(dtype, x.dtype)
    parts = [b.convert(x, dtype) for x in tensors if x.shape != (0,)]
    if not parts:
        return b.cast(tensors[0], dtype)
    dim = wrap_dim(b.op, dim, parts[0].rank)
    others = {(*x.shape[:dim], *x.shape[dim + 1 :]) for x in parts}
    if len(others) > 1:
        raise InvalidInput(b.op, f"shapes {[x.shape for x in parts]} differ outside dim {dim}", b.source)
    return concatenate(b, [x for x in parts if x.shape[dim]] or parts[:1], dim)


def concatenate(b: Builder, parts: Sequence[Value], dim: int) -> Value:
    """Parts of one dtype that differ in dim ``dim`` only, none of them empty there unless alone."""
    extent = sum(x.shape[dim] for x in parts)
    shape = (*parts[0].shape[:dim], extent, *parts[0].shape[dim + 1 :])
    place = ix.var(f"d{dim}")
    out: Value | None = None
    end = extent
    for x in reversed(parts):
        start = end - x.shape[dim]
        read = b.along(x, dim, (place + -start).max(0).min(x.shape[dim] - 1), extent)
        out = read if out is None else b.where(b.apply("lt", b.position(shape, dim), end), read, out)
        end = start
    assert out is not None
    return out


def stack(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    dim = wrap_dim(b.op, dim, tensors[0].rank + 1)
    return cat(b, [b.unsqueeze(x, [dim]) for x in tensors], dim)


def constant_pad(b: Builder, x: Value, pad: Sequence[int], value: Scalar = 0) -> Value:
    """``pad``: (before, after) pairs from the last dim on; negative entries crop."""
    for k, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = x.rank - 1 - k
        extent = x.shape[dim] + before + after
        if extent < 0:
            raise InvalidInput(b.op, f"pad {list(pad)} makes dim {dim} of shape {x.shape} negative", b.source)
        x = _pad_dim(b, x, dim, before, extent, value)
    return x


def _pad_dim(b: Builder, x: Value, dim: int, before: int, extent: int, value: Scalar) -> Value:
    old = x.shape[dim]
    shape = (*x.shape[:dim], extent, *x.shape[dim + 1 :])
    if not old or not total(shape):
        return b.full(shape, value, x.dtype)
    read = b.along(x, dim, (ix.var(f"d{dim}") + -before).max(0).min(old - 1), extent)
    place = b.position(shape, dim)
    checks = [b.apply("ge", place, before)] if before > 0 else []
    checks += [b.apply("lt", place, before + old)] if extent > before + old else []
    for check in checks:
        read = b.where(check, read, b.const(value, x.dtype))
    return read


def pad(b: Builder, x: Value, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Value:
    if mode == "constant":
        return constant_pad(b, x, pad, value or 0)
    if mode == "circular":  # what wraps is the cropped tensor
        x, pad = constant_pad(b, x, [min(p, 0) for p in pad]), [max(p, 0) for p in pad]
    for k, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = x.rank - 1 - k
        n = x.shape[dim]
        place = ix.var(f"d{dim}") + -before
        if mode == "circular":
            place = (place + n * -(-before // n)) % n
        elif mode == "reflect":
            distance = place.max(place * -1)
            place = distance.min(distance * -1 + 2 * (n - 1))
        elif mode != "replicate":
            raise Unsupported(b.op, f"mode={mode!r}", b.source)
        # For reflect the clamp changes nothing, and shows that the place is in bounds.
        place = place if mode == "circular" else place.max(0).min(n - 1)
        x = b.along(x, dim, place, n + before + after)
    return x


def triangle(keep_below: bool) -> Row:
    """tril keeps column - row <= diagonal, triu keeps >= diagonal; the rest is 0."""

    def row(b: Builder, x: Value, diagonal: int = 0) -> Value:
        i, j = b.position(x.shape, x.rank - 2), b.position(x.shape, x.rank - 1)
        kept = b.apply("le" if keep_below else "ge", j, b.apply("add", i, diagonal) if diagonal else i)
        return b.where(kept, x, b.const(0, x.dtype))

    return row


def rows() -> dict[str, Row]:
    """Torch op -> row."""
    same = ("alias clone contiguous detach lift_fresh lift_fresh_copy lift resolve_neg resolve_conj").split()
    table: dict[str, Row] = {f"aten.{op}.default": identity for op in same}
    return table | {
        "aten.reshape.default": reshape, "aten.view.default": reshape, "aten._unsafe_view.default": reshape,
        "aten.flatten.using_ints": flatten, "aten.unflatten.int": unflatten, "aten.ravel.default": flatten,
        "aten.permute.default": permute, "aten.transpose.int": transpose, "aten.swapaxes.default": transpose,
        "aten.t.default": t, "aten.numpy_T.default": numpy_t, "aten.mT.default": matrix_t, "aten.matrix_H.default": matrix_t,
        "aten.movedim.int": movedim, "aten.movedim.intlist": movedim,
        "aten.expand.default": expand, "aten.expand_as.default": expand_as, "aten.view_as.default": view_as,
        "aten.reshape_as.default": view_as, "aten.broadcast_to.default": expand, "aten.broadcast_tensors.default": broadcast_tensors,
        "aten.unsqueeze.default": unsqueeze, "aten.squeeze.default": squeeze, "aten.squeeze.dim": squeeze, "aten.squeeze.dims": squeeze,
        "aten.slice.Tensor": slice_, "aten.narrow.default": narrow, "aten.select.int": select, "aten.unbind.int": unbind,
        "aten.split.Tensor": split, "aten.split.sizes": split_with_sizes, "aten.split_with_sizes.default": split_with_sizes,
        "aten.chunk.default": chunk, "aten.tensor_split.sections": tensor_split,
        "aten.flip.default": flip, "aten.roll.default": roll, "aten.repeat.default": repeat, "aten.tile.default": tile,
        "aten.repeat_interleave.self_int": repeat_interleave, "aten.unfold.default": unfold, "aten.diagonal.default": diagonal,
        "aten.as_strided.default": as_strided, "aten.as_strided_scatter.default": as_strided_scatter,
        "aten.cat.default": cat, "aten.concat.default": cat, "aten.concatenate.default": cat, "aten.stack.default": stack,
        "aten.constant_pad_nd.default": constant_pad, "aten.pad.default": pad,
        "aten.tril.default": triangle(True), "aten.triu.default": triangle(False),
    }  # fmt: skip
