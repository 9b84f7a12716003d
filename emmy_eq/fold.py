"""Constant folding: a class whose member has only literals below it gets that literal.

Only operations that IEEE 754 rounds correctly are folded, so that the result has the bits that any machine would give.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from emmy_eq import encode, named, terms
from emmy_eq.egraph import ENode
from emmy_eq.readback import Tables
from emmy_eq.terms import AxisTable

EXACT_OPS = frozenset({
    "add", "sub", "mul", "div", "neg", "abs", "reciprocal", "sqrt", "maximum", "minimum",
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "where",
})  # fmt: skip


def foldings(tables: Tables, axes: AxisTable) -> list[str]:
    """egglog unions of constant terms with their literals, where the class has no literal yet; sorted."""
    literals = {cls: node.attr for cls, members in tables.nodes.items() for node in members if node.op == "lit"}
    open_classes = (item for item in tables.nodes.items() if item[0] not in literals)
    return sorted({line for cls, members in open_classes for node in members for line in _line(tables, cls, node, literals, axes)})


def _line(tables: Tables, cls: Any, node: ENode, literals: dict[Any, int], axes: AxisTable) -> Iterator[str]:
    dtype = encode.dtype_of(tables.dtype[cls])
    if node.op == "count":
        bits = terms.to_bits(dtype, axes.points(node.attr))
        yield f"(union (Count {encode.code(dtype)} {node.attr}) {encode.literal(dtype, bits)})"
    if (node.op not in EXACT_OPS and node.op != "cast") or not all(c in literals for c in node.children):
        return
    dtypes = [encode.dtype_of(tables.dtype[c]) for c in node.children]
    args = [named.scalar(terms.from_bits(d, literals[c]), d) for d, c in zip(dtypes, node.children, strict=True)]
    value = named.cast(args[0], dtype) if node.op == "cast" else named.apply(node.op, *args)
    head = f"Cast {encode.code(dtype)}" if node.op == "cast" else encode.constructor(node.op)
    inner = " ".join(encode.literal(d, literals[c]) for d, c in zip(dtypes, node.children, strict=True))
    yield f"(union ({head} {inner}) {encode.literal(dtype, int.from_bytes(value.array.tobytes(), 'little'))})"
