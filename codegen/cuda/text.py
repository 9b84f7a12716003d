"""C++ text of types, names, constants, casts and index expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from emmy_eq import index
from emmy_eq.codegen import kernel_ir as ir
from emmy_eq.codegen.kernel_ir.show import literal
from emmy_eq.index import Idx
from emmy_eq.ops import ops

# 16-bit floats are storage: bit patterns in registers.
TYPES: Mapping[str, str] = {
    "f32": "float", "f64": "double", "f16": "unsigned short", "bf16": "unsigned short", "i64": "long long", "i32": "int",
    "i16": "short", "i8": "signed char", "u8": "unsigned char", "bool": "bool", "mbar": "unsigned long long",
}  # fmt: skip
HALVES = ("f16", "bf16")
I32 = (-(2**31), 2**31 - 1)
I64 = (-(2**63), 2**63 - 1)

_KEYWORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr continue
decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register return short signed sizeof
static struct switch template this throw true try typedef typeid typename union unsigned using virtual void volatile while xor
xor_eq main signbit isnan isinf threadIdx blockIdx blockDim gridDim warpSize"""


@cache
def _reserved() -> frozenset[str]:
    """Words that a register or parameter cannot be called: keywords, and the functions that the op table calls."""
    called = {w for row in ops().values() for text in row.cuda.values() for w in re.findall(r"[A-Za-z_]\w*", text)}
    return frozenset(_KEYWORDS.split()) | called


def name(x: str) -> str:
    return x + "_" if x in _reserved() or x.endswith("_") or x.startswith(("__", "emmy_")) else x


def atom(a: ir.Atom) -> str:
    return name(a) if isinstance(a, str) else constant(a)


def constant(x: ir.Lit) -> str:
    """Exact text; negative numbers in parentheses, since templates put signs before their arguments."""
    if x.dtype in HALVES:
        return f"(unsigned short){x.bits & 0xFFFF:#06x}"
    value = literal(x)
    if x.dtype == "bool":
        return "true" if value else "false"
    if x.dtype in ("f32", "f64"):
        return _float(x, value)
    suffix = "ll" if x.dtype == "i64" else ""
    low = int(np.iinfo(value.dtype).min)
    text = f"{low + 1}{suffix} - 1" if value == low and value < -128 else f"{value}{suffix}"
    return f"({text})" if value < 0 else text


def _float(x: ir.Lit, value: Any) -> str:
    if not np.isfinite(value):
        return f"__int_as_float({x.bits:#010x})" if x.dtype == "f32" else f"__longlong_as_double({x.bits:#018x}ll)"
    plain = value == 0 or 1e-4 <= abs(value) < 1e7
    text = np.format_float_positional(value, trim="0") if plain else np.format_float_scientific(value, trim="0")
    text += "f" if x.dtype == "f32" else ""
    return f"({text})" if text.startswith("-") else text


def cast(x: str, source: str, to: str) -> str:
    """``x`` of dtype ``source`` as ``to``.  Floats saturate into integers (`cvt.rzi`), narrow integers wrap: never undefined."""
    if source == to:
        return x
    if source in HALVES:
        return f"(({x} & 0x7fff) != 0)" if to == "bool" else cast(f"emmy_{source}_to_f32({x})", "f32", to)
    if to in HALVES:
        return f"emmy_f32_to_{to}({cast(x, source, 'f32')})"
    if to == "bool":
        return f"({x} != 0)"
    if source in ("f32", "f64") and to not in ("f32", "f64"):
        wide = "ll" if to in ("i64", "u8") else "int"
        return f"({TYPES[to]})__{TYPES[source]}2{wide}_rz({x})"
    return f"({TYPES[to]}){x}"


Ranges = Mapping[str, tuple[int, int]]  # smallest and largest value of each variable


def bounds(x: Idx, ranges: Ranges) -> tuple[int, int]:
    """Smallest and largest value of ``x``."""
    names = index.variables(x)
    shifted = index.substitute(x, {n: index.var(n) + ranges[n][0] for n in names if ranges[n][0]})
    return index.bounds(shifted, {n: ranges[n][1] - ranges[n][0] + 1 for n in names})


def result_range(op: str, given: Sequence[tuple[int, int]], widest: tuple[int, int]) -> tuple[int, int]:
    """Of an integer operation whose operands lie in ``given``; ``widest`` where nothing is known."""
    lows, highs = [low for low, _ in given], [high for _, high in given]
    if op in ("mov", "cast"):
        return given[0]
    if op in ("and", "or", "xor") and min(lows) >= 0:
        return 0, (1 << max(highs).bit_length()) - 1
    if op == "where":
        return min(lows[1:]), max(highs[1:])
    if op == "add":
        return sum(lows), sum(highs)
    if op == "maximum":
        return max(lows), max(highs)
    if op == "minimum":
        return min(lows), min(highs)
    return widest


def _fits(x: Idx, ranges: Ranges) -> bool:
    """Whether every intermediate value is a 32-bit integer."""
    low, high = bounds(x, ranges)
    return I32[0] <= low and high <= I32[1] and all(_fits(y, ranges) for y in x.args)


def index_text(x: Idx, ranges: Ranges) -> str:
    """C++ text of an index expression: 32-bit where all of it fits, else 64-bit."""
    return _node(x, ranges, not _fits(x, ranges), 0)


_LEVEL = {"add": 1, "mul": 2, "floordiv": 2, "mod": 2}


def _node(x: Idx, ranges: Ranges, wide: bool, level: int) -> str:
    if x.op == "var":
        return f"(long long){name(x.name)}" if wide else name(x.name)
    if x.op == "const":
        text = f"{x.value}ll" if wide else str(x.value)
        return f"({text})" if x.value < 0 and level > 1 else text
    if x.op in ("min", "max"):
        return f"{x.op}({', '.join(_node(y, ranges, wide, 0) for y in x.args)})"
    if x.op in ("floordiv", "mod") and bounds(x.args[0], ranges)[0] < 0:
        operands = ", ".join(_node(y, ranges, wide, 0) for y in x.args)
        call = f"{'emmy_floor_index' if x.op == 'floordiv' else 'emmy_mod_index'}({operands})"
        return call if wide else f"(int){call}"
    here = _LEVEL[x.op]
    a, b = x.args
    sign = {"add": " + ", "mul": " * ", "floordiv": " / ", "mod": " % "}[x.op]
    factor = b.args[1].value if b.op == "mul" and b.args[1].op == "const" else b.value
    if x.op == "add" and factor < 0 and b.op in ("mul", "const"):
        sign, b = " - ", index.const(-factor) * (b.args[0] if b.op == "mul" else 1)
    text = _node(a, ranges, wide, here) + sign + _node(b, ranges, wide, here + 1 if sign != " + " else here)
    return f"({text})" if here < level else text
