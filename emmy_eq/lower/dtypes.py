"""Dtype promotion as torch does it, and the dtype that arithmetic is done in.

Source: torch.result_type; the categories are dimensioned tensors, 0-dim tensors, Python scalars, in that priority.
"""

from __future__ import annotations

from collections.abc import Sequence

from emmy_eq.lower.builder import Scalar, Value
from emmy_eq.ops import FLOATS, INTS

_INT_BITS = {"u8": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64}


def compute_dtype(dtype: str) -> str:
    """16-bit floats compute in f32, integers narrower than 32 bits in i32."""
    if dtype in ("f16", "bf16"):
        return "f32"
    return "i32" if dtype in ("i8", "i16", "u8") else dtype


def promote(a: str, b: str) -> str:
    """The smallest dtype that torch converts both to."""
    if a == b or b == "bool":
        return a
    if a == "bool":
        return b
    if (a in FLOATS) != (b in FLOATS):
        return a if a in FLOATS else b
    if a in FLOATS:
        return "f64" if "f64" in (a, b) else "f32"  # f16 with bf16, or either with f32
    if {a, b} == {"u8", "i8"}:
        return "i16"
    return max(a, b, key=_INT_BITS.__getitem__)


def scalar_dtype(x: Scalar) -> str:
    if isinstance(x, bool):
        return "bool"
    return "i64" if isinstance(x, int) else "f32"


def _category(dtype: str) -> int:
    return 2 if dtype in FLOATS else 1 if dtype in INTS else 0


def _combine(higher: str | None, lower: str | None) -> str | None:
    """A lower-priority operand counts only where it is of a higher kind (bool < integer < float)."""
    if higher is None or lower is None:
        return higher or lower
    return promote(higher, lower) if _category(lower) > _category(higher) else higher


def result_dtype(args: Sequence[Value | Scalar]) -> str:
    """`torch.result_type` of any number of operands."""
    groups: list[str | None] = [None, None, None]
    for x in args:
        rank = 2 if not isinstance(x, Value) else 0 if x.shape else 1
        dtype = x.dtype if isinstance(x, Value) else scalar_dtype(x)
        here = groups[rank]
        groups[rank] = dtype if here is None else promote(here, dtype)
    out = _combine(groups[0], _combine(groups[1], groups[2]))
    assert out is not None
    return out


def float_dtype(dtype: str) -> str:
    """What a float function gives on ``dtype``: integers and bool become the default float."""
    return dtype if dtype in FLOATS else "f32"
