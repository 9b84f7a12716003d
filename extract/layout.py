"""Axes and buffers as coarse as the accesses of one kernel allow.

Adjacent axes that every access walks contiguously become one, and a buffer gets the dims that its addresses spell out.
So a kernel looks the same whatever views its program took of contiguous memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from emmy_eq import index as ix
from emmy_eq.index import Idx

Shape = tuple[int, ...]


def flatten(index: Sequence[Idx], shape: Sequence[int]) -> Idx:
    """The row-major address."""
    flat, stride = ix.const(0), 1
    for x, extent in zip(reversed(index), reversed(shape), strict=True):
        flat = x * stride + flat
        stride *= extent
    return flat


def merge_axes(loops: list[list[str]], extents: dict[str, int], indices: list[Idx]) -> None:
    """Merge neighbours in ``loops`` (each a list of loop variables), in place; ``indices`` (simplified) are all of the kernel's.

    A merged pair keeps the first name; ``extents`` and ``indices`` are rewritten to match.
    """
    merged = True
    while merged:
        merged = False
        for a, b in [pair for names in loops for pair in pairwise(names)]:
            if not all(_adjacent(names, a, b) for names in loops):
                continue
            together = [_together(x, a, b, extents[b]) for x in indices]
            if any(x is None for x in together):
                continue
            indices[:] = [x for x in together if x is not None]
            for names in loops:
                if b in names:
                    names.remove(b)
            extents[a] *= extents.pop(b)
            merged = True
            break


def _adjacent(names: Sequence[str], a: str, b: str) -> bool:
    if a not in names and b not in names:
        return True
    return a in names and names[names.index(a) + 1 : names.index(a) + 2] == [b]


def _together(x: Idx, a: str, b: str, extent: int) -> Idx | None:
    """``x`` with a * extent + b called a, or None where it uses the two in another way."""
    if not ix.variables(x) & {a, b}:
        return x
    first, second = ix.var(a), ix.var(b)
    parts = dict(ix.terms(x))
    if parts.pop(first, 0) != (weight := parts.pop(second, 0)) * extent:
        return None
    rest: list[tuple[Idx, int]] = [(first, weight)] if weight else []
    for factor, c in parts.items():
        if factor.op in ("const", "var"):
            rest.append((factor, c))
            continue
        inner = [_together(y, a, b, extent) for y in factor.args]
        if inner[0] is None or inner[1] is None:
            return None
        rest.append((Idx(factor.op, (inner[0], inner[1])), c))
    return ix.from_terms(rest)


def dims(shape: Shape, flat: Sequence[Idx], extents: Mapping[str, int]) -> tuple[Shape, list[tuple[Idx, ...]]]:
    """The finest shape that all addresses ``flat`` (simplified) split into, and their coordinates in it.

    ``extents`` holds the range of every variable, gathered coordinates included.
    """
    size = 1
    for n in shape:
        size *= n
    if size == 1:
        return (), [()] * len(flat)
    addresses = [ix.terms(x) for x in flat]
    strides = [1]
    for s in sorted({abs(c) for parts in addresses for _, c in parts if 1 < abs(c) < size}):
        if size % s == 0 and s % strides[-1] == 0 and all(_splits(parts, s, extents) for parts in addresses):
            strides.append(s)
    sizes = [outer // inner for inner, outer in zip(strides, [*strides[1:], size], strict=True)]
    coordinates = [tuple(_coordinate(parts, s, n) for s, n in zip(reversed(strides), reversed(sizes), strict=True)) for parts in addresses]
    return tuple(reversed(sizes)), [tuple(ix.simplify(x, extents) for x in c) for c in coordinates]


def _low(parts: Sequence[tuple[Idx, int]], s: int) -> Idx:
    """The address modulo s, where it splits at s."""
    return ix.from_terms([(f, c % s if f.op == "const" else c) for f, c in parts if c % s])


def _splits(parts: Sequence[tuple[Idx, int]], s: int, extents: Mapping[str, int]) -> bool:
    low, high = ix.bounds(_low(parts, s), extents)
    return 0 <= low and high < s


def _coordinate(parts: Sequence[tuple[Idx, int]], s: int, n: int) -> Idx:
    """The coordinate of the dim with stride s and extent n, of an address that splits at s and at s * n."""
    inside = ix.terms(_low(parts, s * n))
    return ix.from_terms([(f, c // s) for f, c in inside if c % s == 0 or f.op == "const"])
