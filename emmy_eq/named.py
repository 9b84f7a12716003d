"""Named-axis NumPy arrays: the reference semantics of every operation on terms.

An array's dims are named by axes, and operands meet by name, so an operand that lacks an axis is constant along it.  With
``float64`` every float is computed as f64 (the oracle); otherwise each operation has exactly its dtype.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emmy_eq import index as ix
from emmy_eq.algebra import Scalar
from emmy_eq.index import Idx
from emmy_eq.ops import DTYPES, FLOATS, monoids, ops, twists

Array = np.ndarray[Any, Any]
Extents = Mapping[str, int]  # axis name -> extent; where several axes are reduced, the order of flattening


@dataclass(frozen=True, slots=True, eq=False)
class NamedArray(Scalar):
    """``array``'s dims are the axes named ``axes``, in that order.

    What is written in the algebra of rules as a scalar function (a twist's weight) evaluates as it stands.
    """

    axes: tuple[str, ...]
    array: Array

    def _op(self, name: str, *others: NamedArray) -> NamedArray:
        return apply(name, self, *others)

    def like(self, value: float) -> NamedArray:
        return NamedArray((), np.asarray(value).astype(self.array.dtype))

    def over(self, axes: Extents) -> Array:
        """The array with exactly these axes, in this order, broadcast along those that it lacks."""
        order = [self.axes.index(a) for a in axes if a in self.axes]
        if len(order) != len(self.axes):
            raise ValueError(f"axes {self.axes} are not among {tuple(axes)}")
        shape = [self.array.shape[self.axes.index(a)] if a in self.axes else 1 for a in axes]
        return np.broadcast_to(self.array.transpose(order).reshape(shape), tuple(axes.values()))

    def with_axes(self, axes: Extents) -> NamedArray:
        """The array with ``axes`` last, broadcast along those that it lacks."""
        kept = {a: n for a, n in self.extents().items() if a not in axes}
        return NamedArray((*kept, *axes), self.over({**kept, **axes}))

    def extents(self) -> dict[str, int]:
        return dict(zip(self.axes, self.array.shape, strict=True))


def dtype_of(dtype: str, float64: bool) -> np.dtype[Any]:
    """The NumPy dtype that holds ``dtype`` in this mode."""
    return DTYPES["f64"] if float64 and dtype in FLOATS else DTYPES[dtype]


def scalar(value: Any, dtype: str, float64: bool = False) -> NamedArray:
    """``value`` (already rounded to ``dtype``) as an array without axes."""
    return NamedArray((), np.asarray(value).astype(dtype_of(dtype, float64)))


def aligned(*arrays: NamedArray) -> tuple[tuple[str, ...], tuple[Array, ...]]:
    """The union of the arrays' axes, and the arrays with those dims (extent 1 where an array lacks the axis)."""
    axes = tuple(dict.fromkeys(a for x in arrays for a in x.axes))
    out = []
    for x in arrays:
        order = [x.axes.index(a) for a in axes if a in x.axes]
        extents = x.extents()
        out.append(x.array.transpose(order).reshape([extents.get(a, 1) for a in axes]))
    return axes, tuple(out)


def apply(op: str, *args: NamedArray) -> NamedArray:
    """A row of the op table."""
    row = ops()[op]
    axes, arrays = aligned(*args)
    with np.errstate(all="ignore"):
        out = np.asarray(row.numpy(*arrays))
    return NamedArray(axes, out.astype(DTYPES["bool"] if row.result == "bool" else arrays[-1].dtype, copy=False))


def cast(x: NamedArray, dtype: str, float64: bool = False) -> NamedArray:
    """Conversion as `emmy_eq.tensor_ir.Elementwise` states it."""
    if dtype == "bool":
        return NamedArray(x.axes, np.asarray(x.array != 0))
    with np.errstate(all="ignore"):
        by_i32 = dtype in ("u8", "i8", "i16") and x.array.dtype.kind not in "iub"
        return NamedArray(x.axes, (x.array.astype(np.int32) if by_i32 else x.array).astype(dtype_of(dtype, float64)))


def reduce(monoid: str, x: NamedArray, over: Extents, dtype: str) -> NamedArray:
    """Over the axes of ``over``, those that ``x`` does not vary along included; ``dtype`` is that of ``x``'s value."""
    row = monoids()[monoid]
    x = x.with_axes(over)
    axes = x.axes[: len(x.axes) - len(over)]
    if 0 in over.values():
        return NamedArray(axes, np.full(x.array.shape[: len(axes)], row.identity(dtype), x.array.dtype))
    array = x.array.reshape(*x.array.shape[: len(axes)], math.prod(over.values())) if row.serial else x.array
    with np.errstate(all="ignore"):
        for _ in over if not row.serial else (over,):
            array = np.asarray(row.numpy(array, axis=-1)).astype(x.array.dtype, copy=False)
    return NamedArray(axes, array)


def argreduce(name: str, x: NamedArray, over: Extents) -> NamedArray:
    """Position of the first NaN if any, else of the first best, among the axes of ``over`` flattened in order."""
    x = x.with_axes(over)
    axes = x.axes[: len(x.axes) - len(over)]
    array = x.array.reshape(*x.array.shape[: len(axes)], math.prod(over.values()))
    if array.dtype.kind not in "biuf":
        array = array.astype(np.float32)  # NumPy orders NaN first for its own float types only
    return NamedArray(axes, (np.argmax if name == "argmax" else np.argmin)(array, axis=-1).astype(np.int64))


def scan(monoid: str, x: NamedArray, over: Extents) -> NamedArray:
    """Inclusive, along the one axis of ``over``."""
    x = x.with_axes(over)
    with np.errstate(all="ignore"):
        return NamedArray(x.axes, np.asarray(monoids()[monoid].accumulate(x.array, axis=-1)).astype(x.array.dtype, copy=False))


def running(name: str, s: NamedArray, v: NamedArray, over: Extents) -> NamedArray:
    """The total of a twist up to each place along the one axis of ``over``."""
    row, ((axis, extent),) = twists()[name], over.items()
    s, v = s.with_axes(over), v.with_axes(over)
    places = ((NamedArray(s.axes[:-1], s.array[..., n]), NamedArray(v.axes[:-1], v.array[..., n])) for n in range(extent))
    totals = row.totals(places)
    if not totals:
        return s * v
    kept = totals[-1].extents()
    return NamedArray((*kept, axis), np.stack([t.over(kept) for t in totals], axis=-1))


def twist(name: str, s: NamedArray, v: NamedArray, over: Extents, dtype: str) -> NamedArray:
    """sum of weight(s, M) * v, with M the centre of s's key reduction; ``dtype`` is that of ``s``.  Where ``v`` is narrower, the
    weight is rounded as ``v`` is, and the product of the two is exact."""
    row, wide, narrow = twists()[name], s.array.dtype, v.array.dtype
    count = NamedArray((), np.asarray(math.prod(over.values()), wide))
    weight = row.weight(s, row.centre(reduce(row.key, s, over, dtype), count))
    if narrow != wide:
        weight, v = NamedArray(weight.axes, weight.array.astype(narrow).astype(wide)), NamedArray(v.axes, v.array.astype(wide))
    return reduce("sum", weight * v, over, dtype)


def position(x: Idx, axes: Extents, indices: Sequence[NamedArray] = ()) -> NamedArray:
    """The i64 value of ``x`` at every point of ``axes``; ``g0, g1, ...`` in it name ``indices``."""
    used = ix.variables(x)
    names = {name: NamedArray((name,), np.arange(axes[name])) for name in axes if name in used}
    names |= {f"g{k}": value for k, value in enumerate(indices) if f"g{k}" in used}
    found, arrays = aligned(*names.values())
    value = ix.evaluate(x, dict(zip(names, arrays, strict=True)))
    return NamedArray(found, np.broadcast_to(value, np.broadcast_shapes(*(a.shape for a in arrays))).astype(np.int64, copy=False))


def gather(array: Array, idxs: Sequence[Idx], axes: Extents, indices: Sequence[NamedArray] = ()) -> NamedArray:
    """``array[idxs]`` at every point of ``axes``, with ``indices`` as in `position`.  Raises `IndexError` out of range."""
    found, places = aligned(*(position(x, axes, indices) for x in idxs))
    for dim, (x, place, extent) in enumerate(zip(idxs, places, array.shape, strict=True)):
        if place.size and not (0 <= place.min() and place.max() < extent):
            raise IndexError(f"index {x} of dim {dim} leaves [0, {extent})")
    return NamedArray(found, np.asarray(array[places]))
