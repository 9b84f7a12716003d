"""Constant folding: a class whose member has only literals below it gets that literal.

Only where the result is the exact real number, so that folding rounds nothing; what it leaves (a reciprocal of 7) has no axes,
so a kernel computes it once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from emmy_eq import named, ops, signature, terms
from emmy_eq.egraph import ENode
from emmy_eq.readback import Tables
from emmy_eq.terms import AxisTable

_REAL: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "reciprocal": lambda a: 1 / a,
    "neg": operator.neg, "abs": abs, "maximum": max, "minimum": min, "cast": lambda a: a,
}  # fmt: skip
_CHOICES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "where"})  # round nothing, whatever the operands


def foldings(tables: Tables, axes: AxisTable) -> list[str]:
    """egglog unions of constant terms with their literals, where the class has no literal yet; sorted."""
    literals = {cls: node.attr for cls, members in tables.nodes.items() for node in members if node.op == "lit"}
    lines = (
        line
        for cls, members in tables.nodes.items()
        if cls not in literals
        for node in members
        for line in _line(tables, signature.dtype_of(tables.dtype[cls]), node, literals, axes)
    )
    return sorted(set(lines))


def _line(tables: Tables, dtype: str, node: ENode, literals: Mapping[Any, int], axes: AxisTable) -> Iterator[str]:
    if node.op == "count":
        bits = terms.to_bits(dtype, axes.points(node.attr))
        yield f"(union (Count {signature.code(dtype)} {node.attr}) {signature.literal(dtype, bits)})"
    if node.op == "reduce" and node.children[0] in literals:
        monoid, mask = node.attr
        yield from _reduced(dtype, monoid, mask, literals[node.children[0]], axes)
    if not (node.op in _REAL or node.op in _CHOICES or node.op == "sqrt") or not all(c in literals for c in node.children):
        return
    dtypes = [signature.dtype_of(tables.dtype[c]) for c in node.children]
    values = [terms.from_bits(d, literals[c]) for d, c in zip(dtypes, node.children, strict=True)]
    args = [named.scalar(v, d) for v, d in zip(values, dtypes, strict=True)]
    result = named.cast(args[0], dtype) if node.op == "cast" else named.apply(node.op, *args)
    if not _is_exact(node.op, values, result.array[()]):
        return
    head = f"Cast {signature.code(dtype)}" if node.op == "cast" else signature.constructor(node.op)
    inner = " ".join(signature.literal(d, literals[c]) for d, c in zip(dtypes, node.children, strict=True))
    yield f"(union ({head} {inner}) {signature.literal(dtype, int.from_bytes(result.array.tobytes(), 'little'))})"


def _reduced(dtype: str, monoid: str, mask: int, bits: int, axes: AxisTable) -> Iterator[str]:
    """The union for a constant reduced over the axes of ``mask``."""
    value, points = terms.from_bits(dtype, bits), axes.points(mask)
    if monoid == "sum" and math.isfinite(value):
        exact = Fraction(float(value)) * points
        found = terms.from_bits(dtype, terms.to_bits(dtype, float(exact)))
        if not math.isfinite(found) or Fraction(float(found)) != exact:
            return
    elif monoid in ("max", "min", "any", "all") and points:
        found = value
    else:
        return
    yield f'(union (Reduce "{monoid}" {signature.literal(dtype, bits)} {mask}) {signature.literal(dtype, terms.to_bits(dtype, found))})'


def _is_exact(op: str, values: Sequence[Any], result: Any) -> bool:
    if op in _CHOICES:
        return True
    if not all(math.isfinite(v) for v in (*values, result)):
        return False
    args, found = [Fraction(float(v)) for v in values], Fraction(float(result))
    if op == "sqrt":
        return found * found == args[0]
    return bool(_REAL[op](*args) == found)


assert _REAL.keys() | _CHOICES <= ops.ops().keys() | {"cast"}
